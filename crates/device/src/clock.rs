//! Time as the engine sees it: a trait, so that a simulator can own it.

use crate::sync::{Mutex, lock};
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

/// Time that passes only when somebody sleeps or says so.
///
/// `sleep_until` of several threads overlaps as in reality; `sleep` counts from the present of whoever calls it.
#[derive(Debug)]
pub struct VirtualClock {
    now: Mutex<Duration>,
    /// Wall-clock time at the start.
    epoch: Duration,
}

impl VirtualClock {
    /// A clock at zero; wall-clock time starts at `epoch` since 1970.
    #[must_use]
    pub fn new(epoch: Duration) -> Self {
        VirtualClock { now: Mutex::new(Duration::ZERO), epoch }
    }

    /// Lets time pass.
    pub fn advance(&self, d: Duration) {
        *lock(&self.now) += d;
    }
}

impl Default for VirtualClock {
    /// Starts on 2020-01-01.
    fn default() -> Self {
        VirtualClock::new(Duration::from_secs(1_577_836_800))
    }
}

impl Clock for VirtualClock {
    fn monotonic(&self) -> Duration {
        *lock(&self.now)
    }

    fn realtime(&self) -> Duration {
        self.epoch + self.monotonic()
    }

    fn sleep(&self, d: Duration) {
        self.advance(d);
    }

    fn sleep_until(&self, t: Duration) {
        let mut now = lock(&self.now);
        *now = t.max(*now);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn virtual_time_passes_only_on_demand() {
        let clock = VirtualClock::default();
        let (start, wall) = (clock.monotonic(), clock.realtime());
        assert_eq!(clock.monotonic(), start);
        clock.sleep(Duration::from_secs(3600));
        clock.sleep_until(Duration::from_secs(10));
        assert_eq!(clock.monotonic() - start, Duration::from_secs(3600));
        clock.sleep_until(Duration::from_secs(7200));
        assert_eq!(clock.realtime() - wall, Duration::from_secs(7200));
    }

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
