//! Batches: changes that happen together or not at all.

use crate::args::{get, give, out, take};
use crate::error::guard0;
use crate::fs::quire_fs;
use libc::c_int;
use quire::Batch;

/// Changes that happen together or not at all, also across a crash.
#[allow(non_camel_case_types)]
pub struct quire_batch {
    batch: Batch,
}

/// Begins a batch. Until it ends, what this thread changes belongs to it, and calls of other threads wait. The thread
/// that has begun it ends it. 0, or a negative errno.
///
/// # Safety
/// `fs` is open, `batch` a place for a pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_batch_begin(fs: *const quire_fs, batch: *mut *mut quire_batch) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let (fs, batch) = unsafe { (get(fs)?, out(batch)?) };
        give(batch, quire_batch { batch: fs.fs.batch()? });
        Ok(())
    })
}

/// Makes all changes of a batch durable at once, and ends the handle, also when it fails: then nothing has changed. 0,
/// or a negative errno; -EBUSY with QUIRE_ERROR_KIND_BATCH_TOO_LARGE: they do not fit into one transaction.
///
/// # Safety
/// `batch` was begun by this thread, and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_batch_commit(batch: *mut quire_batch) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let batch = unsafe { take(batch) }.ok_or_else(|| crate::args::invalid("a null pointer instead of a batch"))?;
        batch.batch.commit()
    })
}

/// Undoes all changes of a batch, and ends the handle. Open files and directories are stale (-ESTALE) afterwards. NULL
/// does nothing. 0, or a negative errno: the image cannot be opened again.
///
/// # Safety
/// As [`quire_batch_commit`]; null is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn quire_batch_rollback(batch: *mut quire_batch) -> c_int {
    guard0(|| {
        // SAFETY: the caller's duty.
        let Some(batch) = (unsafe { take(batch) }) else { return Ok(()) };
        batch.batch.rollback()
    })
}
