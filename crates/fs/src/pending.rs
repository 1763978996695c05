//! What names and inodes ask of file data. Until file pages are there, nothing is ever pending.

use crate::attr::Attr;
use crate::error::{Error, Result};
use crate::volume::Volume;
use quire_layout::Ino;
use quire_layout::inode::Timestamp;

impl Volume {
    /// Writes back the pending data of an inode. Holds no lock and no handle on entry.
    pub(crate) fn write_back_pending(&self, _ino: Ino) -> Result<()> {
        Ok(())
    }

    /// Forgets the pages of an inode that is being freed.
    pub(crate) fn drop_pages(&self, _ino: Ino) {}

    /// Adds to an inode's attributes what is not on disk yet.
    pub(crate) fn pending(&self, _ino: Ino, _attr: &mut Attr) {}

    /// Times were set on the inode: pending ones that are older must not come after them.
    pub(crate) fn set_pending_times(&self, _ino: Ino, _mtime: Option<Timestamp>, _ctime: Timestamp) {}

    /// Sets the size of a file.
    ///
    /// # Errors
    /// Not supported.
    pub fn truncate(&self, _ino: Ino, _size: u64) -> Result<()> {
        Err(Error::NotSupported("truncate"))
    }
}
