//! Time that passes only on demand.

use quire_device::Clock;
use quire_device::sync::{Mutex, lock};
use std::time::Duration;

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
}
