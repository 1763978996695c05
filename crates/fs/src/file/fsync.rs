//! fsync, fdatasync and sync: what must reach the disk, and no more.
//!
//! ```text
//! write back ─> extents, size (or times, for fsync) changed?  yes: commit the transaction that holds the change
//!                                                            no, but data was written in place: one flush
//!                                                            nothing at all: no I/O
//! ```
//! Guarantees F15: what was written before the call is durable when it returns success; F6: after an error of this inode's
//! data, or of the journal, it returns an error, now and on every later call.

use crate::error::{Error, Result};
use crate::volume::Volume;
use quire_device::Mutant;
use quire_device::sync::lock;
use quire_layout::Ino;

impl Volume {
    /// Makes a file's data and metadata durable; with `datasync`, only the metadata that is needed to read the data. A
    /// directory's entries count as its metadata.
    ///
    /// # Errors
    /// Something could not be written, now or earlier.
    pub fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> {
        // What was unlinked before goes into the same commit.
        self.free_doomed();
        // The error stays with the file and is told below, whoever met it.
        self.write_back(ino, !datasync, self.inner.ride_blocks()).ok();
        self.check_file_error(ino)?;
        let journal = &self.inner.journal;
        let changed = lock(&self.inner.state).changes.last(ino, datasync);
        let changed = changed.filter(|_| !Mutant::FsyncEarly.is_on());
        if let Some(tid) = changed {
            self.note_commit();
            journal.commit(tid).map_err(Error::from).inspect_err(|e| self.note_error(e))?;
        }
        if let Some(stamp) = self.inner.files.unflushed(ino).filter(|_| !Mutant::CompletionIsDurable.is_on()) {
            if changed.is_none() {
                self.note_commit();
            }
            let flushed = journal.gate().ensure(stamp).map_err(Error::from);
            flushed.inspect_err(|e| self.data_failed(ino, e))?;
            self.inner.files.flushed(ino, stamp);
        }
        Ok(())
    }

    /// Makes everything durable that was written and done so far.
    ///
    /// # Errors
    /// Something could not be written, now or earlier.
    pub fn sync(&self) -> Result<()> {
        self.free_doomed();
        self.write_back_all();
        self.commit_all()?;
        if let Some(stamp) = self.inner.files.last_written() {
            self.inner.journal.gate().ensure(stamp).map_err(Error::from).inspect_err(|e| self.note_error(e))?;
        }
        self.inner.files.any_error().map_or(Ok(()), Err)
    }

    /// # Errors
    /// That of an earlier write-back of this file, or of the journal.
    fn check_file_error(&self, ino: Ino) -> Result<()> {
        if let Some(e) = self.inner.files.error(ino) {
            return Err(e);
        }
        match self.inner.journal.failure() {
            Some(e) => Err(quire_journal::Error::Aborted(Box::new(e)).into()),
            None => Ok(()),
        }
    }

    /// Data of a file could not be written: the file remembers it (F6), the volume does what `errors=` and `data_err=` say.
    pub(super) fn data_failed(&self, ino: Ino, e: &Error) {
        tracing::error!(%ino, "data could not be written: {e}");
        self.inner.files.set_error(ino, e);
        if let Error::Device(_) = e {
            self.note_error(e);
            if self.inner.options.data_error_aborts {
                self.inner.turn_read_only("file data could not be written (data_err=abort)");
            }
        }
    }
}
