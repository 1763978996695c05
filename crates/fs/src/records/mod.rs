//! Inode, group and superblock records, read and written through an operation.

mod group;
mod inode;
mod seal;
mod superblock;

pub(crate) use group::group;
pub(crate) use group::{put_group, read_groups, seal_bitmap_at_end};
pub(crate) use inode::{inode, note_change, put_inode};
pub(crate) use seal::{seal, seal_orphans_at_end};
pub(crate) use superblock::superblock;
pub(crate) use superblock::superblock_mut;
