//! What other calls ask of pending data: that it be written back first, dropped, or added to attributes.

use super::context::Data;
use super::pages::{Behind, FileState};
use super::writeback::{unreserve, write_back, write_back_exclusive};
use crate::error::Result;
use crate::inode::Attr;
use crate::records;
use quire_device::sync::lock;
use quire_layout::inode::{Time, Timestamp, mode};
use quire_layout::{FileBlock, Ino};

/// Before a rename, a link or another change of names: completes data written to the file so far, and puts its metadata
/// into a transaction no later than the caller's next one (F10).
///
/// # Errors
/// As `fsync`.
pub(crate) fn write_back_pending(d: &Data, ino: Ino) -> Result<()> {
    write_back(d, ino, true, d.log_limit())?;
    order_after_data(d, ino)
}

/// A program has closed a file that it may have written. Where the file was cut to nothing before, its new content
/// joins a transaction now and not when it is old, as with ext4 (`auto_da_alloc`), because a program that replaces a
/// file's content in this way would find it empty after a crash (F30).
pub(crate) fn closed(d: &Data, ino: Ino) {
    if d.files.take_emptied(ino) && d.engine.write_gate.check().is_ok() {
        // The file remembers the error.
        write_back(d, ino, true, d.log_limit()).ok();
    }
}

/// Orders the operations that follow after the data of this file that was written in place. This includes data that no
/// record names, because it was overwritten without pages or by an earlier batch (F10, Q5).
///
/// # Errors
/// I/O.
fn order_after_data(d: &Data, ino: Ino) -> Result<()> {
    let Some(epoch) = d.files.unflushed(ino) else { return Ok(()) };
    d.engine.run(|op| {
        op.after_data(epoch);
        Ok(())
    })
}

/// Writes back a file that the caller holds exclusively: afterwards no page is left, and the operations that follow
/// become durable no earlier than the data.
///
/// # Errors
/// The data or its metadata could not be written.
pub(super) fn settle_pages(d: &Data, ino: Ino, s: &mut FileState) -> Result<()> {
    write_back_exclusive(d, ino, s)?;
    order_after_data(d, ino)
}

/// Drops all data of an inode that is being freed. It has no users any more.
pub(crate) fn drop_pages(d: &Data, ino: Ino) {
    if let Some(file) = d.files.find(ino) {
        let mut s = file.exclusive();
        drop_range(d, ino, &mut s, FileBlock(0), FileBlock(u32::MAX));
        (s.size, s.times) = (None, None);
        d.files.unqueue(&mut s);
    }
    lock(&d.files.clean).drop_from(ino, FileBlock(0));
    d.files.forget(ino);
}

/// Drops the pages of a range, dirty or clean, and their reservations. No batch is under way.
pub(super) fn drop_range(d: &Data, ino: Ino, s: &mut FileState, from: FileBlock, to: FileBlock) {
    let (pages, reserved) = s.drop_range(from, to);
    d.files.count_pages(-pages.cast_signed());
    unreserve(d, reserved);
    lock(&d.files.clean).drop_range(ino, from, to);
}

/// Takes the pages from `from` on out of a file whose size is being changed. The caller holds the file exclusively, and
/// ends this with [`put_back`] or [`drop_behind`].
pub(super) fn take_behind(d: &Data, ino: Ino, s: &mut FileState, from: FileBlock) -> Behind {
    lock(&d.files.clean).drop_from(ino, from);
    s.take_out(from)
}

/// The size was not changed: the pages are the file's as before.
pub(super) fn put_back(d: &Data, ino: Ino, s: &mut FileState, behind: Behind) {
    unreserve(d, s.put_back(behind));
    if s.has_dirty_pages() || s.size.is_some() {
        d.files.queue(ino, s, d.engine.clock.monotonic());
    }
}

/// The size was changed: the pages go, and so do their reservations.
pub(super) fn drop_behind(d: &Data, behind: &Behind) {
    d.files.count_pages(-behind.pages().cast_signed());
    unreserve(d, behind.reserved());
}

/// Attributes on disk, read by an operation, and whether the file may have pending data or times.
#[derive(Clone, Copy)]
pub(crate) struct DiskAttr {
    pub attr: Attr,
    pending: bool,
}

impl DiskAttr {
    /// *Relies on*: the operation that has read `attr` is still under way. A batch records nothing meanwhile, so a file
    /// that is not in use now has nothing pending (F4).
    pub(crate) fn new(d: &Data, attr: Attr) -> Self {
        let pending = attr.mode & mode::FMT == mode::REG && d.files.has(attr.ino);
        DiskAttr { attr, pending }
    }

    /// The attributes with pending size, times and blocks.
    pub(crate) fn with_pending(self, d: &Data) -> Attr {
        let mut attr = self.attr;
        if self.pending {
            add_pending(d, &mut attr);
        }
        attr
    }

    /// As [`DiskAttr::with_pending`], after an operation that has set times; `mtime`: it has set the modification time.
    pub(crate) fn with_pending_after_set_times(self, d: &Data, mtime: bool) -> Attr {
        if self.pending {
            set_pending_times(d, self.attr.ino, mtime.then_some(self.attr.mtime), self.attr.ctime);
        }
        self.with_pending(d)
    }
}

/// Adds what is not on disk yet. A batch may have ended since the attributes were read, so the fields that batches
/// write are read again, under the file's lock.
fn add_pending(d: &Data, attr: &mut Attr) {
    let ino = attr.ino;
    let file = d.files.find(ino);
    let s = file.as_ref().map(|f| f.lock());
    let times = s.as_ref().and_then(|s| s.times);
    let now = d.engine.run(|op| {
        let mut inode = records::inode(op, ino)?;
        // As the inode will tell them: it may hold whole seconds alone.
        times.into_iter().for_each(|times| times.put(&mut inode));
        Ok(Attr::of(op.sb(), ino, &inode))
    });
    let Ok(now) = now else { return };
    (attr.size, attr.sectors, attr.mtime, attr.ctime) = (now.size, now.sectors, now.mtime, now.ctime);
    let Some(s) = s else { return };
    attr.size = s.size.unwrap_or(attr.size);
    attr.sectors += s.reserved() * (u64::from(attr.block_size) / 512);
}

/// An operation has set times of an inode. A pending modification time is void, and if a batch under way has recorded
/// an older one, the one that was set comes back.
fn set_pending_times(d: &Data, ino: Ino, mtime: Option<Timestamp>, ctime: Timestamp) {
    let (Some(file), Some(mtime)) = (d.files.find(ino), mtime) else { return };
    let mut s = file.exclusive();
    s.times = None;
    if !s.has_dirty_pages() && s.size.is_none() {
        d.files.unqueue(&mut s);
    }
    let again = d.engine.run(|op| {
        let mut inode = records::inode(op, ino)?;
        if inode.time(Time::Modify) == Some(mtime) {
            return Ok(());
        }
        inode.set_time(Time::Modify, mtime);
        inode.set_time(Time::Change, ctime);
        records::put_inode(op, ino, &mut inode)
    });
    // The caller's operation has just succeeded on the same block.
    again.ok();
}
