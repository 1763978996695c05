//! The block map of a file: which disk blocks hold which file blocks.
//!
//! ```text
//! inode i_block ─┬─ extents:  root (4 entries) ─> index nodes ─> leaves of (file block, length, disk block, unwritten?)
//!                └─ indirect: 12 pointers, and blocks of pointers one, two, three levels deep
//! ```
//! *Guarantees* (docs/invariants.md, E):
//! - E1: no two mappings of a file overlap, and a file maps only blocks that a file may own;
//! - E2: in an extent tree an index entry's key is its child's first key; only an empty file has an empty node;
//! - E3: blocks that leave the map are freed in the same operation, blocks of the tree included;
//! - E4: `i_blocks` is the data and tree blocks of the map (and what others charge: an xattr block);
//! - E5: every step costs O(depth) blocks; long work (`remove`, `shift`) stops at a budget and returns where.
//!
//! *Relies on*: the caller, whose inode all functions change, writes it with [`crate::records::put_inode`] before the
//! operation ends. If a function fails, the inode may be half changed, and the caller must fail the operation, too.

mod bound;
mod extents;
mod goal;
mod indirect;
mod insert;
mod lookup;
mod mapping;
mod remove;
mod rules;
mod shift;
#[cfg(test)]
mod tests;
mod tree;
mod zero;

pub(crate) use bound::tree_blocks;
pub(crate) use goal::goal;
pub(crate) use insert::{allocate, convert_written, insert, mark_unwritten};
pub(crate) use lookup::{extents, lookup};
pub(crate) use mapping::Mapping;
pub(crate) use remove::{remove, remove_all};
pub(crate) use rules::{below, can_count, max_size};
pub(crate) use shift::{shift_left, shift_right, split_for_shift};
pub(crate) use zero::{clear_tail, put_zeros, zero_tail};
