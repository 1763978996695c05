//! Errors of file data.

use super::context::Data;
use crate::error::{Error, Result};
use quire_layout::Ino;

/// Data of a file could not be written. The file remembers the error (F6), and the volume does what `errors=` and
/// `data_err=` say.
pub(super) fn data_failed(d: &Data, ino: Ino, e: &Error) {
    tracing::error!(%ino, "data could not be written: {e}");
    d.files.set_error(ino, e);
    if let Error::Device(_) = e {
        d.engine.note_error(e);
        if d.engine.context.runtime().data_error_aborts {
            d.engine.write_gate.turn_read_only("file data could not be written (data_err=abort)");
        }
    }
}

/// Reports an earlier error of a file or of the journal.
///
/// # Errors
/// That of an earlier writeback of this file, or of the journal.
pub(crate) fn check_file_error(d: &Data, ino: Ino) -> Result<()> {
    if let Some(e) = d.files.error(ino) {
        return Err(e);
    }
    match d.engine.journal.failure() {
        Some(e) => Err(quire_journal::Error::Aborted(Box::new(e)).into()),
        None => Ok(()),
    }
}

/// Reports an earlier error of any file.
///
/// # Errors
/// That of an earlier writeback.
pub(crate) fn check_any_error(d: &Data) -> Result<()> {
    d.files.any_error().map_or(Ok(()), Err)
}
