//! fsync, fdatasync and sync.
//!
//! ```text
//! write back ─> did extents, size (or times, for fsync) change?  yes: commit the transaction that holds the change
//!                                                                no, but data was written in place: one flush
//!                                                                nothing changed: no I/O
//! ```
//! *Guarantees*: F15: data written before the call is durable when it returns success. F6: after an error of this
//! inode's data, or of the journal, this and every later call returns an error.

use super::context::Data;
use super::failure::{check_any_error, check_file_error, data_failed};
use super::writeback::{write_back, write_back_all};
use crate::error::{Error, Result};
use quire_device::Mutant;
use quire_layout::Ino;

/// Makes a file's data and metadata durable; with `datasync`, only the metadata that is needed to read the data. A
/// directory's entries count as its metadata.
///
/// # Errors
/// Something could not be written, now or earlier.
pub(crate) fn fsync(d: &Data, ino: Ino, datasync: bool) -> Result<()> {
    // The file remembers an error, and `check_file_error` returns it.
    write_back(d, ino, !datasync, d.log_limit()).ok();
    check_file_error(d, ino)?;
    let changed = d.engine.tables().changes.last(ino, datasync);
    let changed = changed.filter(|_| !Mutant::FsyncEarly.is_on());
    if let Some(tid) = changed {
        d.note_commit();
        d.engine.commit(tid)?;
    }
    if let Some(epoch) = d.files.unflushed(ino).filter(|_| !Mutant::CompletionIsDurable.is_on()) {
        if changed.is_none() {
            d.note_commit();
        }
        let flushed = d.engine.journal.gate().ensure(epoch).map_err(Error::from);
        flushed.inspect_err(|e| data_failed(d, ino, e))?;
        d.files.flushed(ino, epoch);
    }
    Ok(())
}

/// Makes everything durable that was written and done so far.
///
/// # Errors
/// Something could not be written, now or earlier.
pub(crate) fn sync(d: &Data) -> Result<()> {
    write_back_all(d);
    d.engine.journal.commit_all()?;
    if let Some(epoch) = d.files.last_written() {
        let flushed = d.engine.journal.gate().ensure(epoch).map_err(Error::from);
        flushed.inspect_err(|e| d.engine.note_error(e))?;
    }
    check_any_error(d)
}
