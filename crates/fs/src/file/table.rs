//! All files with pending data: found by inode number, queued by age, bounded together.
//!
//! Guarantees (docs/invariants.md):
//! - F4: a file with pending data, a reader or a round is found by everybody who asks for it, and one without is queued for nobody;
//! - F5: the pages that are not clean number at most the limit, and an eighth for files that have few of them, plus one request of each writer;
//! - F6: an error of a write-back stays with its inode until the inode is freed: every later fsync reports it.
//!
//! The table's lock is a leaf: taken with or without a file's lock, and nothing is waited for under it.

use super::clean::CleanPages;
use super::lane::Lane;
use super::state::{File, FileState};
use crate::error::Error;
use quire_device::sync::atomic::{AtomicUsize, Ordering};
use quire_device::sync::{Arc, Condvar, Mutex, lock, wait};
use quire_device::{Epoch, FlushGate};
use quire_layout::Ino;
use quire_layout::number_map::NumberMap;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Entries of `unflushed` that are kept before the durable ones are looked for.
const PRUNE_AT: usize = 1024;

/// The files of a volume.
pub(crate) struct Files {
    table: Mutex<Table>,
    /// Of the device that has the data.
    gate: Arc<FlushGate>,
    /// A round has ended.
    round_ended: Condvar,
    /// Callers that wait for all rounds.
    wanted: AtomicUsize,
    /// Held by a sweep while it writes.
    pub(super) sweep: Mutex<()>,
    pub(super) lane: Lane,
    /// Clean pages, for writes of less than a block.
    pub(super) clean: Mutex<CleanPages>,
    /// Most pages that are not clean.
    pub(super) limit: usize,
}

#[derive(Default)]
struct Table {
    files: NumberMap<Ino, Arc<File>>,
    /// Files with something to write back, oldest first.
    queue: BTreeMap<u64, Queued>,
    next_mark: u64,
    /// Pages that are not clean.
    pages: usize,
    rounds: BTreeSet<u64>,
    next_round: u64,
    /// Files with data written in place that was not durable when it was last looked at.
    unflushed: NumberMap<Ino, Epoch>,
    prune_at: usize,
    last_written: Option<Epoch>,
    errors: NumberMap<Ino, Error>,
}

#[derive(Clone, Copy)]
struct Queued {
    ino: Ino,
    /// When it was queued, by the monotonic clock.
    since: Duration,
}

