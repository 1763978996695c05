//! Requests that are answered again, from the beginning: what they missed is in memory now.
//!
//! ```text
//! answer ─> metadata is missing ─> suspended; the device reads ─> Again ─> a worker answers it
//! ```
//! *Guarantees* L7: a request whose metadata the device reads takes no worker. What it did before it missed something
//! has changed nothing ([`quire_fs::without_waiting`]).

use crate::meter::Suspended;
use quire_device::WaitFor;
use quire_device::sync::{Condvar, Mutex, lock_unannounced};
use std::collections::VecDeque;

/// A request that was suspended before it was carried out.
pub(crate) struct Kept {
    /// Whole, as the kernel sent it.
    pub request: Vec<u8>,
    pub suspended: Suspended,
    /// What it has waited for.
    pub reason: WaitFor,
    /// How many times it found no space.
    pub refusals: usize,
    /// How many times it missed metadata.
    pub misses: usize,
}

/// Requests that can be answered again.
#[derive(Default)]
pub(crate) struct Again {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    ready: VecDeque<Kept>,
    ended: bool,
}

impl Again {
    pub(crate) fn put(&self, kept: Kept) {
        lock_unannounced(&self.queue).ready.push_back(kept);
        self.changed.notify_one();
    }

    /// The next request, if there is one.
    pub(crate) fn take_now(&self) -> Option<Kept> {
        lock_unannounced(&self.queue).ready.pop_front()
    }

    /// The next request, for the worker that reads this queue; waits for one. `None` when the session has ended.
    pub(crate) fn take(&self) -> Option<Kept> {
        let mut q = lock_unannounced(&self.queue);
        loop {
            if q.ended {
                return None;
            }
            match q.ready.pop_front() {
                Some(kept) => return Some(kept),
                // Not announced: who waits here still reads the queue, and the kernel can copy requests on it.
                None => q = self.changed.wait(q).expect("nobody panics with this lock"),
            }
        }
    }

    /// Ends the wait of [`Again::take`].
    pub(crate) fn end(&self) {
        lock_unannounced(&self.queue).ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::Meter;
    use crate::wire::Header;
    use crate::wire::abi::opcode;

    fn kept(number: u8) -> Kept {
        let header = Header { opcode: opcode::LOOKUP, unique: 2, node: 1, uid: 0, gid: 0, pid: 7, waits: false };
        let meter = Meter::new(None);
        let suspended = meter.suspend(meter.begin(&header));
        Kept { request: vec![number], suspended, reason: WaitFor::Read, refusals: 0, misses: 1 }
    }

    #[test]
    fn requests_come_in_order_until_the_session_ends() {
        let again = Again::default();
        std::thread::scope(|s| {
            let taker = s.spawn(|| [again.take(), again.take(), again.take()].map(|k| k.map(|k| k.request[0])));
            again.put(kept(1));
            again.put(kept(2));
            while !lock_unannounced(&again.queue).ready.is_empty() {
                std::thread::yield_now();
            }
            again.end();
            assert_eq!(taker.join().unwrap(), [Some(1), Some(2), None]);
        });
    }
}
