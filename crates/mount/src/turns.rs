//! Whose turn it is to take the next request.
//!
//! ```text
//!             ┌──── never had to wait: keeps its turn ────┐
//! take ─> receive ─> answer ─────────────────────────────┘
//!   ^                   │ about to wait (device, lock, condition)
//!   └── sits down <── answers to the end      the turn goes to who sits, or to a new worker
//! ```
//! One worker at a time waits for requests. While requests are answered from memory it is always the same one, so the
//! caller and it can share a CPU and no other thread is woken: on a virtual machine that is the difference between 10
//! and 50 us a request. Guarantees: while a worker waits for anything, another takes requests, so that a slow fsync
//! never holds up others, and a request that waits for another request (a freeze for its thaw) gets it.
//!
//! Where calls have been coming one after the other, a hand-over is put off for a millisecond, since it would only move
//! the next request to another CPU; [`Turns::watch`] makes it when the wait lasts longer. A request that came meanwhile
//! ends that. Where requests flow and none of them waits, it looks seldom, and no hand-over is put off: each look takes
//! the CPU from a caller.

use crate::halt_poll::HaltPoll;
use quire_device::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use quire_device::sync::{Arc, Condvar, Mutex, lock, thread};
use std::cell::Cell;
use std::time::Duration;

/// Workers at most, besides one for each CPU: so many requests can wait for the device, or for a lock whose holder
/// does. Requests that wait for a commit take no worker.
const MAX_BLOCKED: usize = 16;
/// After so many waits during which no request came, hand-overs are put off.
const QUIET: u32 = 8;
/// A put-off hand-over is made after one to two of these.
const TICK: Duration = Duration::from_millis(1);
/// Ticks without a request after which nobody watches any more.
const IDLE_TICKS: u32 = 50;
/// Ticks without a wait after which the watcher looks seldom, while requests flow.
const CALM_AFTER: u32 = 20;
/// Ticks between two of its looks then.
const SELDOM: u32 = 10;
/// Requests in a tick from which on idle CPUs poll, and ticks without a request after which they halt again.
const BUSY: u64 = 2;
const HALT_AFTER: u32 = 3;

/// What became of a worker's turn while it answered a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// It is still its own.
    Kept,
    /// The worker waits, and nobody takes requests until the watcher sees it; the number names this wait.
    PutOff(u64),
    /// Another has it. So many requests had come by then.
    Given(u64),
    /// Another has it, though nothing is waited for.
    Shared,
}

thread_local! {
    /// `None` while the thread is not answering a request.
    static TURN: Cell<Option<Turn>> = const { Cell::new(None) };
}

/// Where a worker sits until it is called.
#[derive(Default)]
pub(crate) struct Seat {
    called: Mutex<bool>,
    changed: Condvar,
}

impl Seat {
    fn call(&self) {
        *lock(&self.called) = true;
        self.changed.notify_one();
    }

    fn sit(&self) {
        let mut called = lock(&self.called);
        while !*called {
            called = quire_device::sync::wait(&self.changed, called);
        }
        *called = false;
    }
}

#[derive(Default)]
struct Pool {
    /// Workers alive.
    workers: usize,
    /// Somebody takes requests, or has been called to.
    taken: bool,
    /// Who sits; the last to sit down is called first: its memory is warm.
    seated: Vec<Arc<Seat>>,
    over: bool,
}

/// The order among the workers of a session.
pub(crate) struct Turns {
    /// Workers at most.
    most: usize,
    pool: Mutex<Pool>,
    ended: Condvar,
    /// The wait for which a hand-over is put off; 0 if there is none.
    put_off: AtomicU64,
    waits: AtomicU64,
    received: AtomicU64,
    /// Waits in a row during which no request came.
    quiet: AtomicU32,
    /// The watcher looks seldom.
    calm: AtomicBool,
    watcher_sleeps: AtomicBool,
    watcher: Seat,
}

impl Default for Turns {
    fn default() -> Self {
        let cpus = thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Turns {
            most: cpus + MAX_BLOCKED,
            pool: Mutex::default(),
            ended: Condvar::new(),
            put_off: AtomicU64::new(0),
            waits: AtomicU64::new(0),
            received: AtomicU64::new(0),
            quiet: AtomicU32::new(0),
            calm: AtomicBool::new(false),
            watcher_sleeps: AtomicBool::new(false),
            watcher: Seat::default(),
        }
    }
}

impl Turns {
    /// A worker begins. False if there are enough.
    pub(crate) fn begin(&self) -> bool {
        let mut p = lock(&self.pool);
        let room = p.workers < self.most && !p.over;
        p.workers += usize::from(room);
        room
    }

    /// A worker has ended.
    pub(crate) fn left(&self) {
        lock(&self.pool).workers -= 1;
        self.ended.notify_all();
    }

    /// Waits for the calling worker's turn. False if it is to end.
    pub(crate) fn take(&self, seat: &Arc<Seat>) -> bool {
        let mut p = lock(&self.pool);
        if p.over {
            return false;
        }
        if !p.taken {
            p.taken = true;
            return true;
        }
        p.seated.push(seat.clone());
        drop(p);
        seat.sit();
        !lock(&self.pool).over
    }

