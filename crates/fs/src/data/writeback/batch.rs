//! A batch of writeback: dirty pages of one file or many, from memory to the transaction that names them.
//!
//! ```text
//! collect   file lock      dirty pages are cloned, they count as under writeback
//! place     an operation   pages without a block get claims; pages for the log are told from the others
//! submit    no lock        one batch of writes in the order of the disk; complete
//! record    operations     bitmap, extents, size, times join the running transaction
//! finish    file lock      pages that were not changed meanwhile are clean
//! ```
//! *Guarantees*: F8, F9, F16 (see the steps).
//!
//! *Relies on*: a caller that changes the map under pages waits for the batch (F2). Between collect and finish a batch
//! acquires no file lock.

use super::collect::Collected;
use super::place::{place, unreserve};
use super::record::record;
use super::submit::submit;
use crate::data::context::Data;
use crate::data::failure::data_failed;
use crate::data::pages::FileState;
use crate::data::reservations::keep_reserved;
use crate::error::Result;
use crate::policy::{FILES_PER_OPERATION, KEEP_CLEAN_PAGES};
use crate::space::Reservation;
use quire_device::Mutant;
use quire_device::sync::lock;
use quire_layout::FileBlock;

/// Brings collected pages to the disk and into the transaction. Errors stay in what was collected.
pub(super) fn write_and_record(d: &Data, batch: &mut [Collected], is_background: bool) {
    batch.chunks_mut(FILES_PER_OPERATION).for_each(|group| place(d, group));
    if Mutant::SizeBeforeData.is_on() {
        batch.chunks_mut(FILES_PER_OPERATION).for_each(|group| record(d, group));
        d.engine.journal.commit_all().ok();
        return submit(d, batch, is_background);
    }
    submit(d, batch, is_background);
    // Else the next commit would (Q5). A failure meets that.
    let journal = &d.engine.journal;
    let flushes = is_background && d.commits_are_frequent() && journal.log_is_apart();
    if flushes && let Some(epoch) = batch.iter().filter(|c| c.needs_record()).filter_map(|c| c.written).max() {
        journal.gate().ensure(epoch).ok();
    }
    batch.chunks_mut(FILES_PER_OPERATION).for_each(|group| record(d, group));
}

/// Ends the batch for one file: pages that were not changed meanwhile are clean.
///
/// # Errors
/// The file's data or metadata could not be written.
pub(super) fn finish(d: &Data, s: &mut FileState, mut c: Collected) -> Result<()> {
    let error = c.error.take().or(c.partial_error.take());
    let keep = error.is_none() && c.pages.len() <= KEEP_CLEAN_PAGES;
    let blocks: Vec<FileBlock> = match error {
        None => Vec::new(),
        Some(_) => c.pages.iter().map(|(b, _)| *b).collect(),
    };
    let mut left = 0;
    for (b, image) in c.pages {
        if s.written(b) {
            left += 1;
            if keep {
                lock(&d.files.clean).insert(c.ino, b, image);
            }
        }
    }
    d.files.count_pages(-left);
    s.batch_recorded();
    let reserved = Reservation { data: c.reserved, map: c.map };
    let kept = match error {
        None => Ok(Reservation::default()),
        Some(_) => keep_reserved(d, c.ino, s, &blocks, reserved),
    };
    // A page whose block cannot be looked up meets that again in its own writeback, and tells it.
    unreserve(d, reserved - kept.unwrap_or_default());
    if s.times == c.times {
        s.times = None;
    }
    match error {
        None => {
            if s.size == c.size {
                s.size = None;
            }
            Ok(())
        }
        Some(e) => {
            data_failed(d, c.ino, &e);
            Err(e)
        }
    }
}
