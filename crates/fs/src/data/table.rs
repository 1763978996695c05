//! All files with pending data: found by inode number, queued by age, bounded together.
//!
//! *Guarantees* (docs/invariants.md):
//! - F4: every caller finds a file that has pending data, a reader or a batch; a file without is not queued;
//! - F5: the pages that are not clean number at most the limit, an eighth more for small files, and one request of each
//!   writer;
//! - F6: an error of writeback stays with its inode until the inode is freed, and every later fsync reports it.
//!
//! The table's lock is a leaf: a caller takes it with or without a file's lock, and a holder waits for nothing.

use super::clean::CleanPages;
use super::file::File;
use super::pages::FileState;
use crate::error::Error;
use crate::policy::CacheShares;
use quire_device::sync::{Arc, Condvar, Mutex, lock, wait};
use quire_device::{Epoch, FlushGate};
use quire_layout::Ino;
use quire_layout::number_map::NumberMap;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

/// Entries of `unflushed` and `emptied` at which the table first removes those that it does not need.
const PRUNE_AT: usize = 1024;

/// The files of a volume.
pub(crate) struct Files {
    table: Mutex<Table>,
    /// The flush gate of the device that has the data.
    gate: Arc<FlushGate>,
    /// A batch has ended.
    batch_ended: Condvar,
    /// Background writeback holds it while it writes. A holder must not acquire a file lock.
    pub(super) background_write: Mutex<()>,
    /// Clean pages, for writes of less than a block.
    pub(super) clean: Mutex<CleanPages>,
}

#[derive(Default)]
struct Table {
    files: NumberMap<Ino, Arc<File>>,
    /// Files with something to write back, oldest first.
    queue: BTreeMap<u64, Queued>,
    next_in_queue: u64,
    /// Pages that are not clean.
    pages: usize,
    /// Numbers of the batches under way.
    batches: BTreeSet<u64>,
    next_batch: u64,
    /// Files with data written in place that was not durable at the last check, and its flush epoch.
    unflushed: NumberMap<Ino, Epoch>,
    prune_at: usize,
    last_written: Option<Epoch>,
    errors: NumberMap<Ino, Error>,
    /// Files that were cut to nothing and not closed since: all that are referenced, and some that were.
    emptied: HashSet<Ino>,
    prune_emptied_at: usize,
}

#[derive(Clone, Copy)]
struct Queued {
    ino: Ino,
    /// When it was queued, by the monotonic clock.
    since: Duration,
}

impl Files {
    /// An empty table for a volume with these shares of memory.
    pub(crate) fn new(shares: &CacheShares, gate: Arc<FlushGate>) -> Self {
        Files {
            table: Mutex::new(Table::default()),
            gate,
            batch_ended: Condvar::new(),
            background_write: Mutex::new(()),
            clean: Mutex::new(CleanPages::new(shares.clean_pages())),
        }
    }