    /// The worker whose turn it is has got a request.
    pub(crate) fn received(&self) {
        self.received.fetch_add(1, Ordering::SeqCst);
        TURN.set(Some(Turn::Kept));
        if self.watcher_sleeps.load(Ordering::SeqCst) && self.watcher_sleeps.swap(false, Ordering::SeqCst) {
            self.watcher.call();
        }
    }

    /// The request is answered, but the caller not yet told: were others waiting?
    pub(crate) fn answered(&self, is_ready: impl Fn() -> bool) {
        let alone = match TURN.get() {
            Some(Turn::PutOff(_)) => !is_ready(),
            Some(Turn::Given(received)) => self.received.load(Ordering::Relaxed) == received,
            Some(Turn::Kept | Turn::Shared) | None => return,
        };
        let quiet = self.quiet.load(Ordering::Relaxed);
        self.quiet.store(if alone { quiet.saturating_add(1) } else { 0 }, Ordering::Relaxed);
    }

    /// The request is done. True if it is still the calling worker's turn.
    pub(crate) fn keeps(&self) -> bool {
        match TURN.take() {
            Some(Turn::Kept) => true,
            Some(Turn::PutOff(wait)) => self.takes_up(wait),
            Some(Turn::Given(_) | Turn::Shared) | None => false,
        }
    }

    /// The calling thread is about to wait: if it answers a request and has its turn still, the turn goes on. `hire`
    /// starts another worker, which has begun.
    pub(crate) fn waits(&self, hire: impl FnOnce() -> bool) {
        if TURN.get() != Some(Turn::Kept) {
            return;
        }
        let wait = self.waits.fetch_add(1, Ordering::Relaxed) + 1;
        if self.quiet.load(Ordering::Relaxed) >= QUIET {
            TURN.set(Some(Turn::PutOff(wait)));
            self.put_off.store(wait, Ordering::SeqCst);
            // Looked at after that: the watcher looks for what is put off after it has become calm.
            if !self.calm.load(Ordering::SeqCst) || !self.takes_up(wait) {
                return;
            }
        }
        TURN.set(Some(Turn::Given(self.received.load(Ordering::Relaxed))));
        self.hand_over(hire);
    }

