//! Locks and conditions whose waits a [`Scheduler`] may decide (feature `scheduled`): for tests and laboratories in
//! which threads live in virtual time. A thread without a scheduler waits in the kernel, as with the plain ones.

use crate::condvar;
use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LockResult, PoisonError, TryLockError};
use std::time::Duration;

/// Decides when a thread that waits goes on. Places are addresses of locks and conditions.
pub trait Scheduler {
    /// Blocks the calling thread until `place` is woken.
    fn wait_for(&self, place: usize);
    /// As [`Scheduler::wait_for`], for at most `d`.
    fn wait_for_at_most(&self, place: usize, d: Duration);
    /// Wakes the threads that wait for `place`: all of them, or the first.
    fn wake(&self, place: usize, all: bool);
}

/// Threads that have a scheduler. While it is zero, no thread looks for its own.
static SCHEDULED: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static MINE: RefCell<Option<Rc<dyn Scheduler>>> = const { RefCell::new(None) };
}

/// Runs `f` on the calling thread with its waits decided by `scheduler`.
pub fn with_scheduler<T>(scheduler: Rc<dyn Scheduler>, f: impl FnOnce() -> T) -> T {
    struct End;
    impl Drop for End {
        fn drop(&mut self) {
            MINE.with(|m| *m.borrow_mut() = None);
            SCHEDULED.fetch_sub(1, Ordering::Relaxed);
        }
    }
    SCHEDULED.fetch_add(1, Ordering::Relaxed);
    MINE.with(|m| *m.borrow_mut() = Some(scheduler));
    let _end = End;
    f()
}

/// The calling thread's scheduler.
fn mine() -> Option<Rc<dyn Scheduler>> {
    if SCHEDULED.load(Ordering::Relaxed) == 0 {
        return None;
    }
    MINE.with(|m| m.borrow().clone())
}

fn is_scheduled() -> bool {
    mine().is_some()
}

fn wait_for(place: usize, unlock: impl FnOnce()) {
    if let Some(scheduler) = mine() {
        unlock();
        scheduler.wait_for(place);
    }
}

fn wake(place: usize, all: bool) {
    if let Some(scheduler) = mine() {
        scheduler.wake(place, all);
    }
}

/// As [`std::sync::Mutex`].
#[derive(Default)]
pub struct Mutex<T>(std::sync::Mutex<T>);

/// As [`std::sync::MutexGuard`].
#[must_use = "the lock is held as long as this lives"]
pub struct MutexGuard<'a, T> {
    // Dropped first.
    guard: std::sync::MutexGuard<'a, T>,
    unlocks: Unlocks<'a, T>,
}

/// Wakes the threads that wait for the lock when it is free.
struct Unlocks<'a, T>(&'a Mutex<T>);

impl<T> Drop for Unlocks<'_, T> {
    fn drop(&mut self) {
        wake(self.0.place(), false);
    }
}

impl<T> Mutex<T> {
    pub const fn new(value: T) -> Self {
        Mutex(std::sync::Mutex::new(value))
    }

    fn place(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    fn guard<'a>(&'a self, guard: std::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard { guard, unlocks: Unlocks(self) }
    }

    /// As [`std::sync::Mutex::lock`].
    ///
    /// # Errors
    /// Another holder panicked.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        if is_scheduled() {
            loop {
                match self.try_lock() {
                    Ok(guard) => return Ok(guard),
                    Err(TryLockError::Poisoned(p)) => return Err(p),
                    Err(TryLockError::WouldBlock) => wait_for(self.place(), || ()),
                };
            }
        }
        match self.0.lock() {
            Ok(guard) => Ok(self.guard(guard)),
            Err(p) => Err(PoisonError::new(self.guard(p.into_inner()))),
        }
    }

    /// As [`std::sync::Mutex::try_lock`].
    ///
    /// # Errors
    /// It is taken, or another holder panicked.
    pub fn try_lock(&self) -> Result<MutexGuard<'_, T>, TryLockError<MutexGuard<'_, T>>> {
        match self.0.try_lock() {
            Ok(guard) => Ok(self.guard(guard)),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(p)) => Err(TryLockError::Poisoned(PoisonError::new(self.guard(p.into_inner())))),
        }
    }

    /// As [`std::sync::Mutex::into_inner`].
    ///
    /// # Errors
    /// A holder panicked.
    pub fn into_inner(self) -> LockResult<T> {
        self.0.into_inner()
    }

    /// As [`std::sync::Mutex::get_mut`].
    ///
    /// # Errors
    /// A holder panicked.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.0.get_mut()
    }
}

impl<T: fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.guard.fmt(f)
    }
}

/// As [`std::sync::WaitTimeoutResult`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

/// As [`std::sync::Condvar`].
#[derive(Debug, Default)]
pub struct Condvar(condvar::Condvar);

impl Condvar {
    #[must_use]
    pub const fn new() -> Self {
        Condvar(condvar::Condvar::new())
    }

    fn place(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// As [`std::sync::Condvar::wait`].
    ///
    /// # Errors
    /// Another holder of the lock panicked.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let mutex = guard.unlocks.0;
        if is_scheduled() {
            wait_for(self.place(), || drop(guard));
            return mutex.lock();
        }
        let MutexGuard { guard, unlocks } = guard;
        match self.0.wait(guard) {
            Ok(guard) => Ok(MutexGuard { guard, unlocks }),
            Err(p) => Err(PoisonError::new(MutexGuard { guard: p.into_inner(), unlocks })),
        }
    }

    /// As [`std::sync::Condvar::wait_timeout`]; a scheduled wait never reports a timeout.
    ///
    /// # Errors
    /// Another holder of the lock panicked.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        d: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let mutex = guard.unlocks.0;
        if let Some(scheduler) = mine() {
            drop(guard);
            scheduler.wait_for_at_most(self.place(), d);
            return match mutex.lock() {
                Ok(guard) => Ok((guard, WaitTimeoutResult(false))),
                Err(p) => Err(PoisonError::new((p.into_inner(), WaitTimeoutResult(false)))),
            };
        }
        let MutexGuard { guard, unlocks } = guard;
        match self.0.wait_timeout(guard, d) {
            Ok((guard, t)) => Ok((MutexGuard { guard, unlocks }, WaitTimeoutResult(t.timed_out()))),
            Err(p) => {
                let (guard, t) = p.into_inner();
                Err(PoisonError::new((MutexGuard { guard, unlocks }, WaitTimeoutResult(t.timed_out()))))
            }
        }
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
        wake(self.place(), false);
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
        wake(self.place(), true);
    }
}
