//! Space given, taken and moved: the modes of fallocate(2).
//!
//! Each mode writes back what is pending, holds the file exclusively (F2), zeroes the bytes of blocks that the range
//! covers in part, and works on whole blocks in as many operations as it takes. After a crash in the middle the file is
//! legal, and what lies outside of the range is untouched (collapse and insert: or moved in part, as with the kernel).

use super::checks::{check_change, touch};
use super::context::Data;
use super::inline::leave_inode;
use super::pages::FileState;
use super::settle::{drop_range, settle_pages};
use super::steps::{Found, in_steps};
use super::zero::{forget_clean, zero_bytes};
use crate::error::{Error, Result};
use crate::map::{self, Mapping};
use crate::records;
use crate::space::{self, Pool, Request};
use crate::txn::Op;
use quire_device::Mutant;
use quire_device::sync::lock;
use quire_layout::extent::MAX_UNWRITTEN;
use quire_layout::inode::{Inode, flags};
use quire_layout::{BlockSize, FileBlock, Ino};

/// What fallocate does with a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Falloc {
    /// Gives every block of the range space. The file grows to hold the range unless `keep_size`.
    Allocate { keep_size: bool },
    /// Takes the space away; the range reads as zeros. The size stays.
    PunchHole,
    /// The range reads as zeros, and every block of it has space.
    ZeroRange { keep_size: bool },
    /// Removes the range; what follows moves down. Whole blocks only.
    Collapse,
    /// Makes room for the range; what follows moves up. Whole blocks only.
    Insert,
}

/// A range of bytes, and the whole blocks in it.
struct Span {
    from: u64,
    to: u64,
    /// The range covers the blocks from `first` to before `end` in whole.
    first: FileBlock,
    end: FileBlock,
}

impl Span {
    fn new(bs: BlockSize, from: u64, to: u64) -> Result<Self> {
        Ok(Span { from, to, first: block(bs.blocks_for(from))?, end: block(to >> bs.bits())? })
    }

    /// The blocks that the range touches: the first, and the one after the last.
    fn touched(&self, bs: BlockSize) -> Result<(FileBlock, FileBlock)> {
        Ok((block(self.from >> bs.bits())?, block(bs.blocks_for(self.to))?))
    }
}

fn block(n: u64) -> Result<FileBlock> {
    u32::try_from(n).map(FileBlock).map_err(|_| Error::TooLarge)
}

/// A call on one file, which the caller holds exclusively.
struct Call<'c> {
    d: &'c Data,
    /// The account of the caller.
    pool: Pool,
    ino: Ino,
    s: &'c mut FileState,
    found: Found,
}

/// Allocates, frees, zeroes, removes or inserts a range of a file. Returns true if the inode asks for that to be
/// durable when the call returns (N10).
///
/// # Errors
/// Invalid range; too large; not supported for the file's kind of map; no space (blocks allocated before stay);
/// immutable or append-only; stale; corrupt; I/O; read-only.
pub(crate) fn fallocate(d: &Data, pool: Pool, ino: Ino, how: Falloc, offset: u64, len: u64) -> Result<bool> {
    d.engine.write_gate.check()?;
    if len == 0 {
        return Err(Error::Invalid("length 0"));
    }
    let end = offset.checked_add(len).ok_or(Error::TooLarge)?;
    leave_inode(d, pool, ino)?;
    let file = d.files.get(ino);
    let mut s = file.exclusive();
    let found = d.engine.run(|op| {
        let (found, inode) = Found::look(op, ino, &s)?;
        check_allowed(&inode, how)?;
        Ok(found)
    })?;
    if end > found.max {
        return Err(Error::TooLarge);
    }
    settle_pages(d, ino, &mut s)?;
    let span = Span::new(d.block_size(), offset, end)?;
    let mut call = Call { d, pool, ino, s: &mut s, found };
    let done = match how {
        Falloc::Allocate { keep_size } => call.allocate(&span, if keep_size { None } else { Some(end) }),
        Falloc::PunchHole => call.punch(&span),
        Falloc::ZeroRange { keep_size } => call.zero_range(&span, if keep_size { None } else { Some(end) }),
        Falloc::Collapse => call.collapse(offset, len),
        Falloc::Insert => call.insert_range(offset, len),
    };
    // A crash brings old mappings back. Data written in place under the new ones would then lie elsewhere in the file,
    // or tear blocks that held data (F20).
    if matches!(how, Falloc::Collapse | Falloc::Insert | Falloc::ZeroRange { .. }) {
        call.commit_changes()?;
    }
    done.map(|()| call.found.sync)
}

