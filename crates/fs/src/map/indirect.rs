//! Block maps of ext2 and ext3: reading, extending and cutting them.

use super::mapping::{Mapping, Removed};
use super::rules::{Legal, charge};
use crate::error::Result;
use crate::space::{self, Request, Run};
use crate::txn::Op;
use crate::txn::block_kinds as kinds;
use quire_cache::Image;
use quire_layout::extent::Extent;
use quire_layout::indirect as map;
use quire_layout::inode::Inode;
use quire_layout::{BlockNo, BlockSize, Corrupt, FileBlock, Ino, Structure};

/// One pointer on the way to a file block.
#[derive(Clone, Copy, Debug)]
struct Step {
    /// The block of pointers it is in; `None`: the inode.
    block: Option<BlockNo>,
    slot: usize,
    /// Blocks of pointers below it.
    levels: u32,
    to: Option<BlockNo>,
}

/// The pointers on the way to `at`, up to the first hole. The last one is the data's if its `levels` are 0.
fn walk(op: &mut Op<'_>, ino: Ino, inode: &Inode, at: FileBlock) -> Result<Vec<Step>> {
    let path = map::path(op.sb().block_size(), at).ok_or(crate::Error::TooLarge)?;
    let mut steps: Vec<Step> = Vec::with_capacity(4);
    let mut levels = u32::try_from(path.slots().len()).expect("at most 4");
    let mut block = None;
    for slot in path.slots() {
        levels -= 1;
        let to = pointer(op, ino, inode, block, *slot)?;
        steps.push(Step { block, slot: *slot, levels, to });
        if to.is_none() {
            break;
        }
        block = to;
    }
    Ok(steps)
}

fn pointer(op: &mut Op<'_>, ino: Ino, inode: &Inode, block: Option<BlockNo>, slot: usize) -> Result<Option<BlockNo>> {
    match block {
        None => {
            let to = map::get(inode.block_area(), slot);
            check_pointer(&Legal::of(op, ino), ino, to)?;
            Ok(to)
        }
        Some(b) => Ok(map::get(&pointers(op, ino, b)?, slot)),
    }
}

/// A pointer in the inode. What is wrong with it is the inode's: the number is not a block's.
fn check_pointer(legal: &Legal, ino: Ino, to: Option<BlockNo>) -> Result<()> {
    if to.is_some_and(|b| !legal.allows(b, 1)) {
        let why = "points outside the file system or at its metadata";
        return Err(Corrupt::new(Structure::Inode, why).of(ino.0).into());
    }
    Ok(())
}

fn pointers(op: &mut Op<'_>, ino: Ino, b: BlockNo) -> Result<Image> {
    let legal = Legal::of(op, ino);
    op.block(b, kinds::INDIRECT_BLOCK, |bytes| {
        map::check_block(bytes, |b, n| legal.allows(b, n)).map_err(|c| c.of(ino.0))
    })
}

/// File blocks from `at` to the end of what a pointer with `levels` below it covers, and from its start to `at`.
fn around(bs: BlockSize, at: FileBlock, levels: u32) -> (u64, u64) {
    let mut rel = u64::from(at.0);
    if rel >= u64::from(map::DIRECT) {
        rel -= u64::from(map::DIRECT);
        for l in 1..=3 {
            if rel < map::span(bs, l) {
                break;
            }
            rel -= map::span(bs, l);
        }
    }
    let span = map::span(bs, levels);
    (span - rel % span, rel % span)
}

/// See [`super::lookup`]. A run ends at the end of its block of pointers.
pub(super) fn lookup(op: &mut Op<'_>, ino: Ino, inode: &Inode, at: FileBlock, max: u32) -> Result<Mapping> {
    let bs = op.sb().block_size();
    let steps = walk(op, ino, inode, at)?;
    let last = steps.last().expect("at least the inode's pointer");
    let image;
    let (bytes, slots): (&[u8], usize) = match last.block {
        None if last.levels == 0 => (inode.block_area(), 12),
        None => (inode.block_area(), last.slot + 1),
        Some(b) => {
            image = pointers(op, ino, b)?;
            (&image, map::per_block(bs))
        }
    };
    let alike = |n: u64, slot: usize| match last.to {
        None => map::get(bytes, slot).is_none(),
        Some(phys) => map::get(bytes, slot) == Some(phys.plus(n)),
    };
    let same = (0u64..).zip(last.slot..slots).take_while(|(n, slot)| alike(*n, *slot)).map(|(n, _)| n + 1).last();
    let (left, _) = around(bs, at, last.levels);
    let len = left + (same.unwrap_or(1) - 1) * map::span(bs, last.levels);
    let len = u32::try_from(len).unwrap_or(u32::MAX).min(max);
    Ok(match last.to {
        None => Mapping::Hole { len },
        Some(phys) => Mapping::Mapped { phys, len, unwritten: false },
    })
}

/// See [`super::extents`].
pub(super) fn extents(op: &mut Op<'_>, ino: Ino, inode: &Inode, from: FileBlock, limit: usize) -> Result<Vec<Extent>> {
    let end = map::file_blocks(op.sb().block_size());
    let mut out: Vec<Extent> = Vec::new();
    let mut at = u64::from(from.0);
    while at < end && out.len() <= limit {
        let fb = FileBlock(u32::try_from(at).expect("in the map"));
        let m = lookup(op, ino, inode, fb, u32::MAX)?;
        if let Mapping::Mapped { phys, len, .. } = m {
            let e = Extent { at: fb, len, phys, unwritten: false };
            match out.last_mut() {
                Some(l) if l.joins(&e) => l.len += len,
                _ => out.push(e),
            }
        }
        at += u64::from(m.len());
    }
    out.truncate(limit);
    Ok(out)
}

