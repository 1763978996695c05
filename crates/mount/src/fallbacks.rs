//! What a program does after an atomic update that failed, ordered as it expects.
//!
//! SQLite keeps its rollback journal in memory while it relies on an atomic update. When START, a write or COMMIT
//! fails, it writes the journal to a file and then the pages to the database, without an fsync between both (`pager.c`,
//! `sqlite3PagerCommitPhaseOne`, after `sqlite3JournalCreate`). A crash may then leave new pages and no journal.
//!
//! So the handle of a failed update is remembered with the thread that saw the failure. What this thread opens for
//! writing bypasses the kernel's cache, and is durable before the first plain write through the handle is taken.
//!
//! *Guarantees*: F26. *Relies on*: SQLite makes the journal by the thread that saw the failure, before it writes the
//! database.

use crate::policy::MAX_OPENED_AFTER_FAILURE;
use quire_device::sync::atomic::{AtomicUsize, Ordering};
use quire_device::sync::{Mutex, lock};
use quire_layout::Ino;
use quire_layout::number_map::NumberMap;

/// The handles of failed updates.
#[derive(Default)]
pub(crate) struct Fallbacks {
    by_handle: Mutex<NumberMap<u64, Fallback>>,
    /// The number of entries, for those who need not look.
    count: AtomicUsize,
}

struct Fallback {
    thread: u32,
    opened: Vec<Ino>,
}

impl Fallbacks {
    /// An update of this handle failed, and this thread was told.
    pub(crate) fn begin(&self, handle: u64, thread: u32) {
        let mut all = lock(&self.by_handle);
        all.insert(handle, Fallback { thread, opened: Vec::new() });
        self.count.store(all.len(), Ordering::SeqCst);
    }

    /// The handle begins another update, or is closed.
    pub(crate) fn end(&self, handle: u64) {
        if self.count.load(Ordering::SeqCst) > 0 {
            let mut all = lock(&self.by_handle);
            all.remove(&handle);
            self.count.store(all.len(), Ordering::SeqCst);
        }
    }

    /// A thread opens a file for writing. Returns true if the file has to bypass the kernel's cache.
    pub(crate) fn opens(&self, thread: u32, ino: Ino) -> bool {
        if self.count.load(Ordering::SeqCst) == 0 {
            return false;
        }
        let mut all = lock(&self.by_handle);
        let mut found = false;
        for fallback in all.values_mut().filter(|f| f.thread == thread && f.opened.len() < MAX_OPENED_AFTER_FAILURE) {
            fallback.opened.push(ino);
            found = true;
        }
        found
    }

    /// A plain write through a handle is about to be taken: makes durable what has to be before, by `fsync`.
    ///
    /// # Errors
    /// The first of `fsync`; all is still to be made durable then, and the write must not be taken.
    pub(crate) fn settle<E>(&self, handle: u64, fsync: impl FnMut(Ino) -> Result<(), E>) -> Result<(), E> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return Ok(());
        }
        let Some(opened) = lock(&self.by_handle).get(&handle).map(|f| f.opened.clone()) else { return Ok(()) };
        opened.into_iter().try_for_each(fsync)?;
        self.end(handle);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `settle` makes durable.
    fn settled(f: &Fallbacks, handle: u64) -> Vec<Ino> {
        let mut all = Vec::new();
        f.settle(handle, |ino| {
            all.push(ino);
            Ok::<_, ()>(())
        })
        .unwrap();
        all
    }

    #[test]
    fn what_the_thread_of_a_failed_update_opens_is_due_once_before_the_next_write() {
        let f = Fallbacks::default();
        assert!(!f.opens(7, Ino(20)), "no update has failed");
        f.begin(1, 7);
        assert!(f.opens(7, Ino(20)) && !f.opens(8, Ino(21)));
        assert_eq!(settled(&f, 2), []);
        assert_eq!(settled(&f, 1), [Ino(20)]);
        assert_eq!(settled(&f, 1), []);
        f.begin(1, 7);
        f.end(1);
        assert!(!f.opens(7, Ino(20)));
    }

    #[test]
    fn what_could_not_be_made_durable_is_due_before_the_next_write_again() {
        let f = Fallbacks::default();
        f.begin(1, 7);
        assert!(f.opens(7, Ino(20)) && f.opens(7, Ino(21)));
        assert_eq!(f.settle(1, |ino| if ino == Ino(21) { Err("I/O") } else { Ok(()) }), Err("I/O"));
        assert_eq!(settled(&f, 1), [Ino(20), Ino(21)]);
        assert_eq!(settled(&f, 1), []);
    }
}
