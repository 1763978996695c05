//! What the calling thread has waited for, by reason: so that a slow call can be told from what made it slow.
//!
//! *Guarantees*: a wait counts once, for its outermost reason: a write that makes room in the log is a wait for log
//! space. A thread that does not wait takes no clock.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Why a thread waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitFor {
    /// A read of a device.
    Read,
    /// A write to a device.
    Write,
    /// A flush of a device, its own or one under way.
    Flush,
    /// A commit by another caller.
    Commit,
    /// Space in the log: a checkpoint that a commit needs.
    LogSpace,
    /// Free blocks: a commit that makes freed ones usable.
    FreeSpace,
    /// A lock, or another thread.
    Lock,
}

impl WaitFor {
    pub const ALL: [WaitFor; 7] = [
        WaitFor::Read,
        WaitFor::Write,
        WaitFor::Flush,
        WaitFor::Commit,
        WaitFor::LogSpace,
        WaitFor::FreeSpace,
        WaitFor::Lock,
    ];

    /// What it is called in statistics and messages.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            WaitFor::Read => "device_read",
            WaitFor::Write => "device_write",
            WaitFor::Flush => "flush",
            WaitFor::Commit => "commit",
            WaitFor::LogSpace => "log_space",
            WaitFor::FreeSpace => "free_space",
            WaitFor::Lock => "lock",
        }
    }
}

/// Time waited, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waited([u64; WaitFor::ALL.len()]);

impl Waited {
    /// Of this reason.
    #[must_use]
    pub fn of(&self, reason: WaitFor) -> Duration {
        Duration::from_nanos(self.0[reason as usize])
    }

    /// What was added since an earlier look on the same thread.
    #[must_use]
    pub fn since(&self, earlier: &Waited) -> Waited {
        let mut all = *self;
        all.0.iter_mut().zip(&earlier.0).for_each(|(now, then)| *now = now.saturating_sub(*then));
        all
    }

    /// Both together.
    #[must_use]
    pub fn plus(&self, other: &Waited) -> Waited {
        let mut all = *self;
        all.0.iter_mut().zip(&other.0).for_each(|(sum, more)| *sum = sum.saturating_add(*more));
        all
    }

    pub fn add(&mut self, reason: WaitFor, d: Duration) {
        let nanos = u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let sum = &mut self.0[reason as usize];
        *sum = sum.saturating_add(nanos);
    }

    /// True if there was no wait.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.0.iter().all(|n| *n == 0)
    }
}

std::thread_local! {
    static WAITED: Cell<Waited> = const { Cell::new(Waited([0; WaitFor::ALL.len()])) };
    /// The thread waits for a reason that counts already.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// What the calling thread has waited since it began.
#[must_use]
pub fn so_far() -> Waited {
    WAITED.get()
}

/// Counts a wait of the calling thread that is over, unless it was part of another.
pub fn waited(reason: WaitFor, d: Duration) {
    if !INSIDE.get() {
        let mut all = WAITED.get();
        all.add(reason, d);
        WAITED.set(all);
    }
}

/// Runs what waits for this reason.
pub fn waiting<T>(reason: WaitFor, wait: impl FnOnce() -> T) -> T {
    /// Also after a panic.
    struct Outside;
    impl Drop for Outside {
        fn drop(&mut self) {
            INSIDE.set(false);
        }
    }
    if INSIDE.replace(true) {
        return wait();
    }
    let outside = Outside;
    let start = Instant::now();
    let done = wait();
    drop(outside);
    waited(reason, start.elapsed());
    done
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_wait_within_a_wait_counts_for_the_outer_reason() {
        let before = so_far();
        waiting(WaitFor::LogSpace, || {
            waited(WaitFor::Write, Duration::from_secs(7));
            waiting(WaitFor::Flush, || std::thread::sleep(Duration::from_millis(2)));
        });
        waited(WaitFor::Read, Duration::from_millis(1));
        let all = so_far().since(&before);
        assert!(all.of(WaitFor::LogSpace) >= Duration::from_millis(2) && !all.is_none());
        assert_eq!(all.of(WaitFor::Write) + all.of(WaitFor::Flush), Duration::ZERO);
        assert_eq!(all.of(WaitFor::Read), Duration::from_millis(1));
    }
}