    /// The file of an inode; made if the table does not have it.
    pub(super) fn get(&self, ino: Ino) -> FileRef<'_> {
        let mut t = lock(&self.table);
        let file = t.files.entry(ino).or_insert_with(|| Arc::new(File::new(ino))).clone();
        FileRef { files: self, file: Some(file) }
    }

    /// The file of an inode, if something is pending or under way.
    pub(super) fn find(&self, ino: Ino) -> Option<FileRef<'_>> {
        let file = lock(&self.table).files.get(&ino)?.clone();
        Some(FileRef { files: self, file: Some(file) })
    }

    /// True if something of an inode is pending or under way.
    pub(crate) fn has(&self, ino: Ino) -> bool {
        lock(&self.table).files.contains_key(&ino)
    }

    /// Queues a file that has something to write back.
    pub(super) fn queue(&self, ino: Ino, s: &mut FileState, now: Duration) {
        if s.queued_as.is_none() {
            let mut t = lock(&self.table);
            let number = t.next_in_queue;
            t.next_in_queue += 1;
            t.queue.insert(number, Queued { ino, since: now });
            s.queued_as = Some(number);
        }
    }

    /// Removes a file from the queue, because nothing is left to write back.
    pub(super) fn unqueue(&self, s: &mut FileState) {
        if let Some(number) = s.queued_as.take() {
            lock(&self.table).queue.remove(&number);
        }
    }

    /// The oldest files of the queue: at most `n`, before number `end`, and queued by `since`.
    pub(super) fn oldest(&self, n: usize, end: u64, since: Duration) -> Vec<FileRef<'_>> {
        let t = lock(&self.table);
        (t.queue.range(..end).take_while(|(_, q)| q.since <= since).take(n))
            .filter_map(|(_, q)| t.files.get(&q.ino))
            .map(|file| FileRef { files: self, file: Some(file.clone()) })
            .collect()
    }

    /// When the oldest file of the queue was queued, by the monotonic clock.
    pub(crate) fn oldest_since(&self) -> Option<Duration> {
        lock(&self.table).queue.values().next().map(|q| q.since)
    }

    /// The number that the next file to be queued gets.
    pub(super) fn next_in_queue(&self) -> u64 {
        lock(&self.table).next_in_queue
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

    /// Begins a batch.
    pub(super) fn begin_batch(&self) -> BatchGuard<'_> {
        let mut t = lock(&self.table);
        let id = t.next_batch;
        t.next_batch += 1;
        t.batches.insert(id);
        BatchGuard { files: self, id }
    }

    /// True if a batch is under way.
    pub(super) fn any_batch(&self) -> bool {
        !lock(&self.table).batches.is_empty()
    }

    /// Waits until one of the batches that are under way now ends; returns false if there is none. Later batches do not
    /// count, because several writers that each find nothing to write back would go on waking each other.
    pub(super) fn wait_for_a_batch(&self) -> bool {
        let mut t = lock(&self.table);
        let (next, under_way) = (t.next_batch, t.batches.len());
        while under_way > 0 && t.batches.range(..next).count() == under_way {
            t = wait(&self.batch_ended, t);
        }
        under_way > 0
    }

    /// Waits for all batches that are under way now.
    pub(crate) fn wait_for_batches(&self) {
        let mut t = lock(&self.table);
        let next = t.next_batch;
        while t.batches.first().is_some_and(|first| *first < next) {
            t = wait(&self.batch_ended, t);
        }
    }

    /// Remembers that data of a file was written in place and completed in `epoch`. Calls may come out of order.
    pub(super) fn written(&self, ino: Ino, epoch: Epoch) {
        let mut t = lock(&self.table);
        let last = t.unflushed.entry(ino).or_insert(epoch);
        *last = epoch.max(*last);
        t.last_written = t.last_written.max(Some(epoch));
        if t.unflushed.len() > t.prune_at.max(PRUNE_AT) {
            t.unflushed.retain(|_, epoch| !self.gate.is_durable(*epoch));
            t.prune_at = 2 * t.unflushed.len();
        }
    }

    /// The flush epoch of the last data of any file that was written in place.
    pub(super) fn last_written(&self) -> Option<Epoch> {
        lock(&self.table).last_written
    }

    /// The flush epoch of the last data of a file that was written in place, if it may not be durable.
    pub(super) fn unflushed(&self, ino: Ino) -> Option<Epoch> {
        lock(&self.table).unflushed.get(&ino).copied()
    }

    pub(super) fn flushed(&self, ino: Ino, epoch: Epoch) {
        let mut t = lock(&self.table);
        if t.unflushed.get(&ino) == Some(&epoch) {
            t.unflushed.remove(&ino);
        }
    }

    /// A file was cut to nothing. True if there are many: the caller then calls [`Files::prune_emptied`].
    pub(super) fn emptied(&self, ino: Ino) -> bool {
        let mut t = lock(&self.table);
        t.emptied.insert(ino);
        t.emptied.len() > PRUNE_AT.max(t.prune_emptied_at)
    }

    /// Forgets the files that were cut and are not referenced: no handle is left that will be closed. The others are at
    /// most as many as the referenced inodes.
    pub(super) fn prune_emptied(&self, is_referenced: impl Fn(&Ino) -> bool) {
        let mut t = lock(&self.table);
        t.emptied.retain(is_referenced);
        t.prune_emptied_at = 2 * t.emptied.len();
    }

    /// A file is being closed. True if it was cut to nothing before.
    pub(super) fn take_emptied(&self, ino: Ino) -> bool {
        lock(&self.table).emptied.remove(&ino)
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

    /// Forgets what is known of an inode that is being freed.
    pub(super) fn forget(&self, ino: Ino) {
        let mut t = lock(&self.table);
        t.errors.remove(&ino);
        t.unflushed.remove(&ino);
        t.emptied.remove(&ino);
    }
}

