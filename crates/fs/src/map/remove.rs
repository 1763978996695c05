//! Unmapping: truncate, punch, delete. Works from the end of the range, so that a file that is cut in several operations
//! is a whole, shorter file after each.

use super::{extents, indirect, max_blocks};
use crate::error::Result;
use crate::op::Op;
use quire_layout::inode::Inode;
use quire_layout::{FileBlock, Ino};

/// How far a removal has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Removed {
    /// What lies from the start of the range to before this is still to be removed; `None`: nothing.
    pub next: Option<FileBlock>,
}

/// Unmaps and frees the blocks from `from` to before `to`. Stops after about `budget` blocks of metadata have changed
/// (blocks of this operation, [`super::STEP_BLOCKS`] more at most): call again with `to` = `next`, in another operation.
///
/// # Errors
/// No space, when an extent is cut in two; corrupt; miss.
pub fn remove(
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
pub fn remove_all(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, from: FileBlock, budget: usize) -> Result<Removed> {
    remove(op, ino, inode, from, FileBlock(u32::MAX), budget)
}
