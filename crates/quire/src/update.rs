//! Atomic updates of one file.

use crate::error::Result;
use crate::shared::InodeRef;
use quire_fs::{FileUpdate, Privileges};
use std::sync::Arc;

const UNDER_WAY: &str = "an update is under way until its commit or drop";

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
    /// `None`: it has ended.
    update: Option<FileUpdate>,
    inode: Arc<InodeRef>,
}

impl Update {
    pub(crate) fn begin(inode: Arc<InodeRef>) -> Result<Self> {
        let update = FileUpdate::begin(&inode.call()?.volume, inode.ino)?;
        Ok(Update { update: Some(update), inode })
    }

    /// Writes all bytes at `offset`, for this update alone.
    ///
    /// # Errors
    /// File too large: for a file, or more than the update can hold. Stale.
    pub fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<()> {
        let _call = self.inode.call()?;
        let update = self.update.as_mut().expect(UNDER_WAY);
        Ok(update.write(offset, bytes, Privileges::Keep)?)
    }

    /// Reads from the file as it would be after the commit; less than `buf` holds only at its end.
    ///
    /// # Errors
    /// Corrupt; I/O; stale.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let _call = self.inode.call()?;
        Ok(self.update.as_ref().expect(UNDER_WAY).read(offset, buf)?)
    }

    /// Makes the update the file's, as a whole. [`File::sync_data`](crate::File::sync_data) makes it durable.
    ///
    /// # Errors
    /// No space; file too large; not permitted; read-only; corrupt; I/O; stale. The file is then as it was.
    pub fn commit(mut self) -> Result<()> {
        let _call = self.inode.call()?;
        Ok(self.update.take().expect(UNDER_WAY).commit()?)
    }
}

impl Drop for Update {
    /// It ends before the inode is given up.
    fn drop(&mut self) {
        let Some(update) = self.update.take() else { return };
        if self.inode.shared.check_process().is_err() {
            // M3. To drop it would wait for a lock that another thread of the parent may have had.
            std::mem::forget(update);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::create::CreateOptions;
    use crate::error::ErrorKind;
    use crate::process::tests::as_forked_child;

    /// The engine ends an update under its locks, and forgets it.
    fn check_inherited_update(end: fn(Update) -> Result<()>) -> Result<()> {
        let fs = CreateOptions::new().size(16 << 20).in_memory()?;
        fs.write("/f", "old")?;
        let file = fs.open_file("/f")?;
        let mut update = file.begin_update()?;
        update.write_at(b"new", 0)?;
        let ended = as_forked_child(|| end(update));
        assert_eq!(file.begin_update().map(drop).unwrap_err().kind(), ErrorKind::Busy, "the child has ended it");
        assert_eq!(fs.read("/f")?, b"old");
        ended
    }

    #[test]
    fn update_that_a_forked_child_drops_is_left_alone() {
        check_inherited_update(|update| {
            drop(update);
            Ok(())
        })
        .unwrap();
    }

    #[test]
    fn update_that_a_forked_child_commits_is_refused_and_left_alone() {
        assert_eq!(check_inherited_update(Update::commit).unwrap_err().kind(), ErrorKind::Stale);
    }

    #[test]
    fn update_that_is_dropped_makes_room_for_the_next() {
        let fs = CreateOptions::new().size(16 << 20).in_memory().unwrap();
        let file = fs.create_file("/f").unwrap();
        drop(file.begin_update().unwrap());
        file.begin_update().unwrap().commit().unwrap();
        file.begin_update().unwrap();
    }
}
