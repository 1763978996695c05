//! Time as the engine sees it: a trait, so that a simulator can own it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A source of time.
pub trait Clock: Send + Sync {
    /// Time since an arbitrary start; never goes back.
    fn monotonic(&self) -> Duration;
    /// Wall-clock time since 1970, for inode times.
    fn realtime(&self) -> Duration;
    /// Blocks the caller (or advances virtual time).
    fn sleep(&self, d: Duration);
}

/// The machine's own clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Duration::new(t.tv_sec.try_into().unwrap_or(0), t.tv_nsec.try_into().unwrap_or(0))
    }

    fn realtime(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn sleep(&self, d: Duration) {
        std::thread::sleep(d);
    }
}
