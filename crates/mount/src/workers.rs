//! The worker pool: which worker reads the next request of which queue, and how many do.
//!
//! ```text
//!             ┌────────── has not blocked: goes on reading ─────────┐
//! read a request ─> answer it ─────────────────────────────────────┤
//!      ^                │ about to block (device, lock, condition)  │
//!      │                └─> the last reader: an idle worker reads ──┴─> idle
//! ```
//! A queue is /dev/fuse, a ring, of which there is one for each CPU, or the requests that are answered again. One
//! worker reads a queue while requests come one after the other, so that no other thread is woken. A reader of another
//! than a ring that has taken [`REQUESTS_BEFORE_ANOTHER_READER`] requests without waiting for one lets another read
//! beside it, up to a bound (`readers=`, [`usual_readers`](crate::policy::usual_readers)); a reader that finds no
//! request while another reads becomes idle. A ring has one reader at a time.
//!
//! Guarantees: while the session lasts a worker reads each queue, or has been called to, unless all [`Workers::most`]
//! workers block or read, so that a slow fsync delays no other caller. Workers are started when all others block or
//! read, and end with the session. A reader that waits for the pool's own locks stays a reader: [`Workers::blocks`]
//! would else change the count of readers between its look at it and its change of it (L5).

use crate::policy::{MAX_BLOCKED, REQUESTS_BEFORE_ANOTHER_READER};
use quire_device::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use quire_device::sync::{Arc, Condvar, Mutex, lock_unannounced};
use std::cell::Cell;
use std::time::Duration;

