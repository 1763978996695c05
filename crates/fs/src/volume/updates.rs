//! Atomic updates of single files, for callers.

use super::handle::Volume;
use crate::data::{self, Staged, WriteFlags};
use crate::error::Result;
use crate::inode::Privileges;
use quire_device::Mutant;
use quire_layout::Ino;

/// An atomic update of one file: what is written through it is seen by no other caller before [`FileUpdate::commit`],
/// and becomes the file's as a whole, or not at all (F22). Dropping it undoes it. A file has one at a time (F23).
///
/// It is a set of bytes, not a snapshot: what others do with the file meanwhile happens at once. The caller keeps the
/// inode in use.
pub struct FileUpdate {
    volume: Volume,
    ino: Ino,
    staged: Staged,
}

impl FileUpdate {
    /// True if files of this volume can be updated so: it has a journal.
    #[must_use]
    pub fn is_supported(volume: &Volume) -> bool {
        data::can_update(&volume.inner.data)
    }

    /// Begins an update of a file. Blocks are taken on the volume handle's account.
    ///
    /// # Errors
    /// Busy: the file has one. Not supported: there is no journal. Not a regular file; not permitted (immutable);
    /// read-only; corrupt; I/O.
    pub fn begin(volume: &Volume, ino: Ino) -> Result<Self> {
        let _pass = volume.inner.enter()?;
        let staged = data::begin_update(&volume.inner.data, ino)?;
        Ok(FileUpdate { volume: volume.clone(), ino, staged })
    }

    #[must_use]
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Writes all of `bytes` at `offset`, for this update alone. `privileges`: what the write takes from the file's.
    ///
    /// # Errors
    /// [`Error::UpdateFull`](crate::Error::UpdateFull): one transaction does not hold so much. Too large.
    pub fn write(&mut self, offset: u64, bytes: &[u8], privileges: Privileges) -> Result<()> {
        let data = &self.volume.inner.data;
        data::stage(data, &mut self.staged, offset, bytes)?;
        self.staged.privileges = self.staged.privileges.max(privileges);
        if Mutant::UpdateVisible.is_on() {
            data::write(data, self.volume.pool, self.ino, offset, bytes, WriteFlags::default())?;
        }
        Ok(())
    }

    /// Reads from the file as it would be after the commit.
    ///
    /// # Errors
    /// As [`Volume::read`].
    pub fn read(&self, offset: u64, buf: &mut [u8]) -> Result<usize> {
        let n = super::files::read_to_change(&self.volume, self.ino, offset, buf)?;
        let staged = usize::try_from(self.staged.end().saturating_sub(offset)).unwrap_or(usize::MAX).min(buf.len());
        let len = n.max(staged);
        buf[n..len].fill(0);
        self.staged.cover(offset, &mut buf[..len]);
        Ok(len)
    }

    /// Makes the update the file's, in one transaction, which an fsync of the file makes durable. Either way the update
    /// is over.
    ///
    /// # Errors
    /// No space; [`Error::UpdateFull`](crate::Error::UpdateFull); too large; not permitted; read-only; corrupt; I/O.
    /// The file is then as it was.
    pub fn commit(self) -> Result<()> {
        let _pass = self.volume.inner.enter()?;
        data::commit_update(&self.volume.inner.data, self.volume.pool, self.ino, &self.staged)
    }
}

impl Drop for FileUpdate {
    fn drop(&mut self) {
        data::end_update(&self.volume.inner.data, self.ino, &self.staged);
    }
}
