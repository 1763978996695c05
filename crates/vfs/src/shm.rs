//! The shared memory of a write-ahead log (the wal-index), on the heap, because all connections are of this process:
//! <https://sqlite.org/walformat.html#the_wal_index_file_format>.
//!
//! *Guarantees* (S2): of each of the eight locks there are many shared holders or one exclusive one. A region stays
//! where it is until the last handle has unmapped it, and the first handle afterwards finds zeros, so that SQLite
//! builds the index again from the log.

use crate::locks::Busy;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks of a wal-index (`SQLITE_SHM_NLOCK`).
pub(crate) const LOCKS: usize = 8;

/// The shared memory of one database.
#[derive(Default)]
pub(crate) struct SharedMemory(Mutex<Mapped>);

#[derive(Default)]
struct Mapped {
    /// Atomics, because SQLite changes them from several threads by pointers of its own.
    regions: Vec<Box<[AtomicU64]>>,
    handles: usize,
    locks: [Slot; LOCKS],
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Slot {
    sharers: usize,
    exclusive: bool,
}

/// What one handle has of the shared memory.
#[derive(Default)]
pub(crate) struct ShmHandle {
    mapped: bool,
    shared: [bool; LOCKS],
    exclusive: [bool; LOCKS],
}

impl SharedMemory {
    fn mapped(&self) -> MutexGuard<'_, Mapped> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Region `index`, of `bytes` bytes; `None`: it does not exist, and is not to be made.
    pub(crate) fn region(&self, handle: &mut ShmHandle, index: usize, bytes: usize, make: bool) -> Option<*mut u64> {
        let mut mapped = self.mapped();
        if !std::mem::replace(&mut handle.mapped, true) {
            mapped.handles += 1;
        }
        while make && mapped.regions.len() <= index {
            let words = bytes.div_ceil(size_of::<u64>());
            mapped.regions.push((0..words).map(|_| AtomicU64::new(0)).collect());
        }
        mapped.regions.get(index).and_then(|r| r.first()).map(AtomicU64::as_ptr)
    }

    /// Takes locks, shared or alone.
    ///
    /// # Errors
    /// Busy; none of them is then taken.
    pub(crate) fn lock(&self, handle: &mut ShmHandle, which: Range<usize>, exclusive: bool) -> Result<(), Busy> {
        let mut mapped = self.mapped();
        let free = which.clone().all(|n| {
            let slot = mapped.locks[n];
            let others = slot.sharers - usize::from(handle.shared[n]);
            handle.exclusive[n] || !slot.exclusive && (!exclusive || others == 0)
        });
        if !free {
            return Err(Busy);
        }
        for n in which {
            if exclusive && !handle.exclusive[n] {
                mapped.locks[n].exclusive = true;
                handle.exclusive[n] = true;
            } else if !exclusive && !handle.shared[n] {
                mapped.locks[n].sharers += 1;
                handle.shared[n] = true;
            }
        }
        Ok(())
    }

    /// Gives locks up.
    pub(crate) fn unlock(&self, handle: &mut ShmHandle, which: Range<usize>) {
        release(&mut self.mapped(), handle, which);
    }

    /// What other threads have written before their barrier is seen after this one.
    pub(crate) fn barrier(&self) {
        fence(Ordering::SeqCst);
        drop(self.mapped());
    }

    /// Ends a handle's use. After the last one the memory is gone.
    pub(crate) fn unmap(&self, handle: &mut ShmHandle) {
        let mut mapped = self.mapped();
        release(&mut mapped, handle, 0..LOCKS);
        if std::mem::take(&mut handle.mapped) {
            mapped.handles -= 1;
            if mapped.handles == 0 {
                mapped.regions.clear();
            }
        }
    }
}

fn release(mapped: &mut Mapped, handle: &mut ShmHandle, which: Range<usize>) {
    for n in which {
        if std::mem::take(&mut handle.exclusive[n]) {
            mapped.locks[n].exclusive = false;
        }
        if std::mem::take(&mut handle.shared[n]) {
            mapped.locks[n].sharers -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_are_shared_by_many_or_held_by_one() {
        let shm = SharedMemory::default();
        let (mut a, mut b) = (ShmHandle::default(), ShmHandle::default());
        assert_eq!(shm.lock(&mut a, 3..4, false), Ok(()));
        assert_eq!(shm.lock(&mut b, 3..4, false), Ok(()));
        assert_eq!(shm.lock(&mut a, 2..5, true), Err(Busy));
        assert_eq!(shm.lock(&mut b, 2..3, true), Ok(()), "a refused range is not taken in part");
        shm.unlock(&mut b, 2..4);
        assert_eq!(shm.lock(&mut a, 4..8, true), Ok(()));
        assert_eq!(shm.lock(&mut b, 7..8, false), Err(Busy));
        shm.unmap(&mut a);
        assert_eq!(shm.lock(&mut b, 0..8, true), Ok(()), "a handle that ends leaves no lock");
    }

    #[test]
    fn regions_stay_until_the_last_handle_ends_and_begin_with_zeros() {
        let shm = SharedMemory::default();
        let (mut a, mut b) = (ShmHandle::default(), ShmHandle::default());
        assert_eq!(shm.region(&mut a, 0, 32768, false), None);
        let first = shm.region(&mut a, 0, 32768, true).unwrap();
        shm.mapped().regions[0][5].store(7, Ordering::Relaxed);
        shm.region(&mut a, 3, 32768, true).unwrap();
        assert_eq!(shm.region(&mut b, 0, 32768, false), Some(first));
        shm.unmap(&mut a);
        shm.unmap(&mut a);
        assert_eq!(shm.mapped().regions[0][5].load(Ordering::Relaxed), 7);
        shm.unmap(&mut b);
        shm.region(&mut a, 0, 32768, true).unwrap();
        assert_eq!(shm.mapped().regions[0][5].load(Ordering::Relaxed), 0);
    }
}
