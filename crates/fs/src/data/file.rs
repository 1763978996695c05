//! One file's lock, and who may work on the file at the same time.
//!
//! *Guarantees* F2 (docs/invariants.md): one batch at a time writes a file back. A caller that changes the block map
//! under pages (truncate, punch, collapse, insert) works while no batch and no reader uses the file's blocks.

use super::pages::FileState;
use quire_device::Mutant;
use quire_device::sync::atomic::{AtomicUsize, Ordering};
use quire_device::sync::{Arc, Condvar, Mutex, MutexGuard, lock, wait};
use quire_layout::{FileBlock, Ino};
use std::ops::Range;

/// A file with pending data, or in use.
pub(crate) struct File {
    pub(in crate::data) ino: Ino,
    state: Mutex<FileState>,
    /// Readers and direct writes of the file's blocks. They come under the lock, and leave without it: a reader ends on
    /// a thread that ends others', too.
    readers: AtomicUsize,
    /// Callers that wait for batches and readers to finish. Changed under the lock.
    waiting: AtomicUsize,
    /// A batch or a reader has finished.
    finished: Condvar,
}

impl File {
    pub(in crate::data) fn new(ino: Ino) -> Self {
        File {
            ino,
            state: Mutex::default(),
            readers: AtomicUsize::new(0),
            waiting: AtomicUsize::new(0),
            finished: Condvar::new(),
        }
    }

    /// Locks the file against other writers. Batches and readers may be under way.
    pub(in crate::data) fn lock(&self) -> MutexGuard<'_, FileState> {
        lock(&self.state)
    }

    fn has_waiting(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Locks the file when no batch and no reader uses its blocks (F2).
    pub(in crate::data) fn exclusive(&self) -> MutexGuard<'_, FileState> {
        let mut s = self.lock();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while s.writing || self.readers.load(Ordering::SeqCst) > 0 {
            s = wait(&self.finished, s);
        }
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        self.finished.notify_all();
        s
    }

    /// Locks the file for a new batch, after the batch under way.
    pub(in crate::data) fn lock_for_batch(&self) -> MutexGuard<'_, FileState> {
        let mut s = self.lock();
        while s.writing || self.has_waiting() {
            s = wait(&self.finished, s);
        }
        s
    }

    /// As [`File::lock_for_batch`], if the file is free at once.
    pub(in crate::data) fn try_lock_for_batch(&self) -> Option<MutexGuard<'_, FileState>> {
        let s = self.state.try_lock().ok()?;
        (!s.writing && !self.has_waiting()).then_some(s)
    }

    /// Begins a batch; [`File::end_batch`] ends it.
    pub(in crate::data) fn begin_batch(&self, s: &mut FileState) {
        assert!(!s.writing, "one batch at a time");
        s.writing = true;
    }

    pub(in crate::data) fn end_batch(&self, mut s: MutexGuard<'_, FileState>) {
        s.writing = false;
        drop(s);
        self.finished.notify_all();
    }

    /// Registers a reader of the file's blocks.
    pub(in crate::data) fn reader(self: &Arc<Self>) -> (Reader, MutexGuard<'_, FileState>) {
        let mut s = self.lock();
        while self.has_waiting() {
            s = wait(&self.finished, s);
        }
        self.readers.fetch_add(1, Ordering::SeqCst);
        (Reader { file: self.clone() }, s)
    }

    /// Registers a direct write, if nothing of the file is pending and no other caller is in the way.
    pub(in crate::data) fn try_direct(
        self: &Arc<Self>,
        blocks: Range<FileBlock>,
    ) -> Option<(Direct, MutexGuard<'_, FileState>)> {
        let mut s = self.lock();
        if self.has_waiting() || s.has_pages() || s.size.is_some() || s.is_direct(&blocks) {
            return None;
        }
        self.readers.fetch_add(1, Ordering::SeqCst);
        s.direct.push(blocks.clone());
        Some((Direct { reader: Reader { file: self.clone() }, blocks }, s))
    }

    /// Waits until no direct write of any of these blocks is under way.
    pub(in crate::data) fn after_direct<'f>(
        &'f self,
        mut s: MutexGuard<'f, FileState>,
        blocks: &Range<FileBlock>,
    ) -> MutexGuard<'f, FileState> {
        while s.is_direct(blocks) {
            s = wait(&self.finished, s);
        }
        s
    }
}

/// While this lives, no other caller writes these blocks or changes their mapping (F19).
pub(in crate::data) struct Direct {
    /// Dropped last.
    reader: Reader,
    blocks: Range<FileBlock>,
}

impl Drop for Direct {
    fn drop(&mut self) {
        let file = &self.reader.file;
        let mut s = file.lock();
        let mine = s.direct.iter().position(|b| *b == self.blocks).expect("registered once");
        s.direct.swap_remove(mine);
        drop(s);
        file.finished.notify_all();
    }
}

/// While this lives, the file's blocks stay its own.
pub(in crate::data) struct Reader {
    file: Arc<File>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        let File { readers, finished, .. } = &*self.file;
        // A caller that waits says so before it looks for readers, and the last reader leaves before it looks for
        // callers that wait: one of both sees the other.
        let is_last = readers.fetch_sub(1, Ordering::SeqCst) == 1;
        if is_last && self.file.has_waiting() && !Mutant::ReaderLeavesUnheard.is_on() {
            // The caller has looked, and waits.
            drop(self.file.lock());
            finished.notify_all();
        }
    }
}