thread_local! {
    /// The queue that the calling worker reads, or will when it has answered the request that it has.
    static READS: Cell<Option<QueueIndex>> = const { Cell::new(None) };
    /// Requests that it has taken without waiting for one.
    static IN_A_ROW: Cell<u32> = const { Cell::new(0) };
    /// The calling worker has blocked since it last became a reader.
    static IS_BLOCKED: Cell<bool> = const { Cell::new(false) };
    /// The calling thread has been a reader.
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// True if the calling thread is a worker of some session: what it does besides can wait.
pub(crate) fn is_worker() -> bool {
    IS_WORKER.get()
}

/// A source of requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct QueueIndex(pub usize);

/// /dev/fuse.
pub(crate) const DEV_QUEUE: QueueIndex = QueueIndex(0);

/// Requests that are answered again; the rings come after it.
pub(crate) const AGAIN_QUEUE: QueueIndex = QueueIndex(1);

/// Queues besides the rings.
pub(crate) const FIRST_RING: usize = 2;

/// Where a worker waits while it is idle.
#[derive(Default)]
pub(crate) struct Idle {
    /// The queue that it is called to.
    called: Mutex<Option<QueueIndex>>,
    changed: Condvar,
}

impl Idle {
    fn call(&self, queue: QueueIndex) {
        *lock_unannounced(&self.called) = Some(queue);
        self.changed.notify_one();
    }

    fn wait(&self) -> QueueIndex {
        let mut called = lock_unannounced(&self.called);
        loop {
            match called.take() {
                Some(queue) => return queue,
                // Not announced: the kernel can copy requests on a thread that waits here.
                None => called = self.changed.wait(called).expect("nobody panics with this lock"),
            }
        }
    }
}

#[derive(Default)]
struct Pool {
    /// Workers alive.
    workers: usize,
    /// By queue: workers that read it, or have been called to.
    readers: Vec<usize>,
    /// The last to become idle is called first: its memory is warm.
    idle: Vec<Arc<Idle>>,
}

/// The workers of a session.
pub(crate) struct Workers {
    /// Workers at most.
    most: usize,
    /// Workers that read a queue that is no ring at once, at most.
    readers: usize,
    pool: Mutex<Pool>,
    blocked: Arc<Blocked>,
    /// The session is over. Set under the lock of the pool, read also without it: readers ask before each request.
    over: AtomicBool,
    ended: Condvar,
}

/// Workers that have begun to wait for the device, a lock, or a condition with the request that they answer.
#[derive(Debug)]
pub(crate) struct Blocked {
    now: AtomicUsize,
    cpus: usize,
}

impl Default for Blocked {
    fn default() -> Self {
        Blocked { now: AtomicUsize::new(0), cpus: cpus() }
    }
}

impl Blocked {
    /// There are as many as CPUs: another request that can wait without a worker should.
    pub(crate) fn are_many(&self) -> bool {
        self.now.load(Ordering::Relaxed) >= self.cpus
    }
}

/// CPUs on which the daemon may run.
pub(crate) fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Workers at most, for so many queues.
pub(crate) fn most(queues: usize) -> usize {
    cpus().max(queues) + MAX_BLOCKED
}

impl Workers {
    /// Workers for so many queues, of which `readers` read one that is no ring at once, at most.
    pub(crate) fn new(queues: usize, readers: usize, blocked: Arc<Blocked>) -> Self {
        let pool = Mutex::new(Pool { readers: vec![0; queues], ..Pool::default() });
        Workers { most: most(queues), readers, pool, blocked, over: AtomicBool::new(false), ended: Condvar::new() }
    }

    /// All queues.
    pub(crate) fn queues(&self) -> usize {
        lock_unannounced(&self.pool).readers.len()
    }

    /// A worker begins. False if there are enough.
    pub(crate) fn begin(&self) -> bool {
        let mut p = lock_unannounced(&self.pool);
        let begins = p.workers < self.most && !self.is_over();
        p.workers += usize::from(begins);
        begins
    }

    /// A worker has ended.
    pub(crate) fn left(&self) {
        lock_unannounced(&self.pool).workers -= 1;
        self.ended.notify_all();
    }

    /// Makes the calling worker the reader of a queue: at once if one has none, else when it is called. `None` if it
    /// is to end.
    pub(crate) fn become_reader(&self, idle: &Arc<Idle>) -> Option<QueueIndex> {
        IS_WORKER.set(true);
        READS.set(None);
        if IS_BLOCKED.take() {
            self.blocked.now.fetch_sub(1, Ordering::Relaxed);
        }
        let mut p = lock_unannounced(&self.pool);
        if self.is_over() {
            return None;
        }
        let queue = match p.readers.iter().position(|readers| *readers == 0) {
            Some(queue) => {
                p.readers[queue] += 1;
                QueueIndex(queue)
            }
            None => {
                p.idle.push(idle.clone());
                drop(p);
                let queue = idle.wait();
                // A worker that is called to end is not counted among the readers.
                if self.is_over() {
                    return None;
                }
                queue
            }
        };
        IN_A_ROW.set(0);
        READS.set(Some(queue));
        Some(queue)
    }

    /// The calling reader finds no request. True if it is to wait for one; else another reader does, and it is to
    /// become idle.
    pub(crate) fn waits_for_requests(&self) -> bool {
        IN_A_ROW.set(0);
        let mut p = lock_unannounced(&self.pool);
        let Some(QueueIndex(queue)) = READS.get() else { return true };
        if p.readers[queue] == 1 || self.is_over() {
            return true;
        }
        p.readers[queue] -= 1;
        READS.set(None);
        false
    }

    /// The calling reader has taken a request, from elsewhere than a ring, without waiting for it. `hire` starts
    /// another worker, which has begun.
    pub(crate) fn took(&self, hire: impl FnOnce() -> bool) {
        let taken = IN_A_ROW.get() + 1;
        IN_A_ROW.set(taken % REQUESTS_BEFORE_ANOTHER_READER);
        if taken == REQUESTS_BEFORE_ANOTHER_READER
            && self.readers > 1
            && let Some(queue) = READS.get()
        {
            self.call_reader(queue, hire, self.readers);
        }
    }

    /// True if the calling worker still reads a queue, after it has answered a request.
    pub(crate) fn reads(&self) -> bool {
        READS.get().is_some()
    }

    /// True if the session is over.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// The calling thread is about to block. If it reads, another worker does from now on. `hire` starts another
    /// worker, which has begun.
    pub(crate) fn blocks(&self, hire: impl FnOnce() -> bool) {
        if let Some(queue) = READS.take() {
            self.blocked.now.fetch_add(1, Ordering::Relaxed);
            IS_BLOCKED.set(true);
            lock_unannounced(&self.pool).readers[queue.0] -= 1;
            self.call_reader(queue, hire, 1);
        }
    }

    /// Has an idle worker read the queue, or a new one, unless `enough` read it already.
    fn call_reader(&self, queue: QueueIndex, hire: impl FnOnce() -> bool, enough: usize) {
        let idle = {
            let mut p = lock_unannounced(&self.pool);
            if p.readers[queue.0] >= enough {
                return;
            }
            let idle = p.idle.pop();
            p.readers[queue.0] += usize::from(idle.is_some());
            idle
        };
        match idle {
            Some(idle) => idle.call(queue),
            // The new worker reads if nobody does by then.
            None if self.begin() && !hire() => self.left(),
            None => {}
        }
    }

    /// The session is over: all are called to end.
    pub(crate) fn end(&self) {
        let mut p = lock_unannounced(&self.pool);
        self.over.store(true, Ordering::Release);
        let idle = std::mem::take(&mut p.idle);
        drop(p);
        idle.iter().for_each(|i| i.call(DEV_QUEUE));
    }

    /// Waits until all workers have ended, or `timeout` has passed. True when they have.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> bool {
        let mut p = lock_unannounced(&self.pool);
        while p.workers > 0 {
            p = match timeout {
                None => quire_device::sync::wait(&self.ended, p),
                Some(t) => {
                    let (guard, timed_out) = self.ended.wait_timeout(p, t).expect("no worker panics while it counts");
                    if timed_out.timed_out() && guard.workers > 0 {
                        return false;
                    }
                    guard
                }
            };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_device::sync::{lock, thread, when_blocking};
    use std::sync::mpsc;

    const NOBODY: fn() -> bool = || panic!("a worker is idle");

    /// Another worker, which tells when it reads.
    fn other(workers: &Arc<Workers>) -> mpsc::Receiver<bool> {
        let (tell, told) = mpsc::channel();
        let theirs = workers.clone();
        assert!(workers.begin());
        let idle = lock(&workers.pool).idle.len();
        thread::spawn(move || tell.send(theirs.become_reader(&Arc::default()).is_some()));
        while lock(&workers.pool).idle.len() == idle {
            thread::yield_now();
        }
        told
    }

    /// Workers of one queue, of which the calling one reads, and `readers` may at once.
    fn one_reader(readers: usize) -> Arc<Workers> {
        let workers = Arc::new(Workers::new(1, readers, Arc::default()));
        assert!(workers.begin() && workers.become_reader(&Arc::default()).is_some());
        workers
    }

    #[test]
    fn an_idle_worker_that_is_called_to_end_is_no_reader() {
        let workers = one_reader(1);
        assert!(workers.begin());
        let (theirs, (go, gate)) = (workers.clone(), mpsc::channel::<()>());
        let ending = thread::spawn(move || {
            assert!(theirs.become_reader(&Arc::default()).is_none());
            gate.recv().unwrap();
            // It takes a lock on its way out.
            theirs.blocks(NOBODY);
        });
        while lock(&workers.pool).idle.is_empty() {
            thread::yield_now();
        }
        workers.end();
        workers.blocks(NOBODY);
        go.send(()).unwrap();
        ending.join().unwrap();
        assert_eq!(lock(&workers.pool).readers, [0]);
    }

    #[test]
    fn a_reader_that_blocks_is_replaced_once() {
        let workers = one_reader(2);
        let told = other(&workers);
        assert!(workers.reads());
        assert!(told.try_recv().is_err());
        workers.blocks(NOBODY);
        assert!(told.recv().unwrap(), "it reads while we block");
        workers.blocks(NOBODY);
        assert!(!workers.reads());
        assert_eq!(workers.blocked.now.load(Ordering::Relaxed), 1);
        workers.end();
        workers.become_reader(&Arc::default());
        assert_eq!(workers.blocked.now.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_crowd_of_requests_is_read_by_more_workers_up_to_the_bound() {
        let workers = one_reader(2);
        let (first, second) = (other(&workers), other(&workers));
        (1..REQUESTS_BEFORE_ANOTHER_READER).for_each(|_| workers.took(NOBODY));
        assert!(first.try_recv().is_err() && second.try_recv().is_err());
        workers.took(NOBODY);
        assert!(second.recv().unwrap(), "the last to become idle");
        (0..2 * REQUESTS_BEFORE_ANOTHER_READER).for_each(|_| workers.took(NOBODY));
        assert!(first.try_recv().is_err(), "two read, as many as may");
        assert!(!workers.waits_for_requests(), "another waits for the next request");
        assert!(!workers.reads());
    }

    #[test]
    fn a_crowd_of_requests_that_are_answered_again_is_read_by_more_workers() {
        let workers = Arc::new(Workers::new(2, 2, Arc::default()));
        let theirs = workers.clone();
        assert!(workers.begin());
        let of_other = thread::spawn(move || theirs.become_reader(&Arc::default())).join().unwrap();
        assert!(workers.begin());
        assert_eq!([of_other, workers.become_reader(&Arc::default())], [Some(DEV_QUEUE), Some(AGAIN_QUEUE)]);
        let told = other(&workers);
        (0..REQUESTS_BEFORE_ANOTHER_READER).for_each(|_| workers.took(NOBODY));
        assert!(told.recv().unwrap());
        assert_eq!(lock(&workers.pool).readers, [1, 2]);
    }

    #[test]
    fn a_request_that_was_waited_for_is_no_crowd() {
        let workers = one_reader(2);
        let told = other(&workers);
        for _ in 0..4 * REQUESTS_BEFORE_ANOTHER_READER {
            workers.took(NOBODY);
            assert!(workers.waits_for_requests());
        }
        assert!(told.try_recv().is_err());
    }

    #[test]
    fn no_worker_is_woken_for_a_reader_that_blocks_while_another_reads() {
        let workers = one_reader(2);
        let (first, second) = (other(&workers), other(&workers));
        (0..REQUESTS_BEFORE_ANOTHER_READER).for_each(|_| workers.took(NOBODY));
        assert!(second.recv().unwrap());
        workers.blocks(NOBODY);
        assert!(first.try_recv().is_err());
    }

    #[test]
    fn a_worker_is_hired_when_none_is_idle_up_to_the_bound() {
        let workers = Arc::new(Workers { most: 2, ..Workers::new(1, 2, Arc::default()) });
        let hired = Cell::new(0);
        let hire = || {
            hired.set(hired.get() + 1);
            true
        };
        assert!(workers.begin() && workers.become_reader(&Arc::default()).is_some());
        workers.blocks(hire);
        assert!(workers.become_reader(&Arc::default()).is_some(), "nobody reads: at once");
        workers.blocks(hire);
        assert_eq!(hired.get(), 1);
        assert_eq!(lock(&workers.pool).workers, 2);
    }

    /// No thread, or no memory for its requests: requests wait until the worker that blocks has answered its own.
    #[test]
    fn a_queue_whose_further_worker_cannot_start_is_read_again_by_the_one_that_blocked() {
        let workers = one_reader(2);
        for _ in 0..2 {
            workers.blocks(|| false);
            assert!(!workers.reads());
            assert_eq!(workers.become_reader(&Arc::default()), Some(DEV_QUEUE), "at once");
        }
        assert_eq!(lock(&workers.pool).workers, 1, "those that did not start are not counted");
        assert_eq!(lock(&workers.pool).readers, [1]);
    }

    #[test]
    fn a_reader_that_waits_for_the_pool_itself_stays_a_reader() {
        let workers = one_reader(2);
        let told = other(&workers);
        (0..REQUESTS_BEFORE_ANOTHER_READER).for_each(|_| workers.took(NOBODY));
        assert!(told.recv().unwrap(), "two read");
        let theirs = workers.clone();
        let (begin, begun) = mpsc::channel();
        let held = lock(&workers.pool);
        let reader = thread::spawn(move || {
            READS.set(Some(DEV_QUEUE));
            let (hook, blocks) = (theirs.clone(), std::rc::Rc::new(Cell::new(0)));
            let counted = blocks.clone();
            when_blocking(move || {
                counted.set(counted.get() + 1);
                hook.blocks(|| false);
            });
            begin.send(()).unwrap();
            (theirs.waits_for_requests(), theirs.reads(), blocks.get())
        });
        begun.recv().unwrap();
        // The reader comes to the lock meanwhile; if it does not, the test finds nothing.
        thread::sleep(Duration::from_millis(20));
        drop(held);
        assert_eq!(reader.join().unwrap(), (false, false, 0), "the other reads on; no call of `blocks`");
        assert_eq!(lock(&workers.pool).readers[0], 1);
    }

    #[test]
    fn each_queue_has_a_reader_and_one_that_blocks_is_replaced_at_its_own() {
        let workers = Arc::new(Workers::new(3, 1, Arc::default()));
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (tell, told) = mpsc::channel();
                let theirs = workers.clone();
                assert!(workers.begin());
                thread::spawn(move || tell.send(theirs.become_reader(&Arc::default())));
                told.recv().unwrap()
            })
            .collect();
        assert_eq!(readers, [Some(QueueIndex(0)), Some(QueueIndex(1))]);
        assert!(workers.begin());
        assert_eq!(workers.become_reader(&Arc::default()), Some(QueueIndex(2)));
        let told = other(&workers);
        workers.blocks(NOBODY);
        assert!(told.recv().unwrap());
        assert_eq!(lock(&workers.pool).readers, [1, 1, 1]);
    }

    #[test]
    fn the_end_is_told_to_all() {
        let workers = one_reader(2);
        let told = other(&workers);
        workers.end();
        assert!(!told.recv().unwrap());
        workers.left();
        assert!(!workers.wait(Some(Duration::from_millis(1))), "one is left");
        workers.left();
        assert!(workers.wait(None));
    }
}
