//! How a reader waits for the next request: it polls before it sleeps, where the last one came soon.
//!
//! A reader that has waited for a request only a moment polls the next time: within the spin window it looks without
//! waiting, and yields its CPU between two looks. If another thread takes the CPU for longer than the kernel's own
//! short work needs, polling backs off, for twice as long each time that it happens again soon.

use crate::policy::{CPU_TAKEN, LONG_BACKOFF, SHORT_BACKOFF, SPIN_AFTER, SPIN_BEFORE_YIELD, SPIN_WINDOW};
use quire_device::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use quire_device::sync::thread;
use quire_device::{Clock, SystemClock};
use std::time::Duration;

/// How the readers of one source of requests wait.
pub(super) struct Spin {
    /// They may poll: there is a CPU besides the caller's.
    may: AtomicBool,
    /// The last request came soon.
    spins: AtomicBool,
    backoff: Backoff,
}

impl Spin {
    pub(super) fn new() -> Self {
        let may = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
        Spin { may: AtomicBool::new(may), spins: AtomicBool::new(false), backoff: Backoff::default() }
    }

    /// Readers sleep at once.
    pub(super) fn never(&self) {
        self.may.store(false, Ordering::Relaxed);
    }

    /// Until `look` finds something: it is asked again and again, and after the spin window each time that `sleep` has
    /// returned.
    ///
    /// # Errors
    /// Those of `look` and `sleep`.
    pub(super) fn until<T, E>(
        &self,
        mut look: impl FnMut() -> Result<Option<T>, E>,
        mut sleep: impl FnMut() -> Result<(), E>,
    ) -> Result<T, E> {
        let since = SystemClock.monotonic();
        let waited = || SystemClock.monotonic().saturating_sub(since);
        let mut slept = false;
        loop {
            if let Some(found) = look()? {
                if slept {
                    let may = self.may.load(Ordering::Relaxed);
                    let spins = may && waited() < SPIN_AFTER && !self.backoff.lasts(SystemClock.monotonic());
                    self.spins.store(spins, Ordering::Relaxed);
                }
                return Ok(found);
            }
            let so_far = waited();
            if !self.spins.load(Ordering::Relaxed) || so_far >= SPIN_WINDOW {
                slept = true;
                sleep()?;
            } else if so_far > SPIN_BEFORE_YIELD {
                self.yield_cpu();
            }
        }
    }

    /// Lets another thread have the CPU; if one takes it, spinning backs off.
    fn yield_cpu(&self) {
        let before = SystemClock.monotonic();
        thread::yield_now();
        let after = SystemClock.monotonic();
        let away = after.saturating_sub(before);
        if away > CPU_TAKEN {
            self.backoff.begin(after, away);
            self.spins.store(false, Ordering::Relaxed);
        }
    }
}

/// When no reader spins. Times are the monotonic clock's.
#[derive(Default)]
struct Backoff {
    /// Nanoseconds.
    until: AtomicU64,
    /// A reader that loses its CPU before this has lost it again soon. In nanoseconds.
    again_until: AtomicU64,
    /// How many times as long as the yield the last backoff was.
    times: AtomicU32,
}

impl Backoff {
    /// A reader lost its CPU for `away`.
    fn begin(&self, now: Duration, away: Duration) {
        let again = ns(now) < self.again_until.load(Ordering::Relaxed);
        let times = if again { (self.times.load(Ordering::Relaxed) * 2).min(LONG_BACKOFF) } else { SHORT_BACKOFF };
        self.times.store(times, Ordering::Relaxed);
        self.until.store(ns(now + away * times), Ordering::Relaxed);
        self.again_until.store(ns(now + away * (times + LONG_BACKOFF)), Ordering::Relaxed);
    }

    fn lasts(&self, now: Duration) -> bool {
        ns(now) < self.until.load(Ordering::Relaxed)
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AWAY: Duration = Duration::from_millis(1);

    #[test]
    fn the_backoff_is_short_and_doubles_while_others_take_the_cpu_again_and_again() {
        let backoff = Backoff::default();
        let mut now = Duration::from_secs(1);
        assert!(!backoff.lasts(now));
        let mut again = |pause: Duration| {
            now += pause;
            backoff.begin(now, AWAY);
            let began = now;
            while backoff.lasts(now) {
                now += AWAY;
            }
            (now - began).as_nanos() / AWAY.as_nanos()
        };
        // 31 yields after the end of the last backoff is soon, 32 is not.
        assert_eq!(again(Duration::ZERO), 2);
        for times in [4, 8, 16, 32, 32, 32] {
            assert_eq!(again(AWAY * 31), times);
        }
        assert_eq!(again(AWAY * 32), 2);
        assert_eq!(again(AWAY), 4);
    }
}