impl Files {
    /// For a volume whose caches may take `cache_bytes`, with blocks of `block` bytes.
    pub(crate) fn new(cache_bytes: u64, block: usize, gate: Arc<FlushGate>) -> Self {
        let pages = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX) / block;
        Files {
            table: Mutex::new(Table::default()),
            gate,
            round_ended: Condvar::new(),
            wanted: AtomicUsize::new(0),
            sweep: Mutex::new(()),
            lane: Lane::default(),
            clean: Mutex::new(CleanPages::new(pages(cache_bytes / 16).max(16))),
            limit: pages(cache_bytes / 8 * 3).max(64),
        }
    }

    /// The file of an inode; made if nothing is known of it.
    pub(super) fn get(&self, ino: Ino) -> FileRef<'_> {
        let mut t = lock(&self.table);
        let file = t.files.entry(ino).or_insert_with(|| Arc::new(File::new(ino, self.gate.clone()))).clone();
        FileRef { files: self, file }
    }

    /// The file of an inode, if something is pending or under way.
    pub(super) fn find(&self, ino: Ino) -> Option<FileRef<'_>> {
        let file = lock(&self.table).files.get(&ino)?.clone();
        Some(FileRef { files: self, file })
    }

    /// True if something of an inode is pending or under way.
    pub(crate) fn has(&self, ino: Ino) -> bool {
        lock(&self.table).files.contains_key(&ino)
    }

    /// Queues a file that has something to write back.
    pub(super) fn queue(&self, ino: Ino, s: &mut FileState, now: Duration) {
        if s.mark.is_none() {
            let mut t = lock(&self.table);
            let mark = t.next_mark;
            t.next_mark += 1;
            t.queue.insert(mark, Queued { ino, since: now });
            s.mark = Some(mark);
        }
    }

    /// Takes a file from the queue: nothing is left for a round.
    pub(super) fn unqueue(&self, s: &mut FileState) {
        if let Some(mark) = s.mark.take() {
            lock(&self.table).queue.remove(&mark);
        }
    }

    /// The oldest files of the queue: at most `n`, queued before `mark`, and by `since`.
    pub(super) fn oldest(&self, n: usize, mark: u64, since: Duration) -> Vec<FileRef<'_>> {
        let t = lock(&self.table);
        (t.queue.range(..mark).take_while(|(_, q)| q.since <= since).take(n))
            .filter_map(|(_, q)| t.files.get(&q.ino))
            .map(|file| FileRef { files: self, file: file.clone() })
            .collect()
    }

    /// When the oldest file of the queue was queued.
    pub(super) fn oldest_since(&self) -> Option<Duration> {
        lock(&self.table).queue.values().next().map(|q| q.since)
    }

    /// The mark that the next file to be queued gets.
    pub(super) fn next_mark(&self) -> u64 {
        lock(&self.table).next_mark
    }

    /// Counts pages that became dirty, or clean.
    pub(super) fn count_pages(&self, change: isize) {
        let mut t = lock(&self.table);
        t.pages = t.pages.checked_add_signed(change).expect("pages are counted in and out");
    }

    /// Pages that are not clean.
    pub(super) fn pages(&self) -> usize {
        lock(&self.table).pages
    }

    pub(super) fn begin_round(&self) -> Round<'_> {
        let mut t = lock(&self.table);
        let id = t.next_round;
        t.next_round += 1;
        t.rounds.insert(id);
        Round { files: self, id }
    }

    /// True if a round is under way.
    pub(super) fn any_round(&self) -> bool {
        !lock(&self.table).rounds.is_empty()
    }

    /// Waits until one of the rounds that are under way now ends, unless there are none. Later ones do not count: several writers who
    /// each look in vain for something to write back would go on waking each other.
    pub(super) fn wait_for_a_round(&self) -> bool {
        let mut t = lock(&self.table);
        let (next, under_way) = (t.next_round, t.rounds.len());
        while under_way > 0 && t.rounds.range(..next).count() == under_way {
            t = wait(&self.round_ended, t);
        }
        under_way > 0
    }

    /// Waits for all rounds that are under way now; none of them goes on waiting for a flush of others.
    pub(crate) fn wait_for_rounds(&self) {
        self.wanted.fetch_add(1, Ordering::SeqCst);
        self.gate.look_again();
        self.wait_for_rounds_to_end();
        self.wanted.fetch_sub(1, Ordering::SeqCst);
    }

    /// True if somebody waits for all rounds.
    pub(super) fn are_rounds_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) > 0
    }

    fn wait_for_rounds_to_end(&self) {
        let mut t = lock(&self.table);
        let next = t.next_round;
        while t.rounds.first().is_some_and(|first| *first < next) {
            t = wait(&self.round_ended, t);
        }
    }

    /// Remembers that data of a file was written in place, complete at `stamp`. Who took an older stamp may come later.
    pub(super) fn written(&self, ino: Ino, stamp: Epoch) {
        let mut t = lock(&self.table);
        let last = t.unflushed.entry(ino).or_insert(stamp);
        *last = stamp.max(*last);
        t.last_written = t.last_written.max(Some(stamp));
        if t.unflushed.len() > t.prune_at.max(PRUNE_AT) {
            t.unflushed.retain(|_, stamp| !self.gate.is_durable(*stamp));
            t.prune_at = 2 * t.unflushed.len();
        }
    }

    /// When the last data of any file that was written in place was complete.
    pub(super) fn last_written(&self) -> Option<Epoch> {
        lock(&self.table).last_written
    }

    /// When the last data written in place was complete, if that may not be durable.
    pub(super) fn unflushed(&self, ino: Ino) -> Option<Epoch> {
        lock(&self.table).unflushed.get(&ino).copied()
    }

    pub(super) fn flushed(&self, ino: Ino, stamp: Epoch) {
        let mut t = lock(&self.table);
        if t.unflushed.get(&ino) == Some(&stamp) {
            t.unflushed.remove(&ino);
        }
    }

    /// Keeps the first error of an inode (F6).
    pub(super) fn set_error(&self, ino: Ino, e: &Error) {
        lock(&self.table).errors.entry(ino).or_insert_with(|| e.clone());
    }

    pub(super) fn error(&self, ino: Ino) -> Option<Error> {
        lock(&self.table).errors.get(&ino).cloned()
    }

    /// An error of any inode.
    pub(super) fn any_error(&self) -> Option<Error> {
        lock(&self.table).errors.values().next().cloned()
    }

    /// Forgets what concerns only fsync: the inode is being freed.
    pub(super) fn forget(&self, ino: Ino) {
        let mut t = lock(&self.table);
        t.errors.remove(&ino);
        t.unflushed.remove(&ino);
    }
}

/// A file in use; it leaves the table with its last user if nothing is pending.
pub(super) struct FileRef<'a> {
    files: &'a Files,
    file: Arc<File>,
}

impl std::ops::Deref for FileRef<'_> {
    type Target = Arc<File>;
    fn deref(&self) -> &Arc<File> {
        &self.file
    }
}

impl Drop for FileRef<'_> {
    fn drop(&mut self) {
        let mut t = lock(&self.files.table);
        // The table's and mine: nobody else holds it, and nobody can get it without the table's lock (F4).
        if Arc::strong_count(&self.file) != 2 {
            return;
        }
        let mut s = self.file.lock();
        if s.is_idle() {
            t.files.remove(&self.file.ino);
            // What was queued may have been cut off.
            if let Some(mark) = s.mark.take() {
                t.queue.remove(&mark);
            }
        }
    }
}

/// A round of write-back that is under way.
pub(super) struct Round<'a> {
    files: &'a Files,
    id: u64,
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        lock(&self.files.table).rounds.remove(&self.id);
        self.files.round_ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_device::MemDevice;

    /// F15: two who wrote different blocks of a file may come in another order than they took their stamps; an fsync waits for both.
    #[test]
    fn the_last_of_a_files_stamps_counts() {
        let gate = Arc::new(FlushGate::new(Arc::new(MemDevice::new(vec![0; 4096]))));
        let files = Files::new(1 << 20, 4096, gate.clone());
        let earlier = gate.stamp();
        gate.flush().expect("a sound device");
        let later = gate.stamp();
        assert!(earlier < later);
        files.written(Ino(12), later);
        files.written(Ino(12), earlier);
        assert_eq!((files.unflushed(Ino(12)), files.last_written()), (Some(later), Some(later)));
    }
}
