//! Moving what is mapped to other file blocks: collapse and insert range.
//!
//! Leaf by leaf, left to right for a shift to the left and the other way round, so that the tree is legal after
//! each step. Only extent trees can do it, as in the kernel.

use super::extents;
use super::tree::{self, Path, descend};
use crate::error::{Error, Result};
use crate::txn::Op;
use quire_layout::extent::{Extent, FILE_BLOCKS};
use quire_layout::inode::Inode;
use quire_layout::{FileBlock, Ino};

fn only_extents(inode: &Inode) -> Result<()> {
    if inode.uses_extents() { Ok(()) } else { Err(Error::NotSupported("shifting the blocks of an indirect map")) }
}

/// Moves everything from file block `from` on to the left by `by` blocks. What lay in these blocks must have been
/// removed. Stops after about `budget` changed blocks and returns the `from` of the next call.
///
/// # Errors
/// Not supported for indirect maps; invalid if the blocks are not free; corrupt; miss.
pub(crate) fn shift_left(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &mut Inode,
    from: FileBlock,
    by: u32,
    budget: usize,
) -> Result<Option<FileBlock>> {
    only_extents(inode)?;
    let limit = op.touched() + budget.max(1);
    let target = from.0.checked_sub(by).ok_or(Error::Invalid("shift to before the start of the file"))?;
    let mut at = from;
    loop {
        if op.touched() >= limit {
            return Ok(Some(at));
        }
        let mut path = descend(op, ino, inode, at)?;
        if path.extent.is_some_and(|e| e.at < at && e.end() > FileBlock(at.0 - by)) {
            return Err(Error::Invalid("blocks to be shifted over are in use"));
        }
        let mut first = match path.extent {
            Some(e) if e.at == at => path.slot.expect("found with the extent"),
            found => found.map_or(0, |_| path.slot.expect("found with the extent") + 1),
        };
        if first >= path.leaf().entries {
            let Some(next) = path.next_leaf else { return Ok(None) };
            (path, first) = (descend(op, ino, inode, next)?, 0);
        }
        let end = move_slots(op, ino, inode, &path, first..path.leaf().entries, |k| FileBlock(k.0 - by))?;
        if at == from && first > 0 {
            extents::merge_around(op, ino, inode, FileBlock(target))?;
        }
        if path.next_leaf.is_none() {
            return Ok(None);
        }
        at = end;
    }
}

/// Before [`shift_right`]: cuts the extent across `from`, so that the shift only changes numbers in nodes that are
/// there. What needs space or could be too large is refused here, before anything has moved.
///
/// # Errors
/// Not supported for indirect maps; too large; no space for blocks of the tree; corrupt; miss.
pub(crate) fn split_for_shift(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, from: FileBlock, by: u32) -> Result<()> {
    only_extents(inode)?;
    let last = descend(op, ino, inode, FileBlock(u32::MAX - 1))?.extent;
    if last.is_some_and(|e| !may_move(&e, by)) {
        return Err(Error::TooLarge);
    }
    extents::split_at(op, ino, inode, from)
}

/// True if a map can address an extent `by` blocks further to the right.
fn may_move(e: &Extent, by: u32) -> bool {
    u64::from(e.end().0) + u64::from(by) <= FILE_BLOCKS
}

/// Moves everything from file block `from` on to the right by `by` blocks. [`split_for_shift`] has cut what lay across
/// `from`. `to` is `None` at first. Stops after about `budget` changed blocks and returns the `to` of the next call.
///
/// # Errors
/// Not supported for indirect maps; too large; invalid if an extent lies across `from`; corrupt; miss.
pub(crate) fn shift_right(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &mut Inode,
    from: FileBlock,
    by: u32,
    to: Option<FileBlock>,
    budget: usize,
) -> Result<Option<FileBlock>> {
    only_extents(inode)?;
    let limit = op.touched() + budget.max(1);
    let mut to = to.unwrap_or(FileBlock(u32::MAX));
    while from < to {
        if op.touched() >= limit {
            return Ok(Some(to));
        }
        let path = descend(op, ino, inode, FileBlock(to.0 - 1))?;
        let (Some(last), Some(e)) = (path.slot, path.extent) else {
            match path.left_of {
                Some(left) if left > from && left < to => to = left,
                _ => break,
            }
            continue;
        };
        if !may_move(&e, by) {
            return Err(Error::TooLarge);
        }
        let first = tree::view(op, ino, inode, path.leaf().block, |n| {
            (0..=last).find(|i| n.key(*i) >= from).unwrap_or(last + 1)
        })?;
        if first <= last {
            let start = tree::view(op, ino, inode, path.leaf().block, |n| n.key(first))?;
            move_slots(op, ino, inode, &path, first..last + 1, |k| k.plus(by))?;
            to = start;
        } else if e.end() > from {
            return Err(Error::Invalid("an extent lies across the place from which on blocks are to be shifted"));
        } else {
            break;
        }
    }
    Ok(None)
}

/// Gives the extents in `slots` of a leaf other file blocks; returns the old end of the last.
fn move_slots(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &mut Inode,
    path: &Path,
    slots: std::ops::Range<usize>,
    to: impl Fn(FileBlock) -> FileBlock,
) -> Result<FileBlock> {
    let (end, first) = tree::edit(op, ino, inode, path.leaf().block, |n| {
        let end = n.view().extent(slots.end - 1).end();
        for i in slots.clone() {
            let key = to(n.view().key(i));
            n.set_key(i, key);
        }
        (end, n.view().key(0))
    })?;
    if slots.start == 0 {
        tree::fix_keys(op, ino, inode, path, first)?;
    }
    Ok(end)
}
