//! Space given, taken and moved: the modes of fallocate(2).
//!
//! Each mode writes back what is pending, holds the file exclusively (F2), zeroes the bytes of blocks that it covers in part,
//! and works on whole blocks in as many operations as it takes. After a crash in the middle the file is legal, and
//! what lies outside of the range is untouched (collapse and insert: or moved in part, as with the kernel).

use super::state::FileState;
use super::truncate::{Found, touch};
use super::write::check_change;
use crate::alloc::{self, Request};
use crate::error::{Error, Result};
use crate::map::{self, Mapping};
use crate::op::Op;
use crate::volume::Volume;
use quire_device::Mutant;
use quire_device::sync::lock;
use quire_layout::extent::MAX_UNWRITTEN;
use quire_layout::inode::{Inode, Time, flags};
use quire_layout::{FileBlock, Ino};

/// What fallocate does with a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Falloc {
    /// Gives every block of the range space; the file grows to hold it unless its size is kept.
    Allocate { keep_size: bool },
    /// Takes the space away: zeros are read. The size stays.
    PunchHole,
    /// Zeros are read, and every block has space.
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
    /// Blocks that the range covers in whole: `first` to before `end`.
    first: FileBlock,
    end: FileBlock,
}

impl Volume {
    /// Allocates, frees, zeroes, removes or inserts a range of a file.
    ///
    /// # Errors
    /// Invalid range; too large; not supported for the file's kind of map; no space: then what could be had stays;
    /// immutable or append-only; I/O; read-only.
    pub fn fallocate(&self, ino: Ino, how: Falloc, offset: u64, len: u64) -> Result<()> {
        self.may_write()?;
        if len == 0 {
            return Err(Error::Invalid("length 0"));
        }
        let end = offset.checked_add(len).ok_or(Error::TooLarge)?;
        let file = self.inner.files.get(ino);
        let mut s = file.exclusive();
        let found = self.run(|op| {
            let (found, inode) = Found::look(op, ino, &s)?;
            check_allowed(&inode, how)?;
            Ok(found)
        })?;
        if end > found.max {
            return Err(Error::TooLarge);
        }
        self.settle_pages(ino, &mut s)?;
        let span = self.span(offset, end)?;
        let s = &mut s;
        let done = match how {
            Falloc::Allocate { keep_size } => self.allocate(ino, s, &span, if keep_size { None } else { Some(end) }),
            Falloc::PunchHole => self.punch(ino, s, &found, &span),
            Falloc::ZeroRange { keep_size } => {
                self.zero_range(ino, s, &found, &span, if keep_size { None } else { Some(end) })
            }
            Falloc::Collapse => self.collapse(ino, &found, offset, len),
            Falloc::Insert => self.insert_range(ino, s, &found, offset, len),
        };
        // Old mappings come back with a crash: what would be written in place under the new ones would then lie elsewhere in the
        // file, or be torn in blocks that held data (F20).
        if matches!(how, Falloc::Collapse | Falloc::Insert | Falloc::ZeroRange { .. }) {
            self.commit_changes(ino)?;
        }
        done
    }

    /// Makes what the inode's mappings have become durable.
    fn commit_changes(&self, ino: Ino) -> Result<()> {
        let changed = lock(&self.inner.state).changes.last(ino, false);
        let Some(tid) = changed.filter(|_| !Mutant::RemapNotDurable.is_on()) else { return Ok(()) };
        self.inner.journal.commit(tid).map_err(Error::from).inspect_err(|e| self.note_error(e))
    }

    fn span(&self, from: u64, to: u64) -> Result<Span> {
        let bs = self.inner.sb.block_size();
        let block = |n: u64| u32::try_from(n).map(FileBlock).map_err(|_| Error::TooLarge);
        Ok(Span { from, to, first: block(bs.blocks_for(from))?, end: block(to >> bs.bits())? })
    }

