//! The only names for locks, atomics and threads above this crate: `std`'s; with the feature `scheduled` locks and
//! conditions that also serve threads in virtual time; with the feature `shuttle` shuttle's, so that interleavings can
//! be explored.
//!
//! A lock whose holder panicked aborts the process in the `quire` binary (`panic = "abort"`); in tests the
//! panic passes on. So a poisoned lock is never looked into: [`lock`] panics.

use crate::waits::{WaitFor, waiting};

#[cfg(not(any(feature = "scheduled", feature = "shuttle")))]
pub use crate::condvar::Condvar;
#[cfg(all(feature = "scheduled", not(feature = "shuttle")))]
pub use crate::scheduled::{Condvar, Mutex, MutexGuard};
#[cfg(not(feature = "shuttle"))]
pub use std::sync::{Arc, Weak, atomic};
#[cfg(not(any(feature = "scheduled", feature = "shuttle")))]
pub use std::sync::{Mutex, MutexGuard};
#[cfg(not(feature = "shuttle"))]
pub use std::{thread, thread_local};

#[cfg(feature = "shuttle")]
pub use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard, Weak, atomic};
#[cfg(feature = "shuttle")]
pub use shuttle::{thread, thread_local};

/// Locks; panics if another holder panicked.
#[cfg(feature = "shuttle")]
pub fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().expect("a holder of this lock panicked")
}

/// Locks; panics if another holder panicked.
#[cfg(not(feature = "shuttle"))]
pub fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    match m.try_lock() {
        Ok(guard) => guard,
        Err(_) => {
            before_blocking();
            waiting(WaitFor::Lock, || m.lock()).expect("a holder of this lock panicked")
        }
    }
}

/// As [`lock`], without [`before_blocking`]: for a lock that what `when_blocking` is given takes itself, or that its
/// caller waits for beside requests. It is only ever held for a short time, by whoever waits for no device.
pub fn lock_unannounced<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().expect("a holder of this lock panicked")
}

std::thread_local! {
    static WHEN_BLOCKING: std::cell::RefCell<Option<Box<dyn Fn()>>> = const { std::cell::RefCell::new(None) };
}

/// What the calling thread does whenever it is about to wait: for a device, a lock that is taken, or a condition. The
/// mount's workers let another one take the next request then. It must not wait itself.
pub fn when_blocking(hook: impl Fn() + 'static) {
    WHEN_BLOCKING.with(|h| *h.borrow_mut() = Some(Box::new(hook)));
}

/// The calling thread is about to wait.
pub fn before_blocking() {
    WHEN_BLOCKING.with(|h| {
        // Busy: it is being replaced.
        if let Ok(hook) = h.try_borrow()
            && let Some(hook) = &*hook
        {
            hook();
        }
    });
}

/// Waits on a condition; panics if another holder panicked.
pub fn wait<'a, T>(cv: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    before_blocking();
    waiting(WaitFor::Lock, || cv.wait(guard)).expect("a holder of this lock panicked")
}

/// Waits on a condition for a time that may come whenever another thread could go on; panics if another holder
/// panicked.
#[cfg(feature = "shuttle")]
pub fn wait_timeout<'a, T>(cv: &Condvar, guard: MutexGuard<'a, T>, _: std::time::Duration) -> MutexGuard<'a, T> {
    let over = atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(atomic::Ordering::SeqCst) {
                cv.notify_all();
                thread::yield_now();
            }
        });
        let guard = wait(cv, guard);
        over.store(true, atomic::Ordering::SeqCst);
        guard
    })
}

/// Waits on a condition for at most `d`; panics if another holder panicked. For threads that also have something else
/// to do, never for correctness.
#[cfg(not(feature = "shuttle"))]
pub fn wait_timeout<'a, T>(cv: &Condvar, guard: MutexGuard<'a, T>, d: std::time::Duration) -> MutexGuard<'a, T> {
    before_blocking();
    waiting(WaitFor::Lock, || cv.wait_timeout(guard, d)).expect("a holder of this lock panicked").0
}
