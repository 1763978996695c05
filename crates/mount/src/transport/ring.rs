//! One io_uring for the entries of one FUSE queue: its submissions and completions.
//!
//! Guarantees: a submission that the kernel took gives one completion, which [`Ring::take`] gives once; to look at it
//! before ([`Ring::peek`]) does not take it (M11). Many threads may submit; one at a time takes completions.

use super::entry::Entry;
use super::spin::Spin;
use crate::policy::{COMPLETIONS, RING_RETRY_PAUSE, SUBMITTED_AT_ONCE};
use crate::wire::abi::uring;
use io_uring::{EnterFlags, IoUring, cqueue, opcode, squeue, types};
use quire_device::sync::{Mutex, lock_unannounced, thread};
use rustix::fd::{AsRawFd, BorrowedFd, RawFd};
use std::cell::Cell;
use std::convert::Infallible;

/// The completion of a call to look up, with no entry.
const CALL: u64 = u64::MAX;

/// What has completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Completed {
    /// The entry in this slot has a request.
    Request(usize),
    /// The kernel has let go of the entry in this slot.
    Gone(usize, i32),
    /// A call to look up.
    Call,
}

pub(super) struct Ring {
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    /// The connection: an open descriptor of `/dev/fuse`.
    connection: RawFd,
    queue: u16,
    submitting: Mutex<()>,
    /// What was looked at, and is not yet taken.
    taking: Mutex<Option<Completed>>,
    spin: Spin,
}

impl Ring {
    /// A ring for a queue of a connection, whose descriptor outlives it.
    ///
    /// # Errors
    /// The host does not let us have one.
    pub(super) fn new(connection: BorrowedFd<'_>, queue: u16) -> std::io::Result<Ring> {
        let places = u32::try_from(SUBMITTED_AT_ONCE).expect("a small constant");
        let mut how = IoUring::builder();
        // A polling reader is told of a request by a flag, not by an interrupt.
        how.dontfork().setup_cqsize(COMPLETIONS).setup_coop_taskrun().setup_taskrun_flag();
        let ring = how.build(places)?;
        let connection = connection.as_raw_fd();
        Ok(Ring { ring, connection, queue, submitting: Mutex::default(), taking: Mutex::default(), spin: Spin::new() })
    }

    /// The order by which an entry becomes known to the kernel.
    pub(super) fn register(&self, entry: &Entry) -> squeue::Entry128 {
        let mut order = self.order(uring::REGISTER, 0, entry, Some(entry.vectors()));
        let vectors: u32 = 2;
        let len_at = 24;
        let bytes = std::ptr::from_mut(&mut order).cast::<u8>();
        // SAFETY: `Entry128` is laid out as `struct io_uring_sqe` (128 bytes, `repr(C)`), whose `len` are the four
        // bytes at 24; the crate has no other way to set it for this command.
        unsafe { bytes.add(len_at).cast::<u32>().write_unaligned(vectors) };
        order
    }

    /// The order by which the kernel takes the reply in an entry.
    pub(super) fn commit(&self, entry: &mut Entry) -> squeue::Entry128 {
        let unique = entry.unique();
        self.order(uring::COMMIT_AND_FETCH, unique, entry, None)
    }

    fn order(&self, command: u32, commit_id: u64, entry: &Entry, address: Option<u64>) -> squeue::Entry128 {
        let mut about = [0; uring::CMD];
        about[uring::CMD_COMMIT_ID_AT..][..8].copy_from_slice(&commit_id.to_ne_bytes());
        about[uring::CMD_QUEUE_AT..][..2].copy_from_slice(&self.queue.to_ne_bytes());
        let slot = u64::try_from(entry.slot).expect("a small number");
        opcode::UringCmd80::new(types::Fd(self.connection), command).cmd(about).addr(address).build().user_data(slot)
    }

    /// Hands orders to the kernel. What they are about stays in place until its completion was taken.
    pub(super) fn submit(&self, orders: &[squeue::Entry128]) {
        let submitting = lock_unannounced(&self.submitting);
        for some in orders.chunks(SUBMITTED_AT_ONCE) {
            self.push(some);
            self.hand_over();
        }
        drop(submitting);
    }

    fn push(&self, orders: &[squeue::Entry128]) {
        // SAFETY: `submitting` is locked by the caller, and submission queues are made nowhere else.
        let mut queue = unsafe { self.ring.submission_shared() };
        // SAFETY: entries and the connection outlive the order: see `submit` and `Queue`.
        let pushed = unsafe { queue.push_multiple(orders) };
        assert!(pushed.is_ok(), "the queue has room: it is empty whenever `submitting` is free");
    }

    /// Until the kernel has taken all that was pushed.
    fn hand_over(&self) {
        loop {
            // SAFETY: `submitting` is locked by the caller, and submission queues are made nowhere else.
            if unsafe { self.ring.submission_shared() }.is_empty() {
                return;
            }
            match self.ring.submit() {
                Ok(_) => {}
                Err(e) => pause_if_short(&e),
            }
        }
    }

