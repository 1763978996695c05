//! Time as the engine sees it: a trait, so that a simulator can own it.

use std::cell::Cell;
use std::num::NonZeroU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A source of time.
pub trait Clock: Send + Sync {
    /// Time since an arbitrary start; never goes back.
    fn monotonic(&self) -> Duration;
    /// Wall-clock time since 1970.
    fn realtime(&self) -> Duration;
    /// The same for inode times: it may stand still for some milliseconds.
    fn file_time(&self) -> Duration {
        self.realtime()
    }
    /// Blocks the caller (or advances virtual time).
    fn sleep(&self, d: Duration);
    /// Blocks the caller until [`Clock::monotonic`] has reached `t` (or advances virtual time to it).
    fn sleep_until(&self, t: Duration) {
        let now = self.monotonic();
        if t > now {
            self.sleep(t - now);
        }
    }
}

/// The machine's own clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

/// How late the kernel may wake us from a short sleep, in nanoseconds; its own default is 50 us.
const SLACK: NonZeroU64 = NonZeroU64::new(1000).expect("not zero");

impl Clock for SystemClock {
    fn monotonic(&self) -> Duration {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        Duration::new(t.tv_sec.try_into().unwrap_or(0), t.tv_nsec.try_into().unwrap_or(0))
    }

    fn realtime(&self) -> Duration {
        SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
    }

    fn sleep(&self, d: Duration) {
        thread_local!(static EXACT: Cell<bool> = const { Cell::new(false) });
        if d < Duration::from_millis(10) && !EXACT.replace(true) {
            let _ = rustix::thread::set_current_timer_slack(Some(SLACK));
        }
        std::thread::sleep(d);
    }
}

/// As [`SystemClock`], for a volume that the kernel mounts: inode times are as of the kernel's last tick, a few
/// milliseconds ago at most. So its own file systems stamp their inodes, and so its page cache stamps those of ours. A
/// file that is written in the tick in which it was made has one time then, not two that differ.
#[derive(Clone, Copy, Debug, Default)]
pub struct TickClock;

impl Clock for TickClock {
    fn monotonic(&self) -> Duration {
        SystemClock.monotonic()
    }

    fn realtime(&self) -> Duration {
        SystemClock.realtime()
    }

    fn file_time(&self) -> Duration {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        Duration::new(t.tv_sec.try_into().unwrap_or(0), t.tv_nsec.try_into().unwrap_or(0))
    }

    fn sleep(&self, d: Duration) {
        SystemClock.sleep(d);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn system_time_goes_forward() {
        let before = SystemClock.monotonic();
        SystemClock.sleep_until(before + Duration::from_micros(200));
        assert!(SystemClock.monotonic() - before >= Duration::from_micros(200));
    }

    #[test]
    fn a_tick_is_not_in_the_future_and_not_long_ago() {
        let before = TickClock.file_time();
        let now = TickClock.realtime();
        assert!(before <= now && TickClock.file_time() + Duration::from_millis(100) > now);
    }
}
