//! Changes that found no space and are tried again, because space may become free without anybody doing something for
//! it: the kernel gives up a file that was removed some milliseconds after rm(1) has returned.
//!
//! *Guarantees*: a change that waits for space takes no worker (L6). It is tried again after each of
//! [`WAITS_FOR_SPACE`], and then refused.
//!
//! *Relies on*: the thread that [takes](SpaceQueue::take) changes is no worker, and waits for nothing else.

use crate::again::Kept;
use crate::policy::WAITS_FOR_SPACE;
use quire_device::sync::{Condvar, Mutex, lock, wait, wait_timeout};
use std::time::Instant;

/// A change that waits.
struct PutOff {
    change: Kept,
    due: Instant,
}

/// The changes that wait.
#[derive(Default)]
pub(crate) struct SpaceQueue {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<PutOff>,
    ended: bool,
}

/// True if a change that was tried so many times is tried again.
pub(crate) fn is_tried_again(tries: usize) -> bool {
    tries < WAITS_FOR_SPACE.len()
}

impl SpaceQueue {
    /// Keeps a change that found no space.
    pub(crate) fn put(&self, change: Kept) {
        let due = Instant::now() + WAITS_FOR_SPACE[change.refusals - 1];
        lock(&self.queue).waiting.push(PutOff { change, due });
        self.changed.notify_one();
    }

    /// Waits for the next change that is to be tried again; `None` when the session has ended.
    pub(crate) fn take(&self) -> Option<Kept> {
        let mut q = lock(&self.queue);
        loop {
            if q.ended {
                return None;
            }
            let next = q.waiting.iter().enumerate().min_by_key(|(_, waiting)| waiting.due).map(|(n, w)| (n, w.due));
            let now = Instant::now();
            q = match next {
                None => wait(&self.changed, q),
                Some((n, due)) if due <= now => return Some(q.waiting.swap_remove(n).change),
                Some((_, due)) => wait_timeout(&self.changed, q, due - now),
            };
        }
    }

    /// Ends the wait of [`SpaceQueue::take`].
    pub(crate) fn end(&self) {
        lock(&self.queue).ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::{Meter, Suspended};
    use crate::wire::Header;
    use crate::wire::abi::opcode;
    use quire_device::WaitFor;

    fn suspended() -> Suspended {
        let header = Header { opcode: opcode::WRITE, unique: 2, node: 12, uid: 0, gid: 0, pid: 7, waits: false };
        let meter = Meter::new(None);
        meter.suspend(meter.begin(&header))
    }

    #[test]
    fn the_change_that_is_due_first_comes_first() {
        let queue = SpaceQueue::default();
        let last = WAITS_FOR_SPACE.len() - 1;
        let kept = |number, refusals| Kept {
            request: vec![number],
            suspended: suspended(),
            reason: WaitFor::FreeSpace,
            refusals,
            misses: 0,
        };
        queue.put(kept(1, last + 1));
        queue.put(kept(2, 1));
        let before = Instant::now();
        assert_eq!(queue.take().unwrap().request, [2]);
        let second = queue.take().unwrap();
        assert_eq!((second.request.as_slice(), second.refusals), ([1].as_slice(), last + 1));
        assert!(before.elapsed() >= WAITS_FOR_SPACE[last] / 2 && !is_tried_again(second.refusals));
    }

    #[test]
    fn the_end_of_the_session_ends_the_wait() {
        let queue = SpaceQueue::default();
        std::thread::scope(|s| {
            let taker = s.spawn(|| queue.take().is_none());
            queue.end();
            assert!(taker.join().unwrap());
        });
    }
}
