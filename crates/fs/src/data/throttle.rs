//! The writeback throttle: how batches go to the device while commits go to it, too.
//!
//! ```text
//! enter ─> below the limit? ─> is a commit being written? wait for it ─> device ─> leave
//! ```
//! While commits are frequent, the pieces in the throttle take the device
//! [`MAX_DEVICE_TIME`](crate::policy::MAX_DEVICE_TIME) at most, by its measured pace: a commit waits for that much and
//! not for the whole batch. A caller that enters waits for one commit at most, so that commits without end do not stop
//! it.
//!
//! *Relies on*: a caller in the throttle waits for no handle, hold or file. A commit that is being written does not
//! either, nor for the throttle.

use crate::policy::MAX_DEVICE_TIME;
use quire_device::sync::{Condvar, Mutex, lock, wait};
use quire_device::waits::waiting;
use quire_device::{Pace, WaitFor};
use quire_journal::Journal;
use std::time::Duration;

/// The pieces that are on their way to the device.
#[derive(Default)]
pub(super) struct Throttle {
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Default)]
struct State {
    bytes: u64,
    /// When a piece was last complete, by the monotonic clock.
    completed: Duration,
}

/// A piece in the throttle, until it [leaves](Throttle::leave).
#[must_use]
pub(super) struct Entered {
    bytes: u64,
    since: Duration,
}

/// What the throttle decides by.
#[derive(Clone, Copy)]
pub(super) struct Traffic<'a> {
    pub journal: &'a Journal,
    pub pace: &'a Pace,
    /// True while commits are frequent.
    pub commits_are_frequent: &'a dyn Fn() -> bool,
    /// The monotonic clock.
    pub now: &'a dyn Fn() -> Duration,
}

impl Throttle {
    /// Waits until the device may be given so many bytes more.
    pub(super) fn enter(&self, bytes: u64, traffic: Traffic<'_>) -> Entered {
        let mut s = lock(&self.state);
        while !admit(&mut s, bytes, traffic) {
            s = waiting(WaitFor::Throttle, || wait(&self.left, s));
        }
        drop(s);
        // The limit may admit another piece.
        self.left.notify_one();
        entered(bytes, traffic)
    }

    /// As [`Throttle::enter`], if the limit admits the piece at once.
    pub(super) fn try_enter(&self, bytes: u64, traffic: Traffic<'_>) -> Option<Entered> {
        let admitted = admit(&mut lock(&self.state), bytes, traffic);
        admitted.then(|| entered(bytes, traffic))
    }

    /// A piece is complete. Others may enter, and the pace learns how long all pieces under way took together.
    pub(super) fn leave(&self, entered: Entered, traffic: Traffic<'_>) {
        let now = (traffic.now)();
        let mut s = lock(&self.state);
        let since = s.completed.max(entered.since);
        s.completed = now;
        s.bytes -= entered.bytes;
        drop(s);
        self.left.notify_one();
        traffic.pace.wrote(entered.bytes, now.saturating_sub(since));
    }
}

fn admit(s: &mut State, bytes: u64, traffic: Traffic<'_>) -> bool {
    let limit = || traffic.pace.bytes_in(MAX_DEVICE_TIME);
    let admitted = s.bytes == 0 || s.bytes + bytes <= limit() || !(traffic.commits_are_frequent)();
    s.bytes += if admitted { bytes } else { 0 };
    admitted
}

fn entered(bytes: u64, traffic: Traffic<'_>) -> Entered {
    waiting(WaitFor::Throttle, || traffic.journal.await_commit_in_flight());
    Entered { bytes, since: (traffic.now)() }
}
