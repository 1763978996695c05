//! Changing a file's size.
//!
//! Guarantees (docs/invariants.md):
//! - F3: what a file grows over reads as zeros;
//! - F10: the data written before is complete, and its metadata in a transaction no later than the new size's;
//! - N1: a truncate of several operations is recorded as an orphan from its first to its last.

use super::journaled::zero_tail;
use super::read::check_file;
use super::state::FileState;
use super::write::{Base, base_of, check_change, is_journaled_file, max_size};
use crate::error::{Error, Result};
use crate::map;
use crate::namei::live;
use crate::op::Op;
use crate::orphan;
use crate::volume::Volume;
use quire_device::sync::lock;
use quire_layout::inode::{Inode, Time};
use quire_layout::{FileBlock, Ino};

/// What a change of the content finds.
pub(super) struct Found {
    /// Size in bytes, pending or on disk.
    pub size: u64,
    /// Size in bytes on disk.
    pub disk_size: u64,
    /// Bytes of a block are zeroed as part of an operation, not in a page.
    pub journaled: bool,
    /// Largest size in bytes.
    pub max: u64,
}

impl Found {
    pub(super) fn look(op: &mut Op<'_>, ino: Ino, s: &FileState) -> Result<(Found, Inode)> {
        let inode = live(op, ino)?;
        check_file(&inode)?;
        let found = Found {
            size: s.size.unwrap_or(inode.size()),
            disk_size: inode.size(),
            journaled: is_journaled_file(op, ino, &inode)? || op.vol.zeroes_in_operations(),
            max: max_size(op, &inode),
        };
        Ok((found, inode))
    }
}

impl Volume {
    /// Metadata blocks that one step of a long change touches.
    pub(crate) fn budget(&self) -> usize {
        256.min(self.inner.journal.limit() / 4).max(1)
    }

    /// Sets the size of a file. What it grows over reads as zeros, what it loses is freed.
    ///
    /// # Errors
    /// Too large; immutable or append-only; not a regular file; I/O; read-only.
    pub fn truncate(&self, ino: Ino, size: u64) -> Result<()> {
        self.may_write()?;
        let file = self.inner.files.get(ino);
        let mut s = file.exclusive();
        let found = self.run(|op| {
            let (found, inode) = Found::look(op, ino, &s)?;
            check_change(&inode, true, false)?;
            Ok(found)
        })?;
        if size > found.max {
            return Err(Error::TooLarge);
        }
        if size < found.size { self.shrink(ino, &mut s, &found, size) } else { self.grow(ino, &mut s, &found, size) }
    }

    fn grow(&self, ino: Ino, s: &mut FileState, found: &Found, size: u64) -> Result<()> {
        if !found.journaled {
            self.zero_behind(ino, s, found.size)?;
        }
        self.settle_pages(ino, s)?;
        self.run(|op| {
            let mut inode = op.inode(ino)?;
            if found.journaled {
                zero_tail(op, ino, &inode, size)?;
            }
            inode.set_size(size);
            touch(op, &mut inode);
            op.put_inode(ino, &mut inode)
        })?;
        // The size on disk is the size; one that a shrink had left pending is void.
        s.size = None;
        Ok(())
    }

    fn shrink(&self, ino: Ino, s: &mut FileState, found: &Found, size: u64) -> Result<()> {
        let bs = self.inner.sb.block_size();
        let from = FileBlock(u32::try_from(bs.blocks_for(size)).map_err(|_| Error::TooLarge)?);
        if self.inner.whole_requests() && s.has_pages_before(from) {
            // What is cut off may belong to a request whose other part stays (F16).
            self.settle_pages(ino, s)?;
        }
        self.drop_range(ino, s, from, FileBlock(u32::MAX));
        s.size = (size > found.disk_size).then_some(size);
        self.settle_pages(ino, s)?;
        assert_eq!(s.size, None, "settled");
        let budget = self.budget();
        let whole = self.run(|op| {
            let mut inode = op.inode(ino)?;
            if found.journaled {
                clear_tail(op, ino, &inode, size)?;
            }
            inode.set_size(size);
            touch(op, &mut inode);
            let whole = map::remove_all(op, ino, &mut inode, from, budget)?.next.is_none();
            if !whole {
                orphan::add(op, ino, &mut inode)?;
            }
            op.put_inode(ino, &mut inode)?;
            Ok(whole)
        })?;
        s.size = None;
        if !found.journaled {
            self.zero_behind(ino, s, size)?;
        }
        if whole { Ok(()) } else { self.end_shrink(ino, from) }
    }

    /// Unmaps the rest of what lies behind a file's new end, operation by operation.
    fn end_shrink(&self, ino: Ino, from: FileBlock) -> Result<()> {
        let budget = self.budget();
        self.in_steps(from, |op, from| {
            let mut inode = op.inode(ino)?;
            let whole = map::remove_all(op, ino, &mut inode, from, budget)?.next.is_none();
            // A file without links stays an orphan.
            if whole && inode.links() > 0 {
                orphan::remove(op, ino, &mut inode)?;
            }
            op.put_inode(ino, &mut inode)?;
            Ok((!whole).then_some(from))
        })
    }

    /// Makes what lies behind byte `size` in its block zero, in a page, if the block holds data.
    fn zero_behind(&self, ino: Ino, s: &mut FileState, size: u64) -> Result<()> {
        let bs = self.inner.sb.block_size();
        let Some(b) = bs.file_block(size).filter(|_| !size.is_multiple_of(bs.bytes64())) else { return Ok(()) };
        let end = (u64::from(b.0) + 1) << bs.bits();
        self.zero_bytes(ino, s, b, size, end)
    }

    /// Zeroes bytes of one block of a file whose data is not journaled: in its page, if the block holds data.
    pub(super) fn zero_bytes(&self, ino: Ino, s: &mut FileState, b: FileBlock, from: u64, to: u64) -> Result<()> {
        let bs = self.inner.sb.block_size();
        let start = u64::from(b.0) << bs.bits();
        let index = |at: u64| usize::try_from(at - start).expect("within a block");
        let range = index(from)..index(to);
        if s.page(b).is_none() {
            let base = self.run(|op| {
                let inode = op.inode(ino)?;
                let run = map::lookup(op, ino, &inode, b, 1)?;
                Ok(base_of(op, &run, 0))
            })?;
            if let Base::Zeros = base {
                return Ok(());
            }
            let (image, _) = self.load_base(ino, b, &base, u64::MAX)?;
            if image[range.clone()].iter().all(|b| *b == 0) {
                lock(&self.inner.files.clean).insert(ino, b, image);
                return Ok(());
            }
            s.add_page(b, image, false);
            self.inner.files.count_pages(1);
        }
        let image = s.page_mut(b).expect("just looked at");
        quire_device::sync::Arc::make_mut(image)[range].fill(0);
        self.inner.files.queue(ino, s, self.inner.clock.monotonic());
        Ok(())
    }
}

/// Zeroes what lies behind byte `size` in its block, as part of the operation, if the block holds data.
fn clear_tail(op: &mut Op<'_>, ino: Ino, inode: &Inode, size: u64) -> Result<()> {
    let bs = op.sb().block_size();
    let Some(b) = bs.file_block(size).filter(|_| !size.is_multiple_of(bs.bytes64())) else { return Ok(()) };
    let end = (u64::from(b.0) + 1) << bs.bits();
    super::journaled::put_zeros(op, ino, inode, b, size, end)
}

/// The content has changed now.
pub(super) fn touch(op: &Op<'_>, inode: &mut Inode) {
    inode.set_time(Time::Modify, op.now());
    inode.set_time(Time::Change, op.now());
}
