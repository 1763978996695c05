//! Space: which blocks and inodes are free, and who may take them.
//!
//! ```text
//! superblock totals = sum over groups of  descriptor {free blocks, free inodes, used dirs}  ->  bitmap (1 = used)
//!
//! available = free in the bitmaps - busy        busy = claimed | freed, not yet durable
//! ```
//! Guarantees (docs/invariants.md, A):
//! - A1: a block is handed out only if its bit is clear, nobody claims it, and it is not fixed metadata;
//! - A2: a freed block is not handed out before the transaction that freed it is durable;
//! - A3: bitmap, descriptor counts and checksums change in one operation and always agree;
//! - A4: a block is freed only if its bit is set and it is not fixed metadata, else the image is corrupt;
//! - A5: what was reserved for delayed allocation can be allocated;
//! - A6: a part of an inode table that was never used is zeroed before its first inode is handed out.
//!
//! Relies on [`Op`]: images and what is deferred vanish together when an operation fails.

mod blocks;
mod claim;
mod group;
mod inodes;
mod orlov;
mod shortage;
mod state;
#[cfg(test)]
mod tests;
mod zones;

pub use blocks::{Goal, Request, alloc_blocks, alloc_with, free_blocks};
pub(crate) use blocks::{available, start};
pub(crate) use claim::claim_free;
pub use claim::{Claim, claim, drop_claim, mark_claimed};
pub(crate) use group::free_runs;
pub use inodes::{alloc_inode, free_inode, inode_is_used};
#[cfg(any(test, feature = "testing"))]
pub use shortage::counted as shortage_for_tests;
pub use state::{AllocState, Space};
pub(crate) use state::{Delta, read_groups};
pub use zones::Zones;

use crate::error::Result;
use crate::op::Op;
use quire_layout::BlockNo;

/// A run of disk blocks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Run {
    pub start: BlockNo,
    pub len: u32,
}

impl Run {
    #[must_use]
    pub fn new(start: BlockNo, len: u32) -> Self {
        Run { start, len }
    }

    /// The block after the last.
    #[must_use]
    pub fn end(&self) -> BlockNo {
        self.start.plus(u64::from(self.len))
    }
}

/// On whose account blocks are taken (A8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pool {
    /// Leaves root's reserve, the metadata reserve, and what is reserved for delayed allocation.
    User,
    /// May use root's reserve (root, and the superblock's user and group).
    Root,
    /// Space that the caller has reserved, or a block of a tree that must not fail: anything that is free.
    Reserved,
}

/// Reserves blocks for a later allocation from [`Pool::Reserved`], so that it cannot fail (A5).
///
/// # Errors
/// No space, or none before a transaction is durable.
pub fn reserve(op: &mut Op<'_>, blocks: u64, pool: Pool) -> Result<()> {
    blocks::ensure(op, blocks, pool)?;
    op.deferred.alloc.reserved += i64::try_from(blocks).expect("fewer than the blocks of the image");
    Ok(())
}

/// Gives back a reservation, used or not.
pub fn unreserve(op: &mut Op<'_>, blocks: u64) {
    op.deferred.alloc.reserved -= i64::try_from(blocks).expect("fewer than the blocks of the image");
}
