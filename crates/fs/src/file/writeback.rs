//! Who writes back, when: one file for fsync and friends, the oldest files for everybody else.
//!
//! A round never waits for another while it is under way, so rounds cannot wait for each other in a circle: a round over
//! many files skips those that are being written, and whoever must have them waits afterwards.

use super::round::{Sweep, Taken};
use super::state::{File, FileState};
use super::table::{FileRef, Round};
use crate::error::Result;
use crate::op::Op;
use crate::volume::Volume;
use quire_device::sync::{MutexGuard, lock};
use quire_layout::{FileBlock, Ino};
use std::time::Duration;

/// Bytes that one round takes at most.
const ROUND_BYTES: usize = 16 << 20;
/// A file with at most one in so many of the pages that may be dirty has little; one in so many more are kept for such files.
const LITTLE: usize = 256;
const KEPT: usize = 8;
/// Files that one round takes at most.
const ROUND_FILES: usize = 1024;

impl Volume {
    /// Pages that one round takes at most.
    fn round_pages(&self) -> usize {
        (ROUND_BYTES / self.inner.sb.block_size().bytes()).min(self.inner.files.limit / 2)
    }

    /// Writes back everything of a file that was dirty when this was called: its data is complete and its metadata
    /// part of a transaction. With `times`, pending times as well; new data of at most `ride` blocks rides in that transaction.
    ///
    /// # Errors
    /// The data or its metadata could not be written; the error stays with the file (F6).
    pub(super) fn write_back(&self, ino: Ino, times: bool, ride: usize) -> Result<()> {
        let Some(file) = self.inner.files.find(ino) else { return Ok(()) };
        let mut from = FileBlock(0);
        let mut result = Ok(());
        loop {
            let (_round, mut s) = self.round_on(&file);
            let Some(t) = self.take(ino, &mut s, from, self.round_pages(), times) else { return result };
            let last = self.inner.whole_requests() || t.pages() < self.round_pages();
            from = t.end();
            file.begin_round(&mut s);
            drop(s);
            let mut batch = [t.ride(ride)];
            self.transfer_and_record(&mut batch, None);
            let [t] = batch;
            let mut s = file.lock();
            result = result.and(self.finish(&mut s, t));
            file.end_round(s);
            if last {
                return result;
            }
        }
    }

    /// As [`Volume::write_back`] by a caller that holds the file exclusively: afterwards no page is left, and the operations that follow
    /// become durable no earlier than the data.
    ///
    /// # Errors
    /// As [`Volume::write_back`].
    pub(super) fn settle_pages(&self, ino: Ino, s: &mut FileState) -> Result<()> {
        self.write_back_exclusive(ino, s)?;
        self.hold_back(ino)
    }

    fn write_back_exclusive(&self, ino: Ino, s: &mut FileState) -> Result<()> {
        if !s.has_pages() && s.times.is_none() && s.size.is_none() {
            return Ok(());
        }
        let _round = self.begin_round();
        while let Some(t) = self.take(ino, s, FileBlock(0), self.round_pages(), true) {
            let mut batch = [t.ride(self.inner.ride_blocks())];
            self.transfer_and_record(&mut batch, None);
            let [t] = batch;
            // On a volume that is read-only now the size stays pending: no end in trying.
            self.finish(s, t)?;
        }
        Ok(())
    }

