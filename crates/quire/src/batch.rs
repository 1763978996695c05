//! Batches: changes that happen together or not at all.
//!
//! *Guarantees* B1: after a crash at any moment the image has all changes of a batch, or none. The calls of a batch
//! join one transaction of the journal, which stays open until [`Batch::commit`]; what they write goes either through
//! that transaction or into blocks that nothing durable refers to. A batch that one transaction cannot hold is refused,
//! and rolled back like one that was dropped: everything that is not durable is given up, and the image is opened
//! again, as after a crash (B2). A child that was forked during a batch can neither commit it nor roll it back (M3).
//!
//! *Relies on*: the transaction is not closed while it is held (`Volume::begin_batch`); blocks that a batch frees are
//! not used again before it is durable (A2); overwritten data goes through the journal (`Route::Overwrite`, F16).

use crate::error::{Error, ErrorKind, Result};
use crate::fs::FileSystem;
use quire_fs::{FileUpdate, Phase, Volume, VolumeBatch};
use std::ops::Deref;

self_cell::self_cell!(
    struct Held {
        owner: Volume,
        #[covariant]
        dependent: VolumeBatch,
    }
);

/// Changes that happen together or not at all, also across a crash; see [`FileSystem::batch`].
///
/// It dereferences to the file system. Dropping it without [`Batch::commit`] rolls everything back.
pub struct Batch {
    fs: FileSystem,
    /// `None`: the batch has ended.
    held: Option<Held>,
}

impl Batch {
    pub(crate) fn begin(fs: &FileSystem) -> Result<Batch> {
        let mut volume = fs.shared().begin()?;
        // Whoever has frozen it may read until the thaw, so nobody waits for that with the gate in hand.
        while volume.status().phase == Phase::Frozen {
            fs.shared().end();
            volume.maintenance().until_thawed()?;
            volume = fs.shared().begin()?;
        }
        let begun = || {
            if let Some(why) = volume.status().read_only {
                return Err(Error::new(ErrorKind::ReadOnly, format!("read-only: {why}")));
            }
            if !FileUpdate::is_supported(&volume) {
                return Err(Error::new(ErrorKind::Unsupported, without_log(fs)));
            }
            // A rollback gives up what is not durable: nothing from before the batch.
            volume.sync()?;
            Held::try_new(volume.clone(), |v| v.begin_batch()).map_err(Error::from)
        };
        match begun() {
            Ok(held) => Ok(Batch { fs: fs.clone(), held: Some(held) }),
            Err(e) => {
                fs.shared().end();
                Err(e)
            }
        }
    }

    /// Makes all changes durable, at once.
    ///
    /// # Errors
    /// Batch too large, no space: nothing has changed. I/O while the transaction is written: the file system is then
    /// read-only, and the next open finds all changes or none. Stale: this process was forked from the one that has
    /// begun the batch, whose batch it stays.
    pub fn commit(mut self) -> Result<()> {
        let Some(held) = self.take()? else { return Ok(()) };
        let volume = held.borrow_owner().clone();
        if let Err(e) = volume.maintenance().write_back() {
            self.held = Some(held);
            return Err(e.into());
        }
        drop(held);
        let done = volume.sync();
        drop(volume);
        self.fs.shared().end();
        Ok(done?)
    }

    /// Undoes everything since the batch began. Open files and directories, except the root, are stale afterwards.
    ///
    /// # Errors
    /// The image cannot be opened again; the file system is then closed. Stale: as with [`Batch::commit`].
    pub fn rollback(mut self) -> Result<()> {
        self.give_up()
    }

    /// What holds the transaction, unless the batch has ended.
    ///
    /// # Errors
    /// Of another process.
    fn take(&mut self) -> Result<Option<Held>> {
        let Some(held) = self.held.take() else { return Ok(None) };
        if let Err(e) = self.fs.shared().check_process() {
            // To drop it could write, or wait for a lock that another thread of the parent had.
            std::mem::forget(held);
            return Err(e);
        }
        Ok(Some(held))
    }

    fn give_up(&mut self) -> Result<()> {
        let Some(held) = self.take()? else { return Ok(()) };
        // The gate keeps others out, and nothing commits by itself: what the transaction holds is lost with the volume.
        drop(held);
        let done = self.fs.shared().reopen();
        self.fs.shared().end();
        done
    }
}

