//! Extents in and out of the tree: insertion with merging, change of kind, removal of a range.

use super::mapping::Removed;
use super::rules::charge;
use super::tree::{self, Path, descend};
use crate::error::Result;
use crate::space;
use crate::txn::Op;
use quire_layout::extent::Extent;
use quire_layout::inode::Inode;
use quire_layout::{Corrupt, FileBlock, Ino, Structure};

/// Inserts a run of any length where nothing is mapped, merging it with its neighbours.
pub(super) fn insert_run(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, run: Extent) -> Result<()> {
    let mut at = run.at;
    while at < run.end() {
        let most = at.0.saturating_add(Extent::max_len(run.unwritten));
        let piece = run.part(at, FileBlock(most)).expect("not at the end");
        insert_one(op, ino, inode, piece)?;
        at = piece.end();
    }
    Ok(())
}

fn insert_one(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, e: Extent) -> Result<()> {
    loop {
        let path = descend(op, ino, inode, e.at)?;
        let leaf = path.leaf();
        let overlaps = path.extent.is_some_and(|p| p.end() > e.at) || path.next_start().is_some_and(|n| n < e.end());
        if overlaps {
            return Err(overlap(ino, &path));
        }
        if let (Some(slot), Some(before)) = (path.slot, path.extent)
            && before.joins(&e)
        {
            let grown = Extent { len: before.len + e.len, ..before };
            return grow_at(op, ino, inode, &path, slot, grown);
        }
        let slot = path.slot.map_or(0, |s| s + 1);
        if let Some(after) = path.after
            && e.joins(&after)
        {
            return tree::set(op, ino, inode, &path, slot, &Extent { len: e.len + after.len, ..e });
        }
        if leaf.entries < leaf.max {
            tree::edit(op, ino, inode, leaf.block, |n| n.insert(slot, &e.encode()))?;
            return if slot == 0 { tree::fix_keys(op, ino, inode, &path, e.at) } else { Ok(()) };
        }
        tree::make_room(op, ino, inode, &path, e.at, leaf.block.unwrap_or(e.phys))?;
    }
}

fn overlap(ino: Ino, path: &Path) -> crate::Error {
    let c = Corrupt::new(Structure::ExtentNode, "two extents overlap").of(ino.0);
    path.leaf().block.map_or(c.clone(), |b| c.at(b)).into()
}

/// Replaces extent `slot` by a longer one, and merges it with the one after.
fn grow_at(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, path: &Path, slot: usize, e: Extent) -> Result<()> {
    match path.after {
        Some(after) if e.joins(&after) => {
            tree::set(op, ino, inode, path, slot, &Extent { len: e.len + after.len, ..e })?;
            tree::edit(op, ino, inode, path.leaf().block, |n| n.remove(slot + 1))
        }
        _ => tree::set(op, ino, inode, path, slot, &e),
    }
}

/// Makes what is mapped from `at` to before `end` written or unwritten.
pub(super) fn set_kind(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &mut Inode,
    at: FileBlock,
    end: FileBlock,
    unwritten: bool,
) -> Result<()> {
    let mut at = at;
    while at < end {
        let path = descend(op, ino, inode, at)?;
        match path.extent.filter(|e| e.end() > at) {
            None => match path.next_start() {
                Some(next) if next < end => at = next,
                _ => return Ok(()),
            },
            Some(e) => {
                let part = e.part(at, end).expect("the extent covers `at`");
                if e.unwritten != unwritten {
                    replace(op, ino, inode, &path, e, Extent { unwritten, ..part })?;
                }
                at = part.end();
            }
        }
    }
    Ok(())
}

