//! The standard library's lock and condition, which also know of threads in virtual time ([`crate::virtual_threads`]):
//! a thread that lives there waits there. For all others they are what they wrap, and a look at one number.

use crate::virtual_threads::{is_virtual, wait_for, wait_for_at_most, wake};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LockResult, PoisonError, TryLockError};
use std::time::Duration;

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

/// Tells who waits that the lock is free.
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
        if is_virtual() {
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

/// As [`std::sync::Condvar`]. Where nobody waits, who notifies does not ask the kernel.
#[derive(Debug, Default)]
pub struct Condvar {
    inner: std::sync::Condvar,
    /// Threads that wait, counted under their locks: who has held the lock since sees them.
    waiting: AtomicUsize,
}

impl Condvar {
    #[must_use]
    pub const fn new() -> Self {
        Condvar { inner: std::sync::Condvar::new(), waiting: AtomicUsize::new(0) }
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
        if is_virtual() {
            wait_for(self.place(), || drop(guard));
            return mutex.lock();
        }
        let MutexGuard { guard, unlocks } = guard;
        match self.counted(|inner| inner.wait(guard)) {
            Ok(guard) => Ok(MutexGuard { guard, unlocks }),
            Err(p) => Err(PoisonError::new(MutexGuard { guard: p.into_inner(), unlocks })),
        }
    }

    /// As [`std::sync::Condvar::wait_timeout`]; says whether the time had come (in virtual time: nothing).
    ///
    /// # Errors
    /// Another holder of the lock panicked.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        d: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let mutex = guard.unlocks.0;
        if is_virtual() {
            wait_for_at_most(self.place(), d, || drop(guard));
            return match mutex.lock() {
                Ok(guard) => Ok((guard, WaitTimeoutResult(false))),
                Err(p) => Err(PoisonError::new((p.into_inner(), WaitTimeoutResult(false)))),
            };
        }
        let MutexGuard { guard, unlocks } = guard;
        match self.counted(|inner| inner.wait_timeout(guard, d)) {
            Ok((guard, t)) => Ok((MutexGuard { guard, unlocks }, WaitTimeoutResult(t.timed_out()))),
            Err(p) => {
                let (guard, t) = p.into_inner();
                Err(PoisonError::new((MutexGuard { guard, unlocks }, WaitTimeoutResult(t.timed_out()))))
            }
        }
    }

    /// Waits as `wait` does, by a thread that holds the lock.
    fn counted<T>(&self, wait: impl FnOnce(&std::sync::Condvar) -> T) -> T {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let waited = wait(&self.inner);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        waited
    }

    pub fn notify_one(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.inner.notify_one();
        }
        wake(self.place(), false);
    }

    pub fn notify_all(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.inner.notify_all();
        }
        wake(self.place(), true);
    }
}
