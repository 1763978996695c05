//! Unmapping: truncate, punch, delete. A removal works from the end of its range, so that a file that is cut in several
//! operations is a valid, shorter file after each of them.

use super::mapping::Removed;
use super::rules::max_blocks;
use super::{extents, indirect};
use crate::error::Result;
use crate::txn::Op;
use quire_layout::inode::Inode;
use quire_layout::{FileBlock, Ino};

/// Unmaps and frees the blocks from `from` to before `to`. Stops when the operation has changed about `budget` metadata
/// blocks ([`super::STEP_BLOCKS`] more at most). The caller goes on with `to` = `next` in another operation.
///
/// # Errors
/// No space, when an extent is cut in two; corrupt; miss.
pub(crate) fn remove(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &mut Inode,
    from: FileBlock,
    to: FileBlock,
    budget: usize,
) -> Result<Removed> {
    let limit = op.touched() + budget.max(1);
    let most = max_blocks(op.sb(), inode.uses_extents());
    let to = to.min(FileBlock(u32::try_from(most).expect("at most 2^32 - 1")));
    if inode.uses_extents() {
        extents::remove_range(op, ino, inode, from, to, limit)
    } else {
        indirect::remove_range(op, ino, inode, from, to, limit)
    }
}

/// As [`remove`], from `from` to the end of the map, wherever that is.
///
/// # Errors
/// As [`remove`].
pub(crate) fn remove_all(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &mut Inode,
    from: FileBlock,
    budget: usize,
) -> Result<Removed> {
    remove(op, ino, inode, from, FileBlock(u32::MAX), budget)
}
