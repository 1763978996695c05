//! The standard library's condition variable, except that a notification asks the kernel only if a thread waits.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{LockResult, MutexGuard, WaitTimeoutResult};
use std::time::Duration;

/// As [`std::sync::Condvar`]. A notification makes no system call while no thread waits.
#[derive(Debug, Default)]
pub struct Condvar {
    inner: std::sync::Condvar,
    /// Threads that wait. A thread counts itself while it holds the lock, so that later holders of the lock see it.
    waiting: AtomicUsize,
}

impl Condvar {
    #[must_use]
    pub const fn new() -> Self {
        Condvar { inner: std::sync::Condvar::new(), waiting: AtomicUsize::new(0) }
    }

    /// As [`std::sync::Condvar::wait`].
    ///
    /// # Errors
    /// Another holder of the lock panicked.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.counted(|inner| inner.wait(guard))
    }

    /// As [`std::sync::Condvar::wait_timeout`].
    ///
    /// # Errors
    /// Another holder of the lock panicked.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        d: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        self.counted(|inner| inner.wait_timeout(guard, d))
    }

    /// Waits as `wait` does; the caller holds the lock.
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
    }

    pub fn notify_all(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.inner.notify_all();
        }
    }
}