/// Why there is no batch.
fn without_log(fs: &FileSystem) -> &'static str {
    if fs.info().journal {
        "a batch needs the journal, and this file system was opened without it"
    } else {
        "a batch needs a journal, and this file system has none"
    }
}

impl FileSystem {
    /// Begins changes that happen together or not at all, whatever happens to the process or the machine. Until it
    /// ends, calls of other threads wait.
    ///
    /// ```
    /// # use quire::CreateOptions;
    /// # let fs = CreateOptions::new().size(16 << 20).in_memory()?;
    /// fs.write("/version", "1")?;
    /// let batch = fs.batch()?;
    /// batch.write("/version", "2")?;
    /// batch.create_dir("/data")?;
    /// batch.rollback()?;
    /// assert_eq!(fs.read("/version")?, b"1");
    ///
    /// let batch = fs.batch()?;
    /// batch.write("/version", "3")?;
    /// batch.commit()?; // From here on, both are durable.
    /// assert_eq!(fs.read("/version")?, b"3");
    /// # Ok::<(), quire::Error>(())
    /// ```
    ///
    /// A batch is limited by the journal: one transaction holds its metadata and the data that it overwrites, at most a
    /// quarter of the log. New data does not count. A larger batch fails with
    /// [`BatchTooLarge`](ErrorKind::BatchTooLarge), and nothing has happened.
    ///
    /// # Errors
    /// Unsupported: the file system has no journal, or was opened
    /// [without it](crate::OpenOptions::without_journal). Read-only. Busy: this thread has begun one already. What was
    /// changed before the batch could not be made durable.
    pub fn batch(&self) -> Result<Batch> {
        Batch::begin(self)
    }

    /// Runs `changes` as a batch: all of them happen, or, if it returns an error, none.
    ///
    /// # Errors
    /// As [`FileSystem::batch`] and [`Batch::commit`]; those of `changes`.
    pub fn atomically<T>(&self, changes: impl FnOnce(&FileSystem) -> Result<T>) -> Result<T> {
        let batch = self.batch()?;
        match changes(&batch) {
            Ok(value) => batch.commit().map(|()| value),
            Err(e) => {
                batch.rollback()?;
                Err(e)
            }
        }
    }
}

impl Deref for Batch {
    type Target = FileSystem;
    fn deref(&self) -> &FileSystem {
        &self.fs
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        let given_up = self.give_up();
        // Of another process: nothing was rolled back, and nothing had to be.
        if let (Err(error), Ok(())) = (given_up, self.fs.shared().check_process()) {
            tracing::error!(%error, "a batch was rolled back, and the image cannot be opened again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::create::CreateOptions;
    use crate::process::tests::as_forked_child;
    use quire_device::MemDevice;
    use std::sync::Arc;

    /// How a child ends a batch that its parent has begun.
    type End = fn(Batch) -> Result<()>;

    fn check_inherited_batch(end: End) -> Result<()> {
        let made = CreateOptions::new().size(16 << 20).in_memory().unwrap();
        made.write("/over", vec![1; 100_000]).unwrap();
        let device = Arc::new(MemDevice::new(made.into_bytes().unwrap().unwrap()));
        let fs = FileSystem::options().open_device(device.clone()).unwrap();
        let batch = fs.batch().unwrap();
        batch.write("/new", vec![2; 100_000]).unwrap();
        batch.open_file("/over").unwrap().write_at(&[3; 8192], 0).unwrap();
        let before = device.snapshot();
        let done = as_forked_child(|| {
            let done = end(batch);
            drop(fs);
            done
        });
        assert!(device.snapshot() == before, "the child has written to the image");
        done
    }

    #[test]
    fn commit_by_a_forked_child_is_refused_and_writes_nothing() {
        assert_eq!(check_inherited_batch(Batch::commit).unwrap_err().kind(), ErrorKind::Stale);
    }

    #[test]
    fn rollback_by_a_forked_child_is_refused_and_writes_nothing() {
        assert_eq!(check_inherited_batch(Batch::rollback).unwrap_err().kind(), ErrorKind::Stale);
    }

    #[test]
    fn drop_by_a_forked_child_writes_nothing() {
        check_inherited_batch(|batch| {
            drop(batch);
            Ok(())
        })
        .unwrap();
    }
}
