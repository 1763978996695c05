//! Space: which blocks and inodes are free, and who may take them.
//!
//! ```text
//! superblock totals = sum over groups of  descriptor {free blocks, free inodes, used dirs}  ->  bitmap (1 = used)
//!
//! available = free in the bitmaps - busy        busy = claimed | freed, not yet durable
//! ```
//! *Guarantees* (docs/invariants.md, A):
//! - A1: a block is handed out only if its bit is clear, no claim covers it, and it lies in no system zone;
//! - A2: a freed block is not handed out before the transaction that freed it is durable;
//! - A3: bitmap, descriptor counts and checksums change in one operation and always agree;
//! - A4: a block is freed only if its bit is set and it lies in no system zone, else the image is corrupt;
//! - A5: reserved space can be allocated;
//! - A9: nothing is taken in a group whose bitmap was found damaged; an inode that is in use is not handed out;
//! - A6: a part of an inode table that was never used is zeroed before its first inode is handed out.
//!
//! *Relies on* [`crate::Op`]: images and deferred changes vanish together when an operation fails.

mod blocks;
mod claim;
mod free_space;
mod group;
mod grow;
mod growth_plan;
mod inodes;
mod orlov;
mod reserve;
mod resize_inode;
mod shortage;
#[cfg(test)]
mod tests;
mod trim;

pub(crate) use crate::tables::{Pool, Reservation, Run};
pub(crate) use blocks::start;
pub(crate) use blocks::{Goal, Request, alloc_blocks, alloc_with, free_blocks, want_bitmaps};
pub(crate) use claim::{Claim, claim, drop_claim, mark_claimed};
pub(crate) use grow::{add, added, backup_copies, fill, filled, new_blocks, put_new_descriptors, renew};
pub(crate) use growth_plan::{GrowthStep, NewGroup, steps as growth_steps, target as growth_target};
pub(crate) use inodes::{alloc_inode, free_inode, inode_is_used};
pub(crate) use reserve::{reserve, reserve_dropped, unreserve};
#[cfg(any(test, feature = "shortage"))]
pub use shortage::counted as shortage_for_tests;
pub(crate) use trim::{trim_done, trim_next};