/// A file in use; it leaves the table with its last user if nothing is pending.
pub(super) struct FileRef<'a> {
    files: &'a Files,
    /// `None` once it is being dropped.
    file: Option<Arc<File>>,
}

impl std::ops::Deref for FileRef<'_> {
    type Target = Arc<File>;
    fn deref(&self) -> &Arc<File> {
        self.file.as_ref().expect("it is not dropped yet")
    }
}

impl Drop for FileRef<'_> {
    fn drop(&mut self) {
        let mut t = lock(&self.files.table);
        // It goes under the table's lock: of two users that leave together, the later one finds itself alone (F4).
        let Some(file) = self.file.take() else { return };
        // The table's and this one: no other user holds the file, and none can get it without the table's lock.
        if Arc::strong_count(&file) != 2 {
            return;
        }
        let mut s = file.lock();
        if s.is_idle() {
            t.files.remove(&file.ino);
            // A truncate may have cut off what was queued.
            if let Some(number) = s.queued_as.take() {
                t.queue.remove(&number);
            }
        }
    }
}

/// A batch of writeback that is under way.
pub(super) struct BatchGuard<'a> {
    files: &'a Files,
    id: u64,
}

impl Drop for BatchGuard<'_> {
    fn drop(&mut self) {
        lock(&self.files.table).batches.remove(&self.id);
        self.files.batch_ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_testkit::MemDevice;

    /// F15: two writers of different blocks of a file may report in another order than they took their epochs.
    #[test]
    fn written_epochs_reported_out_of_order_keep_the_latest() {
        let gate = Arc::new(FlushGate::new(Arc::new(MemDevice::new(vec![0; 4096]))));
        let files = Files::new(&CacheShares::new(1 << 20, 4096), gate.clone());
        let earlier = gate.stamp();
        gate.flush().expect("a sound device");
        let later = gate.stamp();
        assert!(earlier < later);
        files.written(Ino(12), later);
        files.written(Ino(12), earlier);
        assert_eq!((files.unflushed(Ino(12)), files.last_written()), (Some(later), Some(later)));
    }

    /// F30, and bounded memory.
    #[test]
    fn cut_files_are_known_as_long_as_they_are_referenced() {
        const REFERENCED: u32 = 1100;
        let gate = Arc::new(FlushGate::new(Arc::new(MemDevice::new(vec![0; 4096]))));
        let files = Files::new(&CacheShares::new(1 << 20, 4096), gate);
        let mut most = 0;
        for n in 0..20_000 {
            if files.emptied(Ino(n)) {
                files.prune_emptied(|ino| ino.0 < REFERENCED);
            }
            most = most.max(lock(&files.table).emptied.len());
        }
        assert!((0..REFERENCED).all(|n| files.take_emptied(Ino(n))), "a referenced file was forgotten");
        assert!(most <= 2 * REFERENCED as usize + 1, "{most} files");
    }

    /// F4: of users that leave together, one finds itself the last.
    #[test]
    fn a_file_whose_last_users_leave_together_is_not_in_use() {
        const ROUNDS: u32 = 100;
        let gate = Arc::new(FlushGate::new(Arc::new(MemDevice::new(vec![0; 4096]))));
        let files = Files::new(&CacheShares::new(1 << 20, 4096), gate);
        let all = std::sync::Barrier::new(3);
        let leaves = || {
            for n in 0..ROUNDS {
                let file = files.get(Ino(12 + n));
                all.wait();
                all.wait();
                drop(file);
            }
        };
        std::thread::scope(|scope| {
            (0..2).for_each(|_| drop(scope.spawn(leaves)));
            for _ in 0..ROUNDS {
                all.wait();
                let table = lock(&files.table);
                all.wait();
                // Both wait for the table, and one goes at the other's heels.
                std::thread::sleep(Duration::from_micros(300));
                drop(table);
            }
        });
        let left = (0..ROUNDS).filter(|n| files.has(Ino(12 + n))).count();
        assert_eq!(left, 0, "idle files in the table");
    }
}
