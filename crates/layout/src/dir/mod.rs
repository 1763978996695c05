//! Directory blocks: entries, the checksum tail, and the nodes of an htree.
//!
//! ```text
//! a directory of a few names, or without dir_index       an indexed one (the inode has the INDEX flag)
//!   block 0: leaf: . .. a b c                              block 0: root: . .. (hash -> block)*
//!   block 1: leaf: d e f                                   block n: node: (hash -> block)*   (0, 1 or 2 levels)
//!                                                          block m: leaf: names of one hash range
//! ```
//! Guarantees: no byte of a block is believed before it has been checked; whatever a block says, reading it ends, stays
//! inside the block and gives a typed error. What changes a block leaves its checksum right.
//! Relies on the caller for what spans blocks: that a block is used in the role that its place demands.
//! Source: kernel documentation, "ext4: directory entries".

mod entry;
mod hash;
mod index;
pub mod inline;
mod leaf;
mod split;

#[cfg(test)]
mod tests;

pub use entry::{DirEntry, DirFormat, Entries, FileType, is_dot, is_name};
pub use hash::{HashVersion, Hasher, NameHash};
pub use index::{IndexNode, RootInfo};
pub use split::Hashed;
