//! Directories: names to inodes.
//!
//! *Guarantees*: an indexed directory finds a name in O(log n). Each change leaves blocks that e2fsck calls clean (D1).
//! A corrupt directory gives a typed error that names the block, never a panic or an endless walk (D2). A listing
//! neither loses nor repeats a name that stays, whatever operations add or remove meanwhile (D3). A lookup finds each
//! name that exists (D4). Memory does not grow with the directory (D5).
//!
//! *Relies on*: an operation that fails is undone as a whole, so these functions may return an error at any point. The
//! caller sets the directory's times and link count; these functions set its size and flags, in the inode that is
//! passed and on disk.
//!
//! With `dir_index`, a directory is one linear block until that overflows, and then an htree, which only grows. Without
//! it, and where several linear blocks exist already, a directory stays linear.

mod blocks;
mod change;
mod empty;
mod entry;
mod inline;
mod inline_block;
mod insert;
mod item;
mod listing;
mod long_hash;
mod lookup;
mod name_search;
mod read;
#[cfg(test)]
mod tests;
mod tree;

pub use change::{remove, remove_found, replace, set_parent};
pub use empty::is_empty;
pub use entry::{Entry, MAX_NAME};
pub use insert::{add, init};
pub use item::DirItem;
pub use lookup::{lookup, parent};
pub use read::read;