    /// A file to be written back, locked, and a round for it. A freeze waits for rounds, so none begins that has yet to wait for a
    /// file: its owner may wait for the thaw.
    fn round_on<'f>(&self, file: &'f File) -> (Round<'_>, MutexGuard<'f, FileState>) {
        loop {
            let s = file.next_round();
            let round = self.inner.files.begin_round();
            if !*lock(&self.inner.frozen) {
                return (round, s);
            }
            drop((round, s));
            self.inner.wait_thawed();
        }
    }

    /// A round that a freeze waits for, and which waits for a thaw.
    fn begin_round(&self) -> Round<'_> {
        loop {
            let round = self.inner.files.begin_round();
            if !*lock(&self.inner.frozen) {
                return round;
            }
            drop(round);
            self.inner.wait_thawed();
        }
    }

    /// As [`Volume::run`], for what has to come after data that is on its way: even while the volume is being frozen.
    pub(super) fn run_in_round<T>(&self, f: impl FnMut(&mut Op<'_>) -> Result<T>) -> Result<T> {
        let done = self.run_with(true, f);
        if let Err(e) = &done {
            self.note_error(e);
        }
        done.map(|(value, _)| value)
    }

    /// One round over the oldest files queued before `mark` and by `since`. False if nobody had anything to take. While commits come often,
    /// a round of the background waits for the flush of one to begin, for so long.
    pub(super) fn write_back_oldest(&self, mark: u64, since: Duration, patience: Duration) -> bool {
        let _round = self.begin_round();
        let is_for_room = since == Duration::MAX && mark == u64::MAX;
        let often = self.commits_often();
        let mut taken = if is_for_room && often { self.take_oldest(mark, since, self.little()) } else { Vec::new() };
        // Somebody may be about to sync what has little, unless it is old.
        let about_to_be_synced = is_for_room && taken.is_empty();
        if taken.is_empty() {
            taken = self.take_oldest(mark, since, 0);
        }
        if taken.is_empty() {
            return false;
        }
        let patience = if about_to_be_synced || !often { Duration::ZERO } else { self.patience(patience) };
        let (users, mut batch): (Vec<_>, Vec<_>) = taken.into_iter().unzip();
        self.transfer_and_record(&mut batch, Some(Sweep { files: &users, patience }));
        for (file, t) in users.iter().zip(batch) {
            let mut s = file.lock();
            // The file remembers what went wrong.
            self.finish(&mut s, t).ok();
            file.end_round(s);
        }
        true
    }

    /// Takes what a round has room for of the oldest files that have more than so many pages. Where somebody commits again and again, a
    /// file with few pages is about to be synced: that would have to wait for the round.
    fn take_oldest(&self, mark: u64, since: Duration, more_than: usize) -> Vec<(FileRef<'_>, Taken)> {
        let mut room = self.round_pages();
        let mut taken = Vec::new();
        for file in self.inner.files.oldest(ROUND_FILES, mark, since) {
            if room == 0 {
                break;
            }
            let Some(mut s) = file.try_round().filter(|s| more_than == 0 || s.pages() > more_than) else { continue };
            let Some(t) = self.take(file.ino, &mut s, FileBlock(0), room, true) else { continue };
            file.begin_round(&mut s);
            drop(s);
            room = room.saturating_sub(t.pages());
            taken.push((file, t));
        }
        taken
    }

    /// Pages of a file that has little.
    fn little(&self) -> usize {
        self.inner.files.limit / LITTLE
    }

    /// Half of the pages that may be dirty are, or an eighth while commits come often: then there is room for what comes in heaps.
    pub(super) fn is_much_pending(&self) -> bool {
        let (pages, limit) = (self.inner.files.pages(), self.inner.files.limit);
        pages > limit / 2 || (pages > limit / 8 && self.commits_often())
    }

    /// Makes a writer wait, or rather work, while too many pages are not clean (F5), and wakes the background to help. Who has written
    /// little does not wait for those who have written much: an eighth is kept for them.
    pub(super) fn throttle(&self, ino: Ino) {
        let files = &self.inner.files;
        if self.is_much_pending() && !files.any_round() {
            self.inner.journal.wake();
        }
        let has_little = || files.find(ino).is_none_or(|file| file.lock().pages() <= self.little());
        while files.pages() > files.limit {
            if files.pages() <= files.limit + files.limit / KEPT && has_little() {
                return;
            }
            if self.write_back_oldest(u64::MAX, Duration::MAX, Duration::ZERO) || files.wait_for_a_round() {
                continue;
            }
            // Everything is with somebody who is about to change it; the oldest will do.
            match files.oldest(1, u64::MAX, Duration::MAX).first() {
                Some(file) => drop(self.write_back(file.ino, true, 0)),
                None => return,
            }
        }
    }

    /// Writes back all files that are dirty now.
    pub(crate) fn write_back_all(&self) {
        let files = &self.inner.files;
        let mark = files.next_mark();
        while self.write_back_oldest(mark, Duration::MAX, Duration::ZERO) {}
        for file in files.oldest(usize::MAX, mark, Duration::MAX) {
            // The file remembers what went wrong.
            self.write_back(file.ino, true, 0).ok();
        }
        files.wait_for_rounds();
    }
}
