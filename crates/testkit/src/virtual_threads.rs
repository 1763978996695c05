//! Threads in virtual time: real threads of which one runs at a time, on a clock that goes on only when all of them
//! wait.
//!
//! So a hundred writers that wait for a modelled disk, for each other's commits and for their own next second behave as
//! they would on a machine whose processors cost nothing, every run takes the same virtual time, and five minutes pass
//! in seconds.
//!
//! ```text
//! running ──lock is taken, condition, sleep──> waiting ──unlocked, notified, time has come──> ready ──its turn──> running
//!                       nobody is ready: the clock goes on to the first sleeper; nobody sleeps: a deadlock, said aloud
//! ``` [`quire_device::sync`] tells about locks and conditions; this type is the [`Clock`]. Turns go in the order of
//! readiness.

use quire_device::Clock;
use quire_device::scheduled::{Scheduler, with_scheduler};
use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

thread_local! {
    static HERE: RefCell<Option<(VirtualThreads, usize)>> = const { RefCell::new(None) };
}

/// The calling thread's world and its number there, if it has one.
fn here() -> Option<(VirtualThreads, usize)> {
    HERE.with(|h| h.borrow().clone())
}

/// One of 64 bits for a place.
fn bit(place: usize) -> u64 {
    // Golden ratio: neighbours get different bits.
    1 << ((place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58)
}

/// A world of threads and its clock. Clones share it.
#[derive(Clone)]
pub struct VirtualThreads(Arc<World>);

struct World {
    state: Mutex<State>,
    /// Wall-clock time at the start, since 1970.
    epoch: Duration,
    /// How long inode times stand still; zero if they are exact.
    tick: Duration,
    /// Bits of the places where somebody waits, and perhaps more: who unlocks what nobody waits for, as nearly always,
    /// does no more than look here. Changed by the running thread only, and turns are passed on under the lock.
    waited_for: AtomicU64,
}

#[derive(Default)]
struct State {
    now: Duration,
    running: Option<usize>,
    ready: VecDeque<usize>,
    /// By time, then by who slept first.
    sleeping: BTreeSet<(Duration, u64, usize)>,
    slept: u64,
    /// By the address of a lock or a condition.
    waiting: HashMap<usize, VecDeque<usize>>,
    /// Of those who wait with an end: where, and as whom they sleep meanwhile.
    timed: HashMap<usize, (usize, (Duration, u64, usize))>,
    turns: Vec<Arc<Condvar>>,
    /// Threads that have not ended.
    alive: usize,
    /// A thread panicked, or all of them wait.
    broken: bool,
}

impl Default for VirtualThreads {
    /// Time starts at zero, the wall clock on 2020-01-01; inode times are exact.
    fn default() -> Self {
        Self::with_tick(Duration::ZERO)
    }
}

impl State {
    /// Whose turn it is next.
    fn next(&mut self) -> Option<usize> {
        if self.ready.is_empty() {
            let first = self.sleeping.pop_first()?;
            self.now = self.now.max(first.0);
            self.wake_up(first.2);
            // All of them whose time it is.
            while let Some(also) = self.sleeping.first().filter(|s| s.0 <= self.now).copied() {
                self.sleeping.remove(&also);
                self.wake_up(also.2);
            }
        }
        self.ready.pop_front()
    }

    /// A sleeper's time has come.
    fn wake_up(&mut self, who: usize) {
        if let Some((place, _)) = self.timed.remove(&who)
            && let Some(queue) = self.waiting.get_mut(&place)
        {
            queue.retain(|w| *w != who);
        }
        self.ready.push_back(who);
    }

    fn sleep(&mut self, me: usize, until: Duration) -> (Duration, u64, usize) {
        self.slept += 1;
        let place = (until, self.slept, me);
        self.sleeping.insert(place);
        place
    }

    /// The running thread lets go.
    fn pass_on(&mut self) {
        self.running = self.next();
        match self.running {
            Some(next) => self.turns[next].notify_one(),
            None if self.alive > 0 => {
                self.broken = true;
                self.turns.iter().for_each(|turn| turn.notify_one());
            }
            None => {}
        }
    }
}

impl VirtualThreads {
    /// As [`VirtualThreads::default`], where inode times are those of the last tick, as in the kernel: they stand still
    /// for so long.
    #[must_use]
    pub fn with_tick(tick: Duration) -> Self {
        let epoch = Duration::from_secs(1_577_836_800);
        VirtualThreads(Arc::new(World { state: Mutex::default(), epoch, tick, waited_for: AtomicU64::new(0) }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A thread that found the world broken has panicked with it.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs these threads to their end, each from the present on; returns what they return, in their order.
    ///
    /// # Panics
    /// If one of them panics, or all that are left wait for something that nobody will do.
    pub fn run<T: Send>(&self, threads: Vec<Box<dyn FnOnce() -> T + Send + '_>>) -> Vec<T> {
        {
            let mut s = self.state();
            assert!(s.alive == 0, "threads run in this world already");
            s.turns = threads.iter().map(|_| Arc::default()).collect();
            s.alive = threads.len();
            s.ready = (0..threads.len()).collect();
            s.pass_on();
        }
        let done = std::thread::scope(|scope| {
            let handles: Vec<_> = (threads.into_iter().enumerate())
                .map(|(me, body)| {
                    let world = self.clone();
                    scope.spawn(move || {
                        HERE.with(|h| *h.borrow_mut() = Some((world.clone(), me)));
                        let _end = End(&world);
                        world.wait_for_turn(world.state(), me);
                        with_scheduler(Rc::new(Thread { world: world.clone(), me }), body)
                    })
                })
                .collect();
            handles.into_iter().map(std::thread::ScopedJoinHandle::join).collect::<Vec<_>>()
        });
        done.into_iter().map(|d| d.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    }

    /// Waits until it is `me`'s turn.
    fn wait_for_turn(&self, mut s: MutexGuard<'_, State>, me: usize) {
        let turn = s.turns[me].clone();
        while s.running != Some(me) {
            assert!(!s.broken, "all threads wait, or one of them panicked");
            s = turn.wait(s).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wait_at(&self, me: usize, place: usize) {
        let mut s = self.state();
        self.waits(&mut s, me, place);
        s.pass_on();
        self.wait_for_turn(s, me);
    }

    fn waits(&self, s: &mut State, me: usize, place: usize) {
        s.waiting.entry(place).or_default().push_back(me);
        self.0.waited_for.fetch_or(bit(place), Ordering::Relaxed);
    }

    fn wait_at_most(&self, me: usize, place: usize, d: Duration) {
        let mut s = self.state();
        let until = s.now + d;
        let asleep = s.sleep(me, until);
        s.timed.insert(me, (place, asleep));
        self.waits(&mut s, me, place);
        s.pass_on();
        self.wait_for_turn(s, me);
    }

    fn wake(&self, place: usize, all: bool) {
        if self.0.waited_for.load(Ordering::Relaxed) & bit(place) == 0 {
            return;
        }
        let mut s = self.state();
        let State { waiting, ready, timed, sleeping, .. } = &mut *s;
        let Some(queue) = waiting.get_mut(&place) else { return };
        for who in queue.drain(..if all { queue.len() } else { 1.min(queue.len()) }) {
            if let Some((_, asleep)) = timed.remove(&who) {
                sleeping.remove(&asleep);
            }
            ready.push_back(who);
        }
        if queue.is_empty() {
            waiting.remove(&place);
            self.0.waited_for.store(waiting.keys().fold(0, |bits, p| bits | bit(*p)), Ordering::Relaxed);
        }
    }
}

/// One thread of a world, as its locks and conditions see it.
struct Thread {
    world: VirtualThreads,
    me: usize,
}

impl Scheduler for Thread {
    fn wait_for(&self, place: usize) {
        self.world.wait_at(self.me, place);
    }

    fn wait_for_at_most(&self, place: usize, d: Duration) {
        self.world.wait_at_most(self.me, place, d);
    }

    fn wake(&self, place: usize, all: bool) {
        self.world.wake(place, all);
    }
}

/// A thread's end, by return or by panic.
struct End<'a>(&'a VirtualThreads);

impl Drop for End<'_> {
    fn drop(&mut self) {
        let mut s = self.0.state();
        s.alive -= 1;
        if std::thread::panicking() {
            s.broken = true;
            s.turns.iter().for_each(|turn| turn.notify_one());
        } else {
            s.pass_on();
        }
    }
}

impl Clock for VirtualThreads {
    fn monotonic(&self) -> Duration {
        self.state().now
    }

    fn realtime(&self) -> Duration {
        self.0.epoch + self.monotonic()
    }

    fn file_time(&self) -> Duration {
        let now = self.realtime();
        let since_tick = now.as_nanos().checked_rem(self.0.tick.as_nanos()).unwrap_or(0);
        now - Duration::from_nanos(u64::try_from(since_tick).unwrap_or(0))
    }

    fn sleep(&self, d: Duration) {
        self.sleep_until(self.monotonic() + d);
    }

    /// A thread of the world waits; any other lets time pass at once.
    fn sleep_until(&self, t: Duration) {
        let me = here().filter(|(world, _)| Arc::ptr_eq(&world.0, &self.0));
        let mut s = self.state();
        let Some((_, me)) = me else {
            s.now = s.now.max(t);
            return;
        };
        if t <= s.now {
            return;
        }
        s.sleep(me, t);
        s.pass_on();
        self.wait_for_turn(s, me);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use quire_device::sync::{self, lock, wait};

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn sleeps_overlap_and_end_in_their_order() {
        let world = VirtualThreads::default();
        let seen = sync::Mutex::new(Vec::new());
        let sleeper = |n: u64| -> Box<dyn FnOnce() -> Duration + Send + '_> {
            let (world, seen) = (world.clone(), &seen);
            Box::new(move || {
                world.sleep(MS(10 * n));
                lock(seen).push(n);
                world.sleep(MS(100));
                world.monotonic()
            })
        };
        assert_eq!(world.run(vec![sleeper(3), sleeper(1), sleeper(2)]), [MS(130), MS(110), MS(120)]);
        assert_eq!(*lock(&seen), [1, 2, 3]);
        assert_eq!(world.monotonic(), MS(130));
    }

    #[test]
    fn who_waits_for_a_lock_or_a_condition_goes_on_when_it_comes() {
        let world = VirtualThreads::default();
        let (value, changed) = (sync::Mutex::new(0), sync::Condvar::new());
        let waiter = || {
            let mut v = lock(&value);
            while *v < 2 {
                v = wait(&changed, v);
            }
            world.monotonic()
        };
        // Holds the lock over its sleep: the waiter needs it after it was notified.
        let holder = || {
            world.sleep(MS(5));
            for _ in 0..2 {
                let mut v = lock(&value);
                *v += 1;
                changed.notify_all();
                world.sleep(MS(10));
            }
            world.monotonic()
        };
        let locker = || {
            world.sleep(MS(6));
            drop(lock(&value));
            world.monotonic()
        };
        let bodies: Vec<Box<dyn FnOnce() -> Duration + Send + '_>> =
            vec![Box::new(waiter), Box::new(holder), Box::new(locker)];
        assert_eq!(world.run(bodies), [MS(25), MS(25), MS(25)]);
    }

    #[test]
    fn who_waits_with_an_end_goes_on_when_it_is_woken_or_the_time_has_come() {
        let world = VirtualThreads::default();
        let (value, changed) = (sync::Mutex::new(()), sync::Condvar::new());
        let waiter = |each: u64| -> Box<dyn FnOnce() -> Duration + Send + '_> {
            let (world, value, changed) = (world.clone(), &value, &changed);
            Box::new(move || {
                let begun = world.monotonic();
                drop(sync::wait_timeout(changed, lock(value), MS(each)));
                let woken = world.monotonic();
                drop(sync::wait_timeout(changed, lock(value), MS(each)));
                // Nothing is left of the first wait.
                assert_eq!(world.monotonic() - woken, MS(each));
                woken - begun
            })
        };
        let waker = || {
            world.sleep(MS(20));
            changed.notify_all();
            MS(0)
        };
        assert_eq!(world.run(vec![waiter(10), waiter(50), Box::new(waker)]), [MS(10), MS(20), MS(0)]);
    }

    #[test]
    fn file_times_stand_still_within_a_tick_and_are_exact_without_one() {
        let (ticking, exact) = (VirtualThreads::with_tick(MS(4)), VirtualThreads::default());
        let begun = ticking.file_time();
        let times = [1, 2, 1, 3, 1].map(|ms| {
            [&ticking, &exact].iter().for_each(|world| world.sleep(MS(ms)));
            (ticking.file_time() - begun, exact.file_time() - begun)
        });
        assert_eq!(times.map(|t| t.0), [MS(0), MS(0), MS(4), MS(4), MS(8)]);
        assert_eq!(times.map(|t| t.1), [MS(1), MS(3), MS(4), MS(7), MS(8)]);
        assert_eq!(ticking.realtime(), exact.realtime());
    }

    #[test]
    #[should_panic(expected = "all threads wait")]
    fn a_deadlock_is_said_aloud() {
        let (value, changed) = (sync::Mutex::new(()), sync::Condvar::new());
        VirtualThreads::default()
            .run(vec![Box::new(|| drop(wait(&changed, lock(&value)))) as Box<dyn FnOnce() + Send>]);
    }
}
