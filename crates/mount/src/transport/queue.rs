//! One queue of a connection over io_uring: a ring, and the entries that are registered with it.
//!
//! ```text
//!              register                    a request
//! no entry ──────────────> kernel has it ─────────────> in hand: served, or suspended
//!                                ^                             │
//!                                └───── reply, fetch next ─────┘
//! ```
//! Guarantees: an entry that the kernel has is kept here (M9).

use super::entry::{Entry, Owner};
use super::ring::{Completed, Ring};
use crate::policy::{FIRST_ENTRIES, MAX_ENTRIES, kept_payloads};
use quire_device::sync::atomic::{AtomicUsize, Ordering};
use quire_device::sync::{Arc, Mutex, lock_unannounced};
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// Entries of all queues of a mount.
pub(crate) type Registered = Arc<AtomicUsize>;

pub(crate) struct Queue {
    ring: Ring,
    entries: Mutex<Entries>,
    registered: Registered,
    /// Entries whose slot is below keep the memory of their payload.
    kept: usize,
}

#[derive(Default)]
struct Entries {
    /// By slot: the entries that the kernel has.
    with_kernel: Vec<Option<Entry>>,
    /// How many these are.
    lent: usize,
    /// Slots of entries that are no more.
    free_slots: Vec<usize>,
}

impl Entries {
    /// Entries that carry a request which is served, suspended, or being replied to.
    fn in_hand(&self) -> usize {
        self.with_kernel.len() - self.free_slots.len() - self.lent
    }
}

/// What a queue has for its reader.
pub(crate) enum Taken {
    Request(Entry),
    /// The kernel has let go of an entry, as it does when the connection ends.
    Gone(i32),
    /// Somebody has called.
    Called,
}

impl Queue {
    /// A queue of a connection with so many queues, whose descriptor outlives it.
    ///
    /// # Errors
    /// The host does not let us have a ring.
    pub(crate) fn new(
        connection: BorrowedFd<'_>,
        queue: u16,
        queues: usize,
        registered: Registered,
    ) -> std::io::Result<Queue> {
        let ring = Ring::new(connection, queue)?;
        Ok(Queue { ring, entries: Mutex::default(), registered, kept: kept_payloads(queues) })
    }

    /// Registers the first entries.
    ///
    /// # Errors
    /// There is no memory, or the kernel refuses them.
    pub(crate) fn register_first(&self, owner: &Owner) -> Result<(), Errno> {
        for _ in 0..FIRST_ENTRIES {
            let entry = self.new_entry()?;
            let order = self.ring.register(&entry);
            self.lend(entry, owner);
            self.ring.submit(&[order]);
        }
        // The kernel answers at once where it refuses. A request that has come already, as it may once the last queue
        // has an entry, stays for the queue's reader.
        match self.ring.peek() {
            Some(Completed::Gone(slot, result)) => {
                self.ring.take();
                self.back(slot);
                Err(Errno::from_raw_os_error(-result))
            }
            Some(Completed::Request(_) | Completed::Call) | None => Ok(()),
        }
    }

    fn new_entry(&self) -> Result<Entry, Errno> {
        if self.registered.fetch_add(1, Ordering::Relaxed) >= MAX_ENTRIES {
            self.registered.fetch_sub(1, Ordering::Relaxed);
            return Err(Errno::NOBUFS);
        }
        let slot = {
            let mut entries = lock_unannounced(&self.entries);
            entries.free_slots.pop().unwrap_or_else(|| {
                entries.with_kernel.push(None);
                entries.with_kernel.len() - 1
            })
        };
        Entry::new(slot).inspect_err(|_| {
            self.registered.fetch_sub(1, Ordering::Relaxed);
            lock_unannounced(&self.entries).free_slots.push(slot);
        })
    }

    /// The kernel is about to get this entry.
    fn lend(&self, mut entry: Entry, owner: &Owner) {
        owner.lent.fetch_add(1, Ordering::Relaxed);
        entry.owner = Some(owner.clone());
        let slot = entry.slot;
        let mut entries = lock_unannounced(&self.entries);
        let before = entries.with_kernel[slot].replace(entry);
        assert!(before.is_none(), "an entry in hand is not the kernel's");
        entries.lent += 1;
    }

    /// The kernel has given this entry back.
    fn back(&self, slot: usize) -> Entry {
        let mut entries = lock_unannounced(&self.entries);
        let mut entry = entries.with_kernel[slot].take().expect("the kernel has it until its completion");
        entries.lent -= 1;
        drop(entries);
        if let Some(owner) = entry.owner.take() {
            owner.lent.fetch_sub(1, Ordering::Relaxed);
        }
        entry
    }

    /// Hands replies to the kernel, in the name of the calling thread.
    pub(crate) fn commit(&self, replied: Vec<Entry>, owner: &Owner) {
        let orders: Vec<_> = replied.into_iter().map(|entry| self.prepare(entry, owner)).collect();
        self.ring.submit(&orders);
    }

