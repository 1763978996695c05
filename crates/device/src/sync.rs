//! The only names for locks, atomics and threads above this crate: `std`'s, or `shuttle`'s when the feature
//! `shuttle` is on, so that interleavings can be explored.
//!
//! A lock whose holder panicked aborts the process in the `quire` binary (`panic = "abort"`); in tests the
//! panic passes on. So a poisoned lock is never looked into: [`lock`] panics.

#[cfg(not(feature = "shuttle"))]
pub use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak, atomic};
#[cfg(not(feature = "shuttle"))]
pub use std::thread;

#[cfg(feature = "shuttle")]
pub use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard, Weak, atomic};
#[cfg(feature = "shuttle")]
pub use shuttle::thread;

/// Locks; panics if another holder panicked.
pub fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().expect("a holder of this lock panicked")
}

/// Waits on a condition; panics if another holder panicked.
pub fn wait<'a, T>(cv: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    cv.wait(guard).expect("a holder of this lock panicked")
}

/// Waits on a condition for at most `d`; panics if another holder panicked. For threads that also have something else
/// to do, never for correctness: `shuttle` has no time.
pub fn wait_timeout<'a, T>(cv: &Condvar, guard: MutexGuard<'a, T>, d: std::time::Duration) -> MutexGuard<'a, T> {
    cv.wait_timeout(guard, d).expect("a holder of this lock panicked").0
}
