//! Which files are written back, and when: one file for fsync and its like, the oldest files otherwise.
//!
//! *Guarantees*: batches never wait for each other in a circle. A batch over many files skips those that another batch
//! writes back, and a caller that must have them waits afterwards.

use super::batch::{finish, write_and_record};
use super::collect::{Collected, collect};
use crate::data::context::Data;
use crate::data::pages::FileState;
use crate::data::table::FileRef;
use crate::error::{Error, Result};
use crate::policy::BATCH_FILES;
use quire_device::Mutant;
use quire_device::sync::MutexGuard;
use quire_layout::{FileBlock, Ino};
use std::time::Duration;

/// Writes back everything of a file that is dirty now: its data is complete, and its metadata part of a transaction.
/// With `times`, pending times as well. At most `log_limit` new blocks are logged with that transaction. What comes
/// behind that meanwhile is left to others, so that this ends (F27).
///
/// # Errors
/// The data or its metadata could not be written; the error stays with the file (F6).
pub(in crate::data) fn write_back(d: &Data, ino: Ino, times: bool, log_limit: usize) -> Result<()> {
    let Some(file) = d.files.find(ino) else { return Ok(()) };
    let max = d.limits.batch_pages();
    let mut from = FileBlock(0);
    let mut dirty_end = None;
    let mut result = Ok(());
    loop {
        let mut s = file.lock_for_batch();
        let dirty_end = *dirty_end.get_or_insert_with(|| s.dirty_end());
        let _batch = d.files.begin_batch();
        let Some(c) = collect(d, ino, &mut s, from, max, times) else { return result };
        let has_all = c.end() >= dirty_end && !Mutant::WriteBackWithoutEnd.is_on();
        let last = d.whole_requests() || c.pages.len() < max || has_all;
        from = c.end();
        file.begin_batch(&mut s);
        drop(s);
        let mut batch = [c.with_log_limit(log_limit)];
        write_and_record(d, &mut batch, false);
        let [c] = batch;
        let mut s = file.lock();
        result = result.and(finish(d, &mut s, c));
        file.end_batch(s);
        if last {
            return result;
        }
    }
}

/// As [`write_back`], for a caller that holds the file exclusively: afterwards the file has no page.
///
/// # Errors
/// As [`write_back`].
pub(in crate::data) fn write_back_exclusive(d: &Data, ino: Ino, s: &mut FileState) -> Result<()> {
    if !s.has_pages() && s.times.is_none() && s.size.is_none() {
        return Ok(());
    }
    let _batch = d.files.begin_batch();
    while let Some(c) = collect(d, ino, s, FileBlock(0), d.limits.batch_pages(), true) {
        let mut batch = [c.with_log_limit(d.log_limit())];
        write_and_record(d, &mut batch, false);
        let [c] = batch;
        // On a volume that is read-only now the size stays pending, so trying again would never end.
        finish(d, s, c)?;
    }
    Ok(())
}

/// Which files a batch of background writeback may collect.
#[derive(Clone, Copy)]
pub(crate) struct Which {
    /// Files queued before this number.
    pub end: u64,
    /// Files queued by this time of the monotonic clock.
    pub since: Duration,
}

impl Which {
    /// All queued files: the caller needs room for new pages.
    pub(crate) const ANY: Which = Which { end: u64::MAX, since: Duration::MAX };

    /// Files queued by `since`: the background writes data back at this age, whatever else goes on (F21).
    pub(crate) fn older_than(since: Duration) -> Self {
        Which { end: u64::MAX, since }
    }

    fn is_for_room(self) -> bool {
        self.end == u64::MAX && self.since == Duration::MAX
    }
}

/// Writes back a batch of the oldest files. Returns false if there was nothing to collect.
pub(crate) fn write_back_oldest(d: &Data, which: Which) -> bool {
    write_back_batch(d, which).is_some()
}