    /// Ends the putting off of a hand-over. True for one caller only, who makes it, or takes the turn back.
    fn takes_up(&self, wait: u64) -> bool {
        wait != 0 && self.put_off.compare_exchange(wait, 0, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// The request that was received is long work, and others have come already: another worker takes them at once.
    pub(crate) fn share(&self, hire: impl FnOnce() -> bool) {
        TURN.set(Some(Turn::Shared));
        self.hand_over(hire);
    }

    fn hand_over(&self, hire: impl FnOnce() -> bool) {
        let seated = {
            let mut p = lock(&self.pool);
            let seated = p.seated.pop();
            p.taken = seated.is_some();
            seated
        };
        match seated {
            Some(seat) => seat.call(),
            // Whoever comes first takes it.
            None => drop(
                self.begin() && !hire() && {
                    self.left();
                    true
                },
            ),
        }
    }

    /// Makes hand-overs that were put off, has idle CPUs poll and calls `tick` while requests come, until the session
    /// is over.
    pub(crate) fn watch(&self, halt_poll: &HaltPoll, hire: impl Fn() -> bool, tick: impl Fn()) {
        let (mut idle, mut seen, mut received) = (0, 0, 0);
        // Ticks without a wait, and the last one.
        let (mut still, mut waits) = (0u32, 0);
        while !lock(&self.pool).over {
            if idle >= IDLE_TICKS {
                self.watcher_sleeps.store(true, Ordering::SeqCst);
                // Looked at again: who takes a request looks at the flag after it has counted it.
                if self.received.load(Ordering::SeqCst) == received {
                    self.watcher.sit();
                }
                self.watcher_sleeps.store(false, Ordering::SeqCst);
                idle = 0;
            }
            let ticks = if self.calm.load(Ordering::Relaxed) { SELDOM } else { 1 };
            thread::sleep(TICK * ticks);
            tick();
            let wait = self.put_off.load(Ordering::SeqCst);
            if wait == seen && self.takes_up(wait) {
                self.hand_over(&hire);
            }
            seen = wait;
            let now = self.received.load(Ordering::SeqCst);
            let busy = now - received >= BUSY * u64::from(ticks);
            if busy {
                halt_poll.set(true);
            } else if idle >= HALT_AFTER {
                halt_poll.set(false);
            }
            idle = if now == received && wait == 0 { idle + 1 } else { 0 };
            received = now;
            let last = self.waits.load(Ordering::Relaxed);
            still = if last == waits { still.saturating_add(ticks) } else { 0 };
            waits = last;
            self.calm.store(busy && still >= CALM_AFTER, Ordering::SeqCst);
            if self.put_off.load(Ordering::SeqCst) != 0 {
                self.calm.store(false, Ordering::SeqCst);
            }
        }
        halt_poll.set(false);
    }

    /// The session is over: all are called to end.
    pub(crate) fn end(&self) {
        let mut p = lock(&self.pool);
        p.over = true;
        let seated = std::mem::take(&mut p.seated);
        drop(p);
        seated.iter().for_each(|s| s.call());
        self.watcher.call();
    }

    /// Waits until all workers have ended, or `timeout` has passed. True when they have.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> bool {
        let mut p = lock(&self.pool);
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
    use std::sync::mpsc;
    use std::time::Instant;

    const NOBODY: fn() -> bool = || panic!("somebody sits");

    /// Another worker, which tells when it has got the turn.
    fn other(turns: &Arc<Turns>) -> mpsc::Receiver<bool> {
        let (tell, told) = mpsc::channel();
        let theirs = turns.clone();
        assert!(turns.begin());
        thread::spawn(move || tell.send(theirs.take(&Arc::default())));
        while lock(&turns.pool).seated.is_empty() {
            thread::yield_now();
        }
        told
    }

    fn with_turn() -> Arc<Turns> {
        let turns = Arc::new(Turns::default());
        assert!(turns.begin() && turns.take(&Arc::default()));
        turns
    }

    #[test]
    fn who_never_waits_keeps_its_turn_and_who_waits_hands_it_over() {
        let turns = with_turn();
        let told = other(&turns);
        turns.received();
        turns.answered(|| false);
        assert!(turns.keeps());
        // Waiting between requests is nobody's business.
        turns.waits(NOBODY);
        assert!(told.try_recv().is_err());
        turns.received();
        turns.waits(NOBODY);
        assert!(told.recv().unwrap(), "it has the turn while we wait");
        turns.waits(NOBODY);
        assert!(!turns.keeps());
    }

    #[test]
    fn in_quiet_a_hand_over_is_put_off_and_the_watcher_makes_it() {
        let turns = with_turn();
        turns.quiet.store(QUIET, Ordering::Relaxed);
        let told = other(&turns);
        turns.received();
        turns.waits(NOBODY);
        turns.answered(|| false);
        assert!(told.try_recv().is_err() && turns.keeps(), "a short wait");
        let watcher = {
            let turns = turns.clone();
            thread::spawn(move || turns.watch(&HaltPoll::default(), NOBODY, || ()))
        };
        turns.received();
        turns.waits(NOBODY);
        assert!(told.recv().unwrap(), "a long one");
        turns.answered(|| true);
        assert!(!turns.keeps());
        assert_eq!(turns.quiet.load(Ordering::Relaxed), 0, "a request that waited ends the quiet");
        turns.end();
        watcher.join().unwrap();
    }

    #[test]
    fn nothing_is_put_off_while_the_watcher_looks_seldom() {
        let turns = with_turn();
        turns.quiet.store(QUIET, Ordering::Relaxed);
        turns.calm.store(true, Ordering::Relaxed);
        let told = other(&turns);
        turns.received();
        turns.waits(NOBODY);
        assert_eq!(told.recv_timeout(Duration::from_secs(10)), Ok(true));
        assert!(!turns.keeps());
        assert_eq!(turns.put_off.load(Ordering::Relaxed), 0, "nor is anything left to make later");
    }

    #[test]
    fn the_watcher_looks_seldom_while_requests_flow_and_none_waits() {
        let turns = with_turn();
        let watcher = {
            let turns = turns.clone();
            thread::spawn(move || turns.watch(&HaltPoll::default(), NOBODY, || ()))
        };
        let began = Instant::now();
        let is = |calm| {
            assert!(began.elapsed() < Duration::from_secs(10), "not calm: {calm}");
            turns.calm.load(Ordering::Relaxed) == calm
        };
        let until = |calm, waits| {
            while !is(calm) {
                turns.received();
                turns.waits.fetch_add(u64::from(waits), Ordering::Relaxed);
                thread::yield_now();
            }
        };
        until(true, false);
        until(false, true);
        until(true, false);
        // No request at all.
        while !is(false) {
            thread::yield_now();
        }
        turns.end();
        watcher.join().unwrap();
    }

    #[test]
    fn long_work_is_shared_and_quiet_goes_on() {
        let turns = with_turn();
        turns.quiet.store(QUIET, Ordering::Relaxed);
        let told = other(&turns);
        turns.received();
        turns.share(NOBODY);
        assert!(told.recv().unwrap(), "it has the turn while we work");
        turns.received.fetch_add(1, Ordering::Relaxed);
        turns.waits(NOBODY);
        turns.answered(|| panic!("who shares does not look"));
        assert!(!turns.keeps());
        assert_eq!(turns.quiet.load(Ordering::Relaxed), QUIET);
    }

    #[test]
    fn the_end_is_told_to_all() {
        let turns = with_turn();
        let told = other(&turns);
        turns.end();
        assert!(!told.recv().unwrap());
        turns.left();
        assert!(!turns.wait(Some(Duration::from_millis(1))), "one is left");
        turns.left();
        assert!(turns.wait(None));
    }
}
