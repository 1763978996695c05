//! Names: looked up, made, removed, moved; and the end of inodes that have none.
//!
//! *Guarantees* (docs/invariants.md):
//! - N6: an inode's links are the names that point to it. A directory's links are its own name, `.`, and its children's
//!   `..`, or 1 if there are more than ext4 counts;
//! - N7: no directory is moved below itself; every directory is reached from the root;
//! - N8: a call that fails has changed nothing.
//!
//! *Relies on*: the caller runs each function as one operation, so that a crash leaves all of it or nothing.

mod create;
mod directory;
pub(crate) mod evict;
mod link;
mod lookup;
mod orphan;
mod orphan_scan;
mod readdir;
mod rename;
#[cfg(test)]
pub(crate) mod tests;
mod unlink;

pub(crate) use create::{create, create_unnamed};
pub use directory::MAX_LINKS;
pub(crate) use link::link;
pub(crate) use lookup::{lookup, lookup_ino, resolve};
pub(crate) use orphan::{begin_cut, end_cut};
pub(crate) use orphan_scan::{Orphans, find_orphans, finish_orphans};
pub use readdir::Attributes;
pub(crate) use readdir::collect;
pub use rename::RenameFlags;
pub(crate) use rename::{check_rename, rename};
pub(crate) use unlink::{rmdir, unlink};
