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
use crate::map;
use crate::policy::EXTENTS_PER_OPERATION;
use crate::records;
use quire_device::Mutant;
use quire_journal::{Checkpoint, Need, SyncError};
use quire_layout::inline_data::is_inline;
use quire_layout::{FileBlock, Ino, Tid};

/// Makes a file's data and metadata durable; with `datasync`, only the metadata that is needed to read the data. A
/// directory's entries count as its metadata.
///
/// # Errors
/// Something could not be written, now or earlier.
pub(crate) fn fsync(d: &Data, ino: Ino, datasync: bool) -> Result<()> {
    let need = begin_fsync(d, ino, datasync)?;
    if let Some(tid) = need.tid {
        d.engine.commit(tid)?;
    }
    match need.data {
        Some(epoch) => end_fsync(d, ino, need, d.engine.journal.gate().ensure(epoch).map_err(SyncError::Flush)),
        None => Ok(()),
    }
}

/// The part of an fsync before its wait: writes the file back. Returns what has to be durable when the fsync ends with
/// [`end_fsync`].
///
/// # Errors
/// As [`fsync`].
pub(crate) fn begin_fsync(d: &Data, ino: Ino, datasync: bool) -> Result<Need> {
    // The file remembers an error, and `check_file_error` returns it.
    write_back(d, ino, !datasync, d.log_limit()).ok();
    check_file_error(d, ino)?;
    if d.engine.context.options.checkpoint == Checkpoint::Fsync {
        write_logged_home(d, ino)?;
    }
    let tid = d.engine.tables().changes.last(ino, datasync).filter(|_| !Mutant::FsyncEarly.is_on());
    let data = d.files.unflushed(ino).filter(|_| !Mutant::CompletionIsDurable.is_on());
    if tid.is_some() || data.is_some() {
        d.note_commit();
    }
    Ok(Need { tid, data })
}

/// `checkpoint=fsync`: writes home what earlier transactions hold of a file's data. What the open transaction holds
/// stays in the log alone, as with ext4.
fn write_logged_home(d: &Data, ino: Ino) -> Result<()> {
    let mut at = FileBlock(0);
    loop {
        let part = d.engine.run(|op| {
            let inode = records::inode(op, ino)?;
            let mapped = inode.is_file() && !is_inline(&inode);
            if mapped { map::extents(op, ino, &inode, at, EXTENTS_PER_OPERATION) } else { Ok(Vec::new()) }
        })?;
        let runs: Vec<_> = part.iter().map(|e| (e.phys, e.len)).collect();
        d.engine.journal.write_runs_home(&runs).map_err(Error::from).inspect_err(|e| d.engine.note_error(e))?;
        match part.last() {
            Some(last) if part.len() == EXTENTS_PER_OPERATION => at = last.end(),
            _ => return Ok(()),
        }
    }
}

/// The part of an fsync after its wait.
///
/// # Errors
/// What was needed is not durable.
pub(crate) fn end_fsync(d: &Data, ino: Ino, need: Need, outcome: std::result::Result<(), SyncError>) -> Result<()> {
    match outcome {
        Ok(()) => {
            need.data.into_iter().for_each(|epoch| d.files.flushed(ino, epoch));
            Ok(())
        }
        Err(SyncError::Commit(e)) => {
            let e = Error::from(e);
            d.engine.note_error(&e);
            Err(e)
        }
        Err(SyncError::Flush(e)) => {
            let e = Error::from(e);
            data_failed(d, ino, &e);
            Err(e)
        }
    }
}

/// Makes everything durable that was written and done so far.
///
/// # Errors
/// Something could not be written, now or earlier.
pub(crate) fn sync(d: &Data) -> Result<()> {
    write_back_all(d);
    d.engine.commit_all()?;
    if let Some(epoch) = d.files.last_written() {
        let flushed = d.engine.journal.gate().ensure(epoch).map_err(Error::from);
        flushed.inspect_err(|e| d.engine.note_error(e))?;
    }
    check_any_error(d)
}

/// The part of a sync before its wait: writes all files back. Returns what has to be durable when the sync ends with
/// [`end_sync`].
pub(crate) fn begin_sync(d: &Data) -> Need {
    write_back_all(d);
    let journal = &d.engine.journal;
    let changes = journal.has_changes();
    let open = journal.running();
    // What an earlier transaction holds may still be on its way.
    let tid = if changes { open } else { Tid(open.0.wrapping_sub(1)) };
    Need { tid: Some(tid), data: d.files.last_written() }
}

/// The part of a sync after its wait.
///
/// # Errors
/// Something is not durable.
pub(crate) fn end_sync(d: &Data, outcome: std::result::Result<(), SyncError>) -> Result<()> {
    outcome.map_err(|e| match e {
        SyncError::Commit(e) => Error::from(e),
        SyncError::Flush(e) => {
            let e = Error::from(e);
            d.engine.note_error(&e);
            e
        }
    })?;
    match d.engine.journal.failure() {
        Some(e) => Err(e.into()),
        None => check_any_error(d),
    }
}
