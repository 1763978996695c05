//! What names and inodes ask of file data: what is pending, that it be settled, that it be forgotten.

use super::state::FileState;
use crate::attr::Attr;
use crate::error::Result;
use crate::volume::Volume;
use quire_device::sync::lock;
use quire_layout::inode::{Time, Timestamp, mode};
use quire_layout::{FileBlock, Ino};

impl Volume {
    /// Before a rename, a link or another change of names: data written to the file so far is complete, and its metadata
    /// is in a transaction no later than the caller's (F10).
    ///
    /// # Errors
    /// As [`Volume::fsync`].
    pub(crate) fn write_back_pending(&self, ino: Ino) -> Result<()> {
        self.write_back(ino, true, self.inner.ride_blocks())?;
        self.hold_back(ino)
    }

    /// The operations that follow do not become durable before what was written in place of this file: also what no record names, since
    /// it was overwritten without pages or by an earlier round (F10, Q5).
    pub(super) fn hold_back(&self, ino: Ino) -> Result<()> {
        let Some(stamp) = self.inner.files.unflushed(ino) else { return Ok(()) };
        self.run(|op| {
            op.after_data(stamp);
            Ok(())
        })
    }

    /// Forgets everything of an inode that is being freed. It has no users any more.
    pub(crate) fn drop_pages(&self, ino: Ino) {
        let files = &self.inner.files;
        if let Some(file) = files.find(ino) {
            let mut s = file.exclusive();
            self.drop_range(ino, &mut s, FileBlock(0), FileBlock(u32::MAX));
            (s.size, s.times) = (None, None);
            files.unqueue(&mut s);
        }
        lock(&files.clean).drop_from(ino, FileBlock(0));
        files.forget(ino);
    }

    /// Drops the pages of a range, dirty or clean, and what was reserved for them. No round is under way.
    pub(super) fn drop_range(&self, ino: Ino, s: &mut FileState, from: FileBlock, to: FileBlock) {
        let (pages, reserved) = s.drop_range(from, to);
        self.inner.files.count_pages(-pages.cast_signed());
        self.unreserve(reserved);
        lock(&self.inner.files.clean).drop_range(ino, from, to);
    }

    /// Adds to a file's attributes what is not on disk yet. They may have been read before a round ended that is over
    /// now: what rounds write is read again, under the file's lock.
    pub(crate) fn pending(&self, ino: Ino, attr: &mut Attr) {
        if attr.mode & mode::FMT != mode::REG {
            return;
        }
        let file = self.inner.files.find(ino);
        let s = file.as_ref().map(|f| f.lock());
        let Ok(now) = self.run(|op| Ok(Attr::of(op.sb(), ino, &op.inode(ino)?))) else { return };
        (attr.size, attr.sectors, attr.mtime, attr.ctime) = (now.size, now.sectors, now.mtime, now.ctime);
        let Some(s) = s else { return };
        attr.size = s.size.unwrap_or(attr.size);
        if let Some(times) = s.times {
            attr.mtime = times.mtime;
            attr.ctime = attr.ctime.max(times.ctime);
        }
        attr.sectors += s.reserved() * (u64::from(attr.block_size) / 512);
    }

    /// An operation has set times of an inode: a modification time that was pending is void, and if a round that was
    /// under way has brought an older one, the one that was set comes back.
    pub(crate) fn set_pending_times(&self, ino: Ino, mtime: Option<Timestamp>, ctime: Timestamp) {
        let (Some(file), Some(mtime)) = (self.inner.files.find(ino), mtime) else { return };
        // Mostly it is the kernel that tells of a stream's times, again and again.
        let mut s = file.exclusive_patiently();
        s.times = None;
        if !s.has_dirty_pages() && s.size.is_none() {
            self.inner.files.unqueue(&mut s);
        }
        let again = self.run(|op| {
            let mut inode = op.inode(ino)?;
            if inode.time(Time::Modify) == Some(mtime) {
                return Ok(());
            }
            inode.set_time(Time::Modify, mtime);
            inode.set_time(Time::Change, ctime);
            op.put_inode(ino, &mut inode)
        });
        // The caller's operation has just succeeded on the same block.
        again.ok();
    }
}