    /// Hands over an order, if there is one, and waits until something has completed: polls, or sleeps. May return
    /// without.
    pub(super) fn submit_and_wait(&self, order: Option<squeue::Entry128>) {
        if let Some(order) = order {
            self.submit(&[order]);
        }
        let slept = Cell::new(false);
        let look = || Ok::<_, Infallible>((slept.get() || self.look()).then_some(()));
        let sleep = || {
            slept.set(true);
            self.sleep();
            Ok(())
        };
        let Ok(()) = self.spin.until(look, sleep);
    }

    /// Until something has completed, or the kernel has something else for this thread.
    fn sleep(&self) {
        // What others have pushed is theirs to hand over: the kernel copies into an entry on the thread that did.
        // SAFETY: nothing is submitted, and there is no argument.
        let woken = unsafe { self.ring.submitter().enter::<()>(0, 1, EnterFlags::GETEVENTS.bits(), None) };
        if let Err(e) = woken {
            pause_if_short(&e);
        }
    }

    /// True if something has completed. The kernel copies a request when the thread that gave its entry calls it. It
    /// does not interrupt a thread that runs, which so copies at the next tick at the latest, but says that there is
    /// such work, of any thread.
    fn look(&self) -> bool {
        if self.has_completed() {
            return true;
        }
        let submitting = lock_unannounced(&self.submitting);
        // SAFETY: `submitting` is locked, and submission queues are made nowhere else.
        if !unsafe { self.ring.submission_shared() }.taskrun() {
            return false;
        }
        if let Err(e) = self.ring.submit() {
            pause_if_short(&e);
        }
        drop(submitting);
        self.has_completed()
    }

    /// Its reader sleeps at once.
    pub(super) fn never_spins(&self) {
        self.spin.never();
    }

    /// What has completed, if anything has.
    pub(super) fn take(&self) -> Option<Completed> {
        let mut peeked = lock_unannounced(&self.taking);
        peeked.take().or_else(|| self.next_completed())
    }

    /// What [`Ring::take`] will give next, if anything has completed. Not while a thread sleeps for completions: it
    /// would not see what was looked at.
    pub(super) fn peek(&self) -> Option<Completed> {
        let mut peeked = lock_unannounced(&self.taking);
        if peeked.is_none() {
            *peeked = self.next_completed();
        }
        *peeked
    }

    /// The caller holds `taking`.
    fn next_completed(&self) -> Option<Completed> {
        // SAFETY: `taking` is locked, and completion queues are made nowhere else.
        let done = unsafe { self.ring.completion_shared() }.next()?;
        Some(match (done.user_data(), done.result()) {
            (CALL, _) => Completed::Call,
            (slot, result) => {
                let slot = usize::try_from(slot).expect("a slot that we gave");
                if result == 0 { Completed::Request(slot) } else { Completed::Gone(slot, result) }
            }
        })
    }

    /// True if something has completed.
    pub(super) fn has_completed(&self) -> bool {
        let peeked = lock_unannounced(&self.taking);
        // SAFETY: `taking` is locked, and completion queues are made nowhere else.
        peeked.is_some() || !unsafe { self.ring.completion_shared() }.is_empty()
    }

    /// Wakes the thread that sleeps for completions.
    pub(super) fn call(&self) {
        self.submit(&[opcode::Nop::new().build().user_data(CALL).into()]);
    }
}

/// A signal or a change of the host's mind is no error: the next call tries again.
fn pause_if_short(e: &std::io::Error) {
    match e.raw_os_error() {
        Some(libc::EINTR) => {}
        Some(libc::EAGAIN | libc::EBUSY | libc::ENOMEM) => thread::sleep(RING_RETRY_PAUSE),
        _ => panic!("io_uring_enter refused our own ring: {e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transport::tests::announces;
    use rustix::fd::AsFd;

    fn ring() -> Option<Ring> {
        let null = rustix::fs::open("/dev/null", rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()).unwrap();
        Ring::new(null.as_fd(), 0).inspect_err(|e| println!("nothing is tested: no io_uring here: {e}")).ok()
    }

    /// L5.
    #[test]
    fn a_reader_that_waits_for_the_rings_own_locks_stays_a_reader() {
        let Some(ring) = ring() else { return };
        assert!(!announces(&ring.submitting, || ring.call()));
        assert!(!announces(&ring.taking, || assert!(ring.has_completed())));
        assert!(!announces(&ring.taking, || ring.submit_and_wait(None)));
        assert_eq!(ring.take(), Some(Completed::Call));
    }

    #[test]
    fn what_was_looked_at_is_taken_once() {
        let Some(ring) = ring() else { return };
        assert!(ring.peek().is_none() && ring.take().is_none());
        ring.call();
        assert_eq!([ring.peek(), ring.peek()], [Some(Completed::Call); 2]);
        assert!(ring.has_completed());
        assert_eq!([ring.take(), ring.take()], [Some(Completed::Call), None]);
        assert!(!ring.has_completed());
    }
}