    fn prepare(&self, mut entry: Entry, owner: &Owner) -> io_uring::squeue::Entry128 {
        let order = self.ring.commit(&mut entry);
        self.lend(entry, owner);
        order
    }

    /// What has come, if anything has. For the queue's reader.
    pub(crate) fn take(&self) -> Option<Taken> {
        Some(match self.ring.take()? {
            Completed::Call => Taken::Called,
            Completed::Request(slot) => Taken::Request(self.back(slot)),
            Completed::Gone(slot, result) => {
                drop(self.back(slot));
                self.registered.fetch_sub(1, Ordering::Relaxed);
                lock_unannounced(&self.entries).free_slots.push(slot);
                Taken::Gone(result)
            }
        })
    }

    /// Hands over a reply, if there is one, and waits until something has come. May return without.
    pub(crate) fn wait(&self, replied: Option<Entry>, owner: &Owner) {
        let order = replied.map(|entry| self.prepare(entry, owner));
        self.ring.submit_and_wait(order);
    }

    /// True if the kernel has no entry for the next request, or none but those of threads that are blocked.
    pub(crate) fn is_exhausted(&self) -> bool {
        let is_free = |entry: &Entry| entry.owner.as_ref().is_some_and(|o| !o.is_blocked.load(Ordering::Relaxed));
        !lock_unannounced(&self.entries).with_kernel.iter().flatten().any(is_free)
    }

    /// True if one request of this queue is in hand.
    pub(crate) fn has_one_in_hand(&self) -> bool {
        lock_unannounced(&self.entries).in_hand() == 1
    }

    /// Registers one more entry. False where there are enough.
    pub(crate) fn grow(&self, owner: &Owner) -> bool {
        match self.new_entry() {
            Ok(entry) => {
                let order = self.ring.register(&entry);
                self.lend(entry, owner);
                self.ring.submit(&[order]);
                true
            }
            Err(e) => {
                tracing::debug!("no further ring entry: {e}; requests wait until one is answered");
                false
            }
        }
    }

    /// True if this entry gives the memory of its payload back.
    pub(crate) fn gives_back(&self, entry: &Entry) -> bool {
        entry.slot >= self.kept
    }

    /// True if something waits for the reader.
    pub(crate) fn has_more(&self) -> bool {
        self.ring.has_completed()
    }

    /// Its reader sleeps at once, without polling before.
    pub(crate) fn never_spins(&self) {
        self.ring.never_spins();
    }

    /// Wakes the reader.
    pub(crate) fn call(&self) {
        self.ring.call();
    }
}

impl Drop for Queue {
    /// The kernel may still write into entries whose completion has not come: their memory stays.
    fn drop(&mut self) {
        for entry in lock_unannounced(&self.entries).with_kernel.drain(..).flatten() {
            std::mem::forget(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::tests::announces;
    use rustix::fd::AsFd;

    fn queue() -> Option<Queue> {
        let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()).unwrap();
        let queue = Queue::new(null.as_fd(), 0, 1, Registered::default());
        queue.inspect_err(|e| println!("nothing is tested: no io_uring here: {e}")).ok()
    }

    /// L5.
    #[test]
    fn a_reader_that_waits_for_the_entries_stays_a_reader() {
        let Some(queue) = queue() else { return };
        assert!(!announces(&queue.entries, || assert!(queue.is_exhausted())));
    }

    /// In a device operation the kernel can copy no request for a thread.
    #[test]
    fn an_entry_of_a_blocked_thread_is_not_free() {
        let Some(queue) = queue() else { return };
        let [one, other] = [Owner::default(), Owner::default()];
        queue.lend(queue.new_entry().unwrap(), &one);
        assert!(!queue.is_exhausted());
        one.is_blocked.store(true, Ordering::Relaxed);
        assert!(queue.is_exhausted());
        queue.lend(queue.new_entry().unwrap(), &other);
        assert!(!queue.is_exhausted());
        drop((queue.back(0), queue.back(1)));
        assert_eq!([&one, &other].map(|o| o.lent.load(Ordering::Relaxed)), [0, 0]);
    }

    #[test]
    fn requests_in_hand_are_counted() {
        let Some(queue) = queue() else { return };
        assert!(!queue.has_one_in_hand());
        let owner = Owner::default();
        for _ in 0..2 {
            queue.lend(queue.new_entry().unwrap(), &owner);
        }
        assert!(!queue.has_one_in_hand(), "the kernel has both");
        let one = queue.back(1);
        assert!(queue.has_one_in_hand());
        let other = queue.back(0);
        assert!(!queue.has_one_in_hand(), "two are in hand");
        queue.lend(one, &owner);
        assert!(queue.has_one_in_hand());
        drop(other);
    }
}