/// Puts `part`, which is a part of `e` of another kind, in its place.
fn replace(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, path: &Path, e: Extent, part: Extent) -> Result<()> {
    let slot = path.slot.expect("the path found the extent");
    let (left, right) = (e.part(e.at, part.at), e.part(part.end(), e.end()));
    match (left, right) {
        (None, None) if part.len <= Extent::max_len(part.unwritten) => {
            tree::set(op, ino, inode, path, slot, &part)?;
            merge_around(op, ino, inode, part.at)
        }
        (None, None) => {
            tree::remove_entry(op, ino, inode, path, slot)?;
            insert_run(op, ino, inode, part)
        }
        (Some(left), right) => {
            tree::set(op, ino, inode, path, slot, &left)?;
            if let Some(right) = right {
                insert_run(op, ino, inode, right)?;
            }
            insert_run(op, ino, inode, part)
        }
        (None, Some(right)) => {
            tree::set(op, ino, inode, path, slot, &right)?;
            insert_run(op, ino, inode, part)
        }
    }
}

/// Cuts the extent across `at` in two entries, which lie side by side until one of them moves.
pub(super) fn split_at(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, at: FileBlock) -> Result<()> {
    loop {
        let path = descend(op, ino, inode, at)?;
        let (Some(slot), Some(e)) = (path.slot, path.extent) else { return Ok(()) };
        let (Some(left), Some(right)) = (e.part(e.at, at), e.part(at, e.end())) else { return Ok(()) };
        let leaf = path.leaf();
        if leaf.entries < leaf.max {
            tree::set(op, ino, inode, &path, slot, &left)?;
            return tree::edit(op, ino, inode, leaf.block, |n| n.insert(slot + 1, &right.encode()));
        }
        tree::make_room(op, ino, inode, &path, at, leaf.block.unwrap_or(e.phys))?;
    }
}

/// Merges the extent that starts at `at` with its neighbours in the leaf, where they go on.
pub(super) fn merge_around(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, at: FileBlock) -> Result<()> {
    let path = descend(op, ino, inode, at)?;
    let (Some(slot), Some(e)) = (path.slot, path.extent) else { return Ok(()) };
    grow_at(op, ino, inode, &path, slot, e)?;
    if slot == 0 {
        return Ok(());
    }
    let block = path.leaf().block;
    tree::edit(op, ino, inode, block, |n| {
        let (before, e) = (n.view().extent(slot - 1), n.view().extent(slot));
        if before.joins(&e) {
            n.set(slot - 1, &Extent { len: before.len + e.len, ..before }.encode());
            n.remove(slot);
        }
    })
}

/// Data blocks that one operation frees at most: each is looked for among what is in memory and in the log.
const MAX_FREED: u64 = 1 << 18;

/// Unmaps and frees from `from` to before `to`, from the end, until the operation has touched `limit` blocks.
pub(super) fn remove_range(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &mut Inode,
    from: FileBlock,
    to: FileBlock,
    limit: usize,
) -> Result<Removed> {
    let mut to = to;
    let mut freed = 0;
    while from < to {
        if op.touched() >= limit || freed >= MAX_FREED {
            return Ok(Removed { next: Some(to) });
        }
        let path = descend(op, ino, inode, FileBlock(to.0 - 1))?;
        let (Some(slot), Some(e)) = (path.slot, path.extent) else {
            // The leaf begins behind `to`; there may be one to its left.
            match path.left_of {
                Some(left) if left > from && left < to => to = left,
                _ => break,
            }
            continue;
        };
        let Some(part) = e.part(from, to) else { break };
        let (left, right) = (e.part(e.at, part.at), e.part(part.end(), e.end()));
        match (left, right) {
            (None, None) => tree::remove_entry(op, ino, inode, &path, slot)?,
            (Some(rest), None) | (None, Some(rest)) => tree::set(op, ino, inode, &path, slot, &rest)?,
            (Some(left), Some(right)) => {
                tree::set(op, ino, inode, &path, slot, &left)?;
                insert_run(op, ino, inode, right)?;
            }
        }
        space::free_blocks(op, part.phys, part.len)?;
        charge(op, ino, inode, -i64::from(part.len))?;
        freed += u64::from(part.len);
        to = part.at;
    }
    Ok(Removed { next: None })
}
