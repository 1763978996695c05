//! Extended attributes of inodes: in the inode's tail first, then in one block, which inodes with equal attributes
//! share.
//!
//! *Guarantees* (docs/invariants.md):
//! - N4: a shared block never changes. An inode whose attributes change gets a block of its own, and the count of the
//!   old block goes down; a block is freed with its last inode;
//! - N5: the access ACL and the mode agree.
//!
//! Values in inodes of their own (`ea_inode`) are read, never written: such images are mounted read-only.

mod attrs;
mod block;
mod inline_data;
#[cfg(test)]
mod tests;

pub use attrs::XattrFlags;
pub(crate) use attrs::{MAX_VALUE, drop_capabilities, get, list, may_have_capabilities, set};
pub(crate) use block::release;
pub(crate) use inline_data::{clear_inline_data, set_inline_tail};