    /// Runs operations from block `at` on until one says that it has reached the end. Each says where to go on.
    pub(super) fn in_steps(
        &self,
        at: FileBlock,
        mut step: impl FnMut(&mut Op<'_>, FileBlock) -> Result<Option<FileBlock>>,
    ) -> Result<()> {
        let mut next = Some(at);
        while let Some(at) = next {
            next = self.run(|op| step(op, at))?;
        }
        Ok(())
    }

    /// Gives space to every hole of a run of blocks; what is `written` there becomes unwritten if so wanted.
    fn fill(&self, ino: Ino, from: FileBlock, to: FileBlock, zero: bool) -> Result<()> {
        let budget = self.budget();
        self.in_steps(from, |op, mut at| {
            let mut inode = op.inode(ino)?;
            while at < to && op.touched() < budget {
                let len = match map::lookup(op, ino, &inode, at, to.0 - at.0)? {
                    Mapping::Hole { len } => allocate_unwritten(op, ino, &mut inode, at, len)?,
                    Mapping::Mapped { len, unwritten, .. } => {
                        if zero && !unwritten {
                            map::mark_unwritten(op, ino, &mut inode, at, len)?;
                        }
                        len
                    }
                };
                at = at.plus(len);
            }
            op.put_inode(ino, &mut inode)?;
            op.note_change(ino, true);
            Ok((at < to).then_some(at))
        })
    }

    /// Sets what changes besides blocks: times, and the size if the file grows.
    fn grow_to(&self, ino: Ino, size: Option<u64>, content: bool) -> Result<()> {
        self.run(|op| {
            let mut inode = op.inode(ino)?;
            let grown = size.filter(|size| *size > inode.size());
            if let Some(size) = grown {
                inode.set_size(size);
            }
            if content || grown.is_some() {
                touch(op, &mut inode);
            }
            inode.set_time(Time::Change, op.now());
            op.put_inode(ino, &mut inode)
        })
    }

    fn allocate(&self, ino: Ino, s: &mut FileState, span: &Span, size: Option<u64>) -> Result<()> {
        let bs = self.inner.sb.block_size();
        let block = |n: u64| u32::try_from(n).map(FileBlock).map_err(|_| Error::TooLarge);
        self.fill(ino, block(span.from >> bs.bits())?, block(bs.blocks_for(span.to))?, false)?;
        self.zero_before_growing(ino, s, size)?;
        self.grow_to(ino, size, false)
    }

    /// What lies behind the end in the last block becomes zero before the file grows over it (F3).
    fn zero_before_growing(&self, ino: Ino, s: &mut FileState, size: Option<u64>) -> Result<()> {
        let found = self.run(|op| Ok(Found::look(op, ino, s)?.0))?;
        let (bs, old) = (self.inner.sb.block_size(), found.size);
        if size.is_none_or(|size| size <= old) || old.is_multiple_of(bs.bytes64()) {
            return Ok(());
        }
        let end = ((old >> bs.bits()) + 1) << bs.bits();
        self.zero_part(ino, s, &found, old, end)?;
        self.settle_pages(ino, s)
    }

    /// Zeroes bytes of one block, the way the file's data goes.
    fn zero_part(&self, ino: Ino, s: &mut FileState, found: &Found, from: u64, to: u64) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let b = self.inner.sb.block_size().file_block(from).ok_or(Error::TooLarge)?;
        if !found.journaled {
            return self.zero_bytes(ino, s, b, from, to);
        }
        self.run(|op| {
            let mut inode = op.inode(ino)?;
            super::journaled::put_zeros(op, ino, &inode, b, from, to)?;
            touch(op, &mut inode);
            op.put_inode(ino, &mut inode)?;
            op.note_change(ino, true);
            Ok(())
        })
    }

    /// Zeroes what a range covers of blocks that it does not cover in whole.
    fn zero_edges(&self, ino: Ino, s: &mut FileState, found: &Found, span: &Span) -> Result<()> {
        let bits = self.inner.sb.block_size().bits();
        let (first, end) = (u64::from(span.first.0) << bits, u64::from(span.end.0) << bits);
        if span.first > span.end {
            return self.zero_part(ino, s, found, span.from, span.to); // Inside one block.
        }
        self.zero_part(ino, s, found, span.from, first)?;
        self.zero_part(ino, s, found, end, span.to)
    }

