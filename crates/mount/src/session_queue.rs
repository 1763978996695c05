//! A queue from which threads of a session take until the session ends.

use quire_device::sync::{Condvar, Mutex, lock_unannounced};
use std::collections::VecDeque;

/// What waits for a thread, in order.
pub(crate) struct SessionQueue<T> {
    queue: Mutex<Queue<T>>,
    changed: Condvar,
}

struct Queue<T> {
    ready: VecDeque<T>,
    /// Threads that wait for one.
    takers: usize,
    ended: bool,
}

impl<T> Default for SessionQueue<T> {
    fn default() -> Self {
        SessionQueue {
            queue: Mutex::new(Queue { ready: VecDeque::new(), takers: 0, ended: false }),
            changed: Condvar::new(),
        }
    }
}

impl<T> SessionQueue<T> {
    pub(crate) fn put(&self, one: T) {
        lock_unannounced(&self.queue).ready.push_back(one);
        self.changed.notify_one();
    }

    /// The next, if there is one.
    pub(crate) fn take_now(&self) -> Option<T> {
        lock_unannounced(&self.queue).ready.pop_front()
    }

    /// The next; waits for one. `None` when the session has ended.
    pub(crate) fn take(&self) -> Option<T> {
        let mut q = lock_unannounced(&self.queue);
        loop {
            if q.ended {
                return None;
            }
            match q.ready.pop_front() {
                Some(one) => return Some(one),
                // Not announced: a worker that waits here still reads the queue, and the kernel can copy requests on
                // it.
                None => {
                    q.takers += 1;
                    q = self.changed.wait(q).expect("nobody panics with this lock");
                    q.takers -= 1;
                }
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        lock_unannounced(&self.queue).ready.is_empty()
    }

    /// True if a thread waits for the next, or none is needed any more.
    pub(crate) fn has_taker(&self) -> bool {
        let q = lock_unannounced(&self.queue);
        q.takers > q.ready.len() || q.ended
    }

    /// Ends the wait of [`SessionQueue::take`].
    pub(crate) fn end(&self) {
        lock_unannounced(&self.queue).ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_device::sync::when_blocking;
    use std::cell::Cell;
    use std::rc::Rc;

    #[test]
    fn all_come_in_order_until_the_session_ends() {
        let queue = SessionQueue::default();
        std::thread::scope(|s| {
            let taker = s.spawn(|| [queue.take(), queue.take(), queue.take()]);
            queue.put(1);
            queue.put(2);
            while !lock_unannounced(&queue.queue).ready.is_empty() {
                std::thread::yield_now();
            }
            queue.end();
            assert_eq!(taker.join().unwrap(), [Some(1), Some(2), None]);
            assert_eq!(queue.take_now(), None);
        });
    }

    /// L5.
    #[test]
    fn a_worker_that_waits_here_stays_a_reader() {
        let queue = SessionQueue::default();
        std::thread::scope(|s| {
            let taker = s.spawn(|| {
                let announced = Rc::new(Cell::new(false));
                let seen = announced.clone();
                when_blocking(move || seen.set(true));
                (queue.take(), announced.get())
            });
            // It comes to wait meanwhile; if it does not, the test finds nothing.
            std::thread::sleep(std::time::Duration::from_millis(20));
            queue.put(());
            assert_eq!(taker.join().unwrap(), (Some(()), false));
        });
    }
}