/// As [`write_back_oldest`]; returns the pages that were collected. `None`: there was nothing, neither size nor times.
fn write_back_batch(d: &Data, which: Which) -> Option<usize> {
    let _batch = d.files.begin_batch();
    let leaves_small_files = !d.without().small_files && d.commits_are_frequent();
    let mut collected = if which.is_for_room() && leaves_small_files {
        collect_oldest(d, which, d.limits.small_file_pages())
    } else {
        Vec::new()
    };
    if collected.is_empty() {
        collected = collect_oldest(d, which, 0);
    }
    if collected.is_empty() {
        return None;
    }
    let pages = collected.iter().map(|(_, c)| c.pages.len()).sum();
    let (users, mut batch): (Vec<_>, Vec<_>) = collected.into_iter().unzip();
    write_and_record(d, &mut batch, true);
    for (file, c) in users.iter().zip(batch) {
        let mut s = file.lock();
        // The file remembers the error.
        finish(d, &mut s, c).ok();
        file.end_batch(s);
    }
    Some(pages)
}

/// Collects what a batch has room for of the oldest files that have more than so many pages.
fn collect_oldest(d: &Data, which: Which, more_than: usize) -> Vec<(FileRef<'_>, Collected)> {
    let mut room = d.limits.batch_pages();
    let mut collected = Vec::new();
    for file in d.files.oldest(BATCH_FILES, which.end, which.since) {
        if room == 0 {
            break;
        }
        let large = |s: &MutexGuard<'_, FileState>| more_than == 0 || s.pages() > more_than;
        let Some(mut s) = file.try_lock_for_batch().filter(large) else { continue };
        let Some(c) = collect(d, file.ino, &mut s, FileBlock(0), room, true) else { continue };
        file.begin_batch(&mut s);
        drop(s);
        room = room.saturating_sub(c.pages.len());
        collected.push((file, c));
    }
    collected
}

/// True if the background should write back although nothing is old.
pub(crate) fn should_write_back(d: &Data) -> bool {
    d.limits.should_write_back(d.files.pages())
}

/// Has a writer wait, or rather work, while too many pages are not clean (F5), and wakes the background to help. A
/// writer to a small file does not wait for writers of large ones: part of the pages are kept for it.
pub(in crate::data) fn limit_writer(d: &Data, ino: Ino) {
    let files = &d.files;
    if should_write_back(d) && !files.any_batch() {
        d.engine.journal.wake();
    }
    let is_small = || {
        !d.without().small_files
            && files.find(ino).is_none_or(|file| file.lock().pages() <= d.limits.small_file_pages())
    };
    while files.pages() > d.limits.max_pages {
        if files.pages() <= d.limits.max_pages_for_small_files() && is_small() {
            return;
        }
        if write_back_oldest(d, Which::ANY) || files.wait_for_a_batch() {
            continue;
        }
        // Each file is held by a caller that is about to change it. The oldest will do.
        match files.oldest(1, u64::MAX, Duration::MAX).first() {
            Some(file) => drop(write_back(d, file.ino, true, 0)),
            None => return,
        }
    }
}

/// Does what may find no space; then once more after writing back, because reservations are for the worst case, and
/// writing back may leave space of them.
///
/// # Errors
/// Of the last attempt.
pub(crate) fn or_after_writeback<T>(d: &Data, mut attempt: impl FnMut() -> Result<T>) -> Result<T> {
    match attempt() {
        Err(Error::NoSpace) => {
            write_back_all(d);
            attempt()
        }
        done => done,
    }
}

/// Writes back all files that are dirty now. What is written meanwhile is left to others, so that this ends (F27).
pub(crate) fn write_back_all(d: &Data) {
    let files = &d.files;
    let (end, pages) = (files.next_in_queue(), files.pages());
    let which = Which { end, since: Duration::MAX };
    // A file that is not collected whole keeps its place in the queue. With more pages than there were, new ones have
    // come in such a file; what is left of those that were queued goes file by file.
    let mut written = 0;
    while written <= pages
        && let Some(more) = write_back_batch(d, which)
    {
        written += more;
    }
    for file in files.oldest(usize::MAX, end, Duration::MAX) {
        // The file remembers the error.
        write_back(d, file.ino, true, 0).ok();
    }
    files.wait_for_batches();
}