impl Call<'_> {
    /// Makes the inode's new mappings durable.
    fn commit_changes(&self) -> Result<()> {
        let changed = self.d.engine.tables().changes.last(self.ino, false);
        let Some(tid) = changed.filter(|_| !Mutant::RemapNotDurable.is_on()) else { return Ok(()) };
        self.d.engine.commit(tid)
    }

    /// Changes the map from block `at` on in steps, each of which writes the inode and counts as a change of data.
    fn change_map(
        &self,
        at: FileBlock,
        mut step: impl FnMut(&mut Op<'_>, &mut Inode, FileBlock) -> Result<Option<FileBlock>>,
    ) -> Result<()> {
        let ino = self.ino;
        in_steps(self.d, self.pool, at, |op, at| {
            let mut inode = records::inode(op, ino)?;
            let next = step(op, &mut inode, at)?;
            records::put_inode(op, ino, &mut inode)?;
            records::note_change(op, ino, true);
            Ok(next)
        })
    }

    /// Gives space to every hole of a run of blocks. With `zero`, written blocks there become unwritten.
    fn fill(&self, from: FileBlock, to: FileBlock, zero: bool) -> Result<()> {
        let (ino, budget) = (self.ino, self.d.engine.step_budget());
        self.change_map(from, |op, inode, mut at| {
            while at < to && op.touched() < budget {
                let len = match map::lookup(op, ino, inode, at, to.0 - at.0)? {
                    Mapping::Hole { len } => allocate_unwritten(op, ino, inode, at, len)?,
                    Mapping::Mapped { len, unwritten, .. } => {
                        if zero && !unwritten {
                            map::mark_unwritten(op, ino, inode, at, len)?;
                        }
                        len
                    }
                };
                at = at.plus(len);
            }
            Ok((at < to).then_some(at))
        })
    }

    /// Sets what changes besides blocks: times, and the size if the file grows.
    fn grow_to(&self, size: Option<u64>) -> Result<()> {
        self.d.engine.run(|op| {
            let mut inode = records::inode(op, self.ino)?;
            if let Some(size) = size.filter(|size| *size > inode.size()) {
                inode.set_size(size);
            }
            touch(op, &mut inode);
            records::put_inode(op, self.ino, &mut inode)
        })
    }

    fn allocate(&mut self, span: &Span, size: Option<u64>) -> Result<()> {
        let (first, end) = span.touched(self.d.block_size())?;
        self.fill(first, end, false)?;
        self.zero_before_growing(size)?;
        self.grow_to(size)
    }

    /// Zeroes the bytes behind the end in the last block before the file grows over them (F3).
    fn zero_before_growing(&mut self, size: Option<u64>) -> Result<()> {
        let (d, ino) = (self.d, self.ino);
        let old = d.engine.run(|op| Ok(Found::look(op, ino, self.s)?.0.size))?;
        let bs = d.block_size();
        if size.is_none_or(|size| size <= old) || old.is_multiple_of(bs.bytes64()) {
            return Ok(());
        }
        let end = ((old >> bs.bits()) + 1) << bs.bits();
        self.zero_part(old, end)?;
        settle_pages(d, ino, self.s)
    }

    /// Zeroes bytes of one block, the way the file's data goes.
    fn zero_part(&mut self, from: u64, to: u64) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let ino = self.ino;
        let b = self.d.block_size().file_block(from).ok_or(Error::TooLarge)?;
        if !self.found.journaled {
            return zero_bytes(self.d, ino, self.s, b, from, to);
        }
        forget_clean(self.d, ino, from);
        self.d.engine.run(|op| {
            let mut inode = records::inode(op, ino)?;
            map::put_zeros(op, ino, &inode, b, from, to)?;
            touch(op, &mut inode);
            records::put_inode(op, ino, &mut inode)?;
            records::note_change(op, ino, true);
            Ok(())
        })
    }

    /// Zeroes the bytes of blocks that a range covers only in part.
    fn zero_edges(&mut self, span: &Span) -> Result<()> {
        let bits = self.d.block_size().bits();
        let (first, end) = (u64::from(span.first.0) << bits, u64::from(span.end.0) << bits);
        if span.first > span.end {
            return self.zero_part(span.from, span.to); // Inside one block.
        }
        self.zero_part(span.from, first)?;
        self.zero_part(end, span.to)
    }

    fn punch(&mut self, span: &Span) -> Result<()> {
        self.zero_edges(span)?;
        drop_range(self.d, self.ino, self.s, span.first, span.end);
        self.remove(span.first, span.end)?;
        self.grow_to(None)
    }

    /// Unmaps a run of blocks.
    fn remove(&self, from: FileBlock, to: FileBlock) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let (ino, budget) = (self.ino, self.d.engine.step_budget());
        self.change_map(to, |op, inode, to| Ok(map::remove(op, ino, inode, from, to, budget)?.next))
    }

    fn zero_range(&mut self, span: &Span, size: Option<u64>) -> Result<()> {
        self.zero_edges(span)?;
        drop_range(self.d, self.ino, self.s, span.first, span.end);
        let (first, end) = span.touched(self.d.block_size())?;
        self.fill(span.first, span.end.max(span.first), true)?;
        self.fill(first, end, false)?;
        settle_pages(self.d, self.ino, self.s)?;
        self.zero_before_growing(size)?;
        self.grow_to(size)
    }

    fn collapse(&self, offset: u64, len: u64) -> Result<()> {
        let (from, by) = self.whole_blocks(offset, len)?;
        if offset + len >= self.found.size {
            return Err(Error::Invalid("the range reaches the end of the file: truncate it"));
        }
        let to = from.plus(by);
        lock(&self.d.files.clean).drop_from(self.ino, from);
        self.remove(from, to)?;
        let (ino, budget) = (self.ino, self.d.engine.step_budget());
        self.change_map(to, |op, inode, at| {
            let next = map::shift_left(op, ino, inode, at, by, budget)?;
            if next.is_none() {
                inode.set_size(inode.size().saturating_sub(len));
                touch(op, inode);
            }
            Ok(next)
        })
    }

    fn insert_range(&mut self, offset: u64, len: u64) -> Result<()> {
        let (from, by) = self.whole_blocks(offset, len)?;
        if offset >= self.found.size {
            return Err(Error::Invalid("the range begins behind the end of the file: truncate it"));
        }
        let size = self.found.size.checked_add(len).filter(|n| *n <= self.found.max).ok_or(Error::TooLarge)?;
        self.zero_before_growing(Some(size))?;
        let (ino, budget) = (self.ino, self.d.engine.step_budget());
        // All that can be refused for want of space comes before the first block moves, and so does the size: a shift
        // that is interrupted has lost nothing behind the end.
        self.d.engine.run_as(self.pool, |op| {
            let mut inode = records::inode(op, ino)?;
            map::split_for_shift(op, ino, &mut inode, from, by)?;
            inode.set_size(size);
            touch(op, &mut inode);
            records::put_inode(op, ino, &mut inode)
        })?;
        lock(&self.d.files.clean).drop_from(ino, from);
        // The end of the map stands for "not begun".
        self.change_map(FileBlock(u32::MAX), |op, inode, to| {
            let to = (to != FileBlock(u32::MAX)).then_some(to);
            map::shift_right(op, ino, inode, from, by, to, budget)
        })
    }

    /// A range of whole blocks: its first block, and how many blocks it has.
    fn whole_blocks(&self, offset: u64, len: u64) -> Result<(FileBlock, u32)> {
        let bs = self.d.block_size();
        if !offset.is_multiple_of(bs.bytes64()) || !len.is_multiple_of(bs.bytes64()) {
            return Err(Error::Invalid("the range is not of whole blocks"));
        }
        let by = u32::try_from(len >> bs.bits()).map_err(|_| Error::TooLarge)?;
        Ok((bs.file_block(offset).ok_or(Error::TooLarge)?, by))
    }
}

/// Refuses what the inode's flags and kind of map do not allow.
fn check_allowed(inode: &Inode, how: Falloc) -> Result<()> {
    let keeps = matches!(how, Falloc::Allocate { .. });
    check_change(inode, !keeps, false)?;
    if !inode.has(flags::EXTENTS) && how != Falloc::PunchHole {
        return Err(Error::NotSupported("fallocate on a file with an indirect map"));
    }
    Ok(())
}

/// Allocates up to `len` blocks from `at` on, unwritten; returns how many.
fn allocate_unwritten(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, at: FileBlock, len: u32) -> Result<u32> {
    let want = len.min(MAX_UNWRITTEN);
    let goal = map::goal(op, ino, inode, at, want)?;
    let request = Request { below: map::below(inode), ..Request::new(goal, want, op.pool()) };
    let run = space::alloc_with(op, &request)?;
    map::insert(op, ino, inode, at, run.start, run.len, true)?;
    Ok(run.len)
}
