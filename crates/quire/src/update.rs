//! Atomic updates of one file.

use crate::error::Result;
use crate::shared::InodeRef;
use quire_fs::{FileUpdate, Privileges};
use std::sync::Arc;

/// An atomic update of one file: what is written through it is seen by no other handle before [`Update::commit`], and a
/// crash leaves all of it or nothing. Dropping it undoes it.
///
/// It is a set of bytes, not a snapshot: what others do with the file meanwhile happens at once, and the commit writes
/// over it. It holds at most half a transaction of the journal.
///
/// ```
/// # use quire::CreateOptions;
/// # let fs = CreateOptions::new().size(16 << 20).in_memory()?;
/// fs.write("/pages", "old old")?;
/// let file = fs.open_file("/pages")?;
/// let mut update = file.begin_update()?;
/// update.write_at(b"new", 0)?;
/// update.write_at(b"new", 4)?;
/// assert_eq!(fs.read("/pages")?, b"old old");
/// update.commit()?;
/// file.sync_data()?;
/// assert_eq!(fs.read("/pages")?, b"new new");
/// # Ok::<(), quire::Error>(())
/// ```
pub struct Update {
    // First, because it must end before the inode is given up.
    update: FileUpdate,
    inode: Arc<InodeRef>,
}

impl Update {
    pub(crate) fn begin(inode: Arc<InodeRef>) -> Result<Self> {
        let update = FileUpdate::begin(&inode.call()?.volume, inode.ino)?;
        Ok(Update { update, inode })
    }

    /// Writes all bytes at `offset`, for this update alone.
    ///
    /// # Errors
    /// File too large: for a file, or more than the update can hold. Stale.
    pub fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        let _call = self.inode.call()?;
        Ok(self.update.write(offset, bytes, Privileges::Keep)?)
    }

    /// Reads from the file as it would be after the commit; less than `buf` holds only at its end.
    ///
    /// # Errors
    /// Corrupt; I/O; stale.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let _call = self.inode.call()?;
        Ok(self.update.read(offset, buf)?)
    }

    /// Makes the update the file's, as a whole. [`File::sync_data`](crate::File::sync_data) makes it durable.
    ///
    /// # Errors
    /// No space; file too large; not permitted; read-only; corrupt; I/O; stale. The file is then as it was.
    pub fn commit(self) -> Result<()> {
        let Update { update, inode } = self;
        let _call = inode.call()?;
        Ok(update.commit()?)
    }
}