/// Sets pointers to a run of blocks, making blocks of pointers where there are none.
pub(super) fn insert(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &mut Inode,
    at: FileBlock,
    phys: BlockNo,
    len: u32,
) -> Result<()> {
    let mut done = 0;
    while done < len {
        let fb = at.plus(done);
        let leaf = make_leaf(op, ino, inode, fb, phys)?;
        let slots = if leaf.block.is_some() { map::per_block(op.sb().block_size()) } else { 12 };
        let n = (slots - leaf.slot).min(usize::try_from(len - done).expect("fits"));
        let first = phys.plus(u64::from(done));
        let set = |b: &mut [u8]| {
            for (slot, k) in (leaf.slot..leaf.slot + n).zip(0u64..) {
                if map::get(b, slot).is_some() {
                    return Err(Corrupt::new(Structure::IndirectBlock, "a block is mapped twice").of(ino.0));
                }
                map::put(b, slot, Some(first.plus(k)));
            }
            Ok(())
        };
        match leaf.block {
            None => set(inode.block_area_mut())?,
            Some(b) => {
                pointers(op, ino, b)?;
                set(op.block_mut(b)?).map_err(|c| c.at(b))?;
            }
        }
        done += u32::try_from(n).expect("at most a block of pointers");
    }
    Ok(())
}

/// The pointer to the data of `at`, with all blocks of pointers above it.
fn make_leaf(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, at: FileBlock, near: BlockNo) -> Result<Step> {
    loop {
        let steps = walk(op, ino, inode, at)?;
        let last = *steps.last().expect("at least the inode's pointer");
        if last.levels == 0 {
            return Ok(last);
        }
        let below = BlockNo(1 << 32);
        let pool = op.map_pool();
        let run = space::alloc_with(op, &Request { below, ..Request::new(near, 1, pool) })?;
        charge(op, ino, inode, 1)?;
        op.block_new(run.start, kinds::INDIRECT_BLOCK)?;
        set_pointer(op, inode, last.block, last.slot, Some(run.start))?;
    }
}

fn set_pointer(
    op: &mut Op<'_>,
    inode: &mut Inode,
    block: Option<BlockNo>,
    slot: usize,
    to: Option<BlockNo>,
) -> Result<()> {
    match block {
        None => map::put(inode.block_area_mut(), slot, to),
        Some(b) => map::put(op.block_mut(b)?, slot, to),
    }
    Ok(())
}

/// See [`super::remove`]: one block of pointers at a time, from the end.
pub(super) fn remove_range(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &mut Inode,
    from: FileBlock,
    to: FileBlock,
    limit: usize,
) -> Result<Removed> {
    let mut to = to;
    while from < to {
        if op.touched() >= limit {
            return Ok(Removed { next: Some(to) });
        }
        let at = FileBlock(to.0 - 1);
        let steps = walk(op, ino, inode, at)?;
        let last = *steps.last().expect("at least the inode's pointer");
        if last.levels > 0 {
            let (_, before) = around(op.sb().block_size(), at, last.levels);
            to = FileBlock(at.0 - u32::try_from(before).expect("inside the file"));
            continue;
        }
        // The slots of this block of pointers (or of the inode) that lie in the range.
        let n = u32::try_from(last.slot).expect("small").min(at.0 - from.0) + 1;
        let first = last.slot + 1 - usize::try_from(n).expect("small");
        let (runs, empty) = match last.block {
            None => {
                let legal = Legal::of(op, ino);
                let mut slots = first..last.slot + 1;
                slots.try_for_each(|slot| check_pointer(&legal, ino, map::get(inode.block_area(), slot)))?;
                take_slots(inode.block_area_mut(), first..last.slot + 1)
            }
            Some(b) => take_slots(op.block_mut(b)?, first..last.slot + 1),
        };
        for run in runs {
            space::free_blocks(op, run.start, run.len)?;
            charge(op, ino, inode, -i64::from(run.len))?;
        }
        if empty {
            prune(op, ino, inode, &steps)?;
        }
        to = FileBlock(to.0 - n);
    }
    Ok(Removed { next: None })
}

/// Clears pointers and returns where they pointed, and whether none is left.
fn take_slots(b: &mut [u8], slots: std::ops::Range<usize>) -> (Vec<Run>, bool) {
    let mut runs: Vec<Run> = Vec::new();
    for slot in slots {
        if let Some(to) = map::get(b, slot) {
            match runs.last_mut() {
                Some(r) if r.end() == to => r.len += 1,
                _ => runs.push(Run::new(to, 1)),
            }
            map::put(b, slot, None);
        }
    }
    (runs, b.iter().all(|x| *x == 0))
}

/// Frees the blocks of pointers on a way that hold nothing any more; the last is known to be empty.
fn prune(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, steps: &[Step]) -> Result<()> {
    for pair in steps.windows(2).rev() {
        let (above, step) = (pair[0], pair[1]);
        let Some(b) = step.block else { break };
        if !pointers(op, ino, b)?.iter().all(|x| *x == 0) {
            break;
        }
        set_pointer(op, inode, above.block, above.slot, None)?;
        space::free_blocks(op, b, 1)?;
        charge(op, ino, inode, -1)?;
    }
    Ok(())
}