    fn punch(&self, ino: Ino, s: &mut FileState, found: &Found, span: &Span) -> Result<()> {
        self.zero_edges(ino, s, found, span)?;
        self.drop_range(ino, s, span.first, span.end);
        self.remove(ino, span.first, span.end)?;
        self.grow_to(ino, None, true)
    }

    /// Unmaps a run of blocks.
    fn remove(&self, ino: Ino, from: FileBlock, to: FileBlock) -> Result<()> {
        if from >= to {
            return Ok(());
        }
        let budget = self.budget();
        self.in_steps(to, |op, to| {
            let mut inode = op.inode(ino)?;
            let removed = map::remove(op, ino, &mut inode, from, to, budget)?;
            op.put_inode(ino, &mut inode)?;
            op.note_change(ino, true);
            Ok(removed.next)
        })
    }

    fn zero_range(&self, ino: Ino, s: &mut FileState, found: &Found, span: &Span, size: Option<u64>) -> Result<()> {
        self.zero_edges(ino, s, found, span)?;
        self.drop_range(ino, s, span.first, span.end);
        let bs = self.inner.sb.block_size();
        let block = |n: u64| u32::try_from(n).map(FileBlock).map_err(|_| Error::TooLarge);
        self.fill(ino, span.first, span.end.max(span.first), true)?;
        self.fill(ino, block(span.from >> bs.bits())?, block(bs.blocks_for(span.to))?, false)?;
        self.settle_pages(ino, s)?;
        self.zero_before_growing(ino, s, size)?;
        self.grow_to(ino, size, true)
    }

    fn collapse(&self, ino: Ino, found: &Found, offset: u64, len: u64) -> Result<()> {
        let (from, by) = self.whole_blocks(offset, len)?;
        if offset + len >= found.size {
            return Err(Error::Invalid("the range reaches the end of the file: truncate it"));
        }
        let to = from.plus(by);
        lock(&self.inner.files.clean).drop_from(ino, from);
        self.remove(ino, from, to)?;
        let budget = self.budget();
        self.in_steps(to, |op, at| {
            let mut inode = op.inode(ino)?;
            let next = map::shift_left(op, ino, &mut inode, at, by, budget)?;
            if next.is_none() {
                inode.set_size(inode.size().saturating_sub(len));
                touch(op, &mut inode);
            }
            op.put_inode(ino, &mut inode)?;
            op.note_change(ino, true);
            Ok(next)
        })
    }

    fn insert_range(&self, ino: Ino, s: &mut FileState, found: &Found, offset: u64, len: u64) -> Result<()> {
        let (from, by) = self.whole_blocks(offset, len)?;
        if offset >= found.size {
            return Err(Error::Invalid("the range begins behind the end of the file: truncate it"));
        }
        let size = found.size.checked_add(len).filter(|n| *n <= found.max).ok_or(Error::TooLarge)?;
        self.zero_before_growing(ino, s, Some(size))?;
        self.grow_to(ino, Some(size), true)?;
        lock(&self.inner.files.clean).drop_from(ino, from);
        let budget = self.budget();
        let mut to = None;
        loop {
            to = self.run(|op| {
                let mut inode = op.inode(ino)?;
                let next = map::shift_right(op, ino, &mut inode, from, by, to, budget)?;
                op.put_inode(ino, &mut inode)?;
                op.note_change(ino, true);
                Ok(next)
            })?;
            if to.is_none() {
                return Ok(());
            }
        }
    }

    /// A range of whole blocks: where it starts, and how many they are.
    fn whole_blocks(&self, offset: u64, len: u64) -> Result<(FileBlock, u32)> {
        let bs = self.inner.sb.block_size();
        if !offset.is_multiple_of(bs.bytes64()) || !len.is_multiple_of(bs.bytes64()) {
            return Err(Error::Invalid("the range is not of whole blocks"));
        }
        let by = u32::try_from(len >> bs.bits()).map_err(|_| Error::TooLarge)?;
        Ok((bs.file_block(offset).ok_or(Error::TooLarge)?, by))
    }
}

/// What the inode's flags and kind of map allow.
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
    let run = alloc::alloc_with(op, &request)?;
    map::insert(op, ino, inode, at, run.start, run.len, true)?;
    Ok(run.len)
}
