//! One descriptor of the FUSE device: whole requests in, whole replies out.
//!
//! A request that comes while nobody sleeps on the device costs neither its caller nor us a wake-up. So where requests
//! follow each other closely, who takes them looks for the next one for a while before it sleeps ([`LOOK`]), and gives
//! its CPU to whoever else wants it between two looks. It begins again when a request has come soon after it went to
//! sleep. Where somebody else does want the CPU, that is worse than sleep, since who wakes up is given a CPU sooner
//! than who has been looking: then it is left for a while, longer the longer and the more often we were kept waiting
//! ([`Rest`]).

use crate::apart;
use quire_device::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use quire_device::sync::thread;
use quire_device::{Clock, SystemClock};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::time::Duration;

const DEVICE: &str = "/dev/fuse";

/// How long the next request is looked for before we sleep: a program's own work between two calls.
const LOOK: Duration = Duration::from_micros(50);
/// So long the CPU is not offered to others: it costs more than the look itself.
const GREEDY: Duration = Duration::from_micros(10);
/// A request that comes sooner than this after the last one is worth looking for; a CPU that has halted takes a part of
/// it to wake.
const SOON: Duration = Duration::from_micros(200);
/// Somebody else wants our CPU for itself: the kernel's own short work takes less, a whole slice of the scheduler's
/// more.
const TAKEN: Duration = Duration::from_micros(500);
/// Nobody looks then for so many times as long as we were kept waiting. The kernel's own longer work comes alone.
const SHORT_REST: u32 = 2;
/// As many at most, where it comes again and again: looking thus costs a small part of the time.
const LONG_REST: u32 = 32;

/// A descriptor of the FUSE device.
pub(crate) struct Channel {
    fd: OwnedFd,
    /// There is a CPU besides the caller's.
    may_look: bool,
    /// The last request came soon.
    looks: AtomicBool,
    rest: Rest,
}

impl Channel {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        let unblocked =
            rustix::fs::fcntl_getfl(&fd).and_then(|flags| rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK));
        let may_look = unblocked.is_ok() && thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
        Channel { fd, may_look, looks: AtomicBool::new(false), rest: Rest::default() }
    }

    /// Opens the device; it belongs to no mount yet.
    pub(crate) fn open_device() -> Result<OwnedFd, Errno> {
        rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
    }

    /// Waits for the next request; `None` when the file system is unmounted.
    pub(crate) fn receive(&self, buf: &mut [u8]) -> Result<Option<usize>, Errno> {
        // When there was nothing to take.
        let mut since = None;
        let mut slept = false;
        let waited =
            |since: Option<Duration>| since.map_or(Duration::ZERO, |s| SystemClock.monotonic().saturating_sub(s));
        loop {
            match rustix::io::read(&self.fd, &mut *buf) {
                Ok(n) => {
                    if slept {
                        let looks = self.may_look && waited(since) < SOON && !self.rest.lasts(SystemClock.monotonic());
                        self.looks.store(looks, Ordering::Relaxed);
                    } else if self.looks.load(Ordering::Relaxed) {
                        apart::received();
                    }
                    return Ok(Some(n));
                }
                // Aborted: an unmount that overtook a request on its way here.
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(None),
                Err(Errno::AGAIN) => {
                    since.get_or_insert_with(|| SystemClock.monotonic());
                    let so_far = waited(since);
                    if self.looks.load(Ordering::Relaxed) && so_far < LOOK {
                        if so_far > GREEDY {
                            self.give_way();
                        }
                    } else {
                        slept = true;
                        self.sleep()?;
                    }
                }
                // Interrupted, or the request was withdrawn before we had it.
                Err(Errno::NOENT | Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Lets others have the CPU; if one takes it, we do not look for requests any more for a while.
    fn give_way(&self) {
        let before = SystemClock.monotonic();
        thread::yield_now();
        let after = SystemClock.monotonic();
        let away = after.saturating_sub(before);
        if away > TAKEN {
            self.rest.begin(after, away);
            self.looks.store(false, Ordering::Relaxed);
        }
    }

    /// Until a request waits, or the connection is over.
    fn sleep(&self) -> Result<(), Errno> {
        match rustix::event::poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// True if a request waits.
    pub(crate) fn is_ready(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(rustix::event::poll(&mut fds, Some(&now)), Ok(n) if n > 0)
    }

    /// Sends a reply. `NOENT`: nobody waits for it any more.
    pub(crate) fn send(&self, reply: &[u8]) -> Result<(), Errno> {
        rustix::io::write(&self.fd, reply).map(drop)
    }
}

/// When nobody looks for requests. Times are the monotonic clock's.
#[derive(Default)]
struct Rest {
    /// Nanoseconds.
    until: AtomicU64,
    /// Who is kept waiting before this is so again, in nanoseconds.
    again_until: AtomicU64,
    /// How many times as long as the wait the last one was.
    times: AtomicU32,
}

impl Rest {
    /// Whoever looked was kept waiting for `away`.
    fn begin(&self, now: Duration, away: Duration) {
        let again = ns(now) < self.again_until.load(Ordering::Relaxed);
        let times = if again { (self.times.load(Ordering::Relaxed) * 2).min(LONG_REST) } else { SHORT_REST };
        self.times.store(times, Ordering::Relaxed);
        self.until.store(ns(now + away * times), Ordering::Relaxed);
        self.again_until.store(ns(now + away * (times + LONG_REST)), Ordering::Relaxed);
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
    fn a_rest_is_short_and_grows_while_others_want_the_cpu_again_and_again() {
        let rest = Rest::default();
        let mut now = Duration::from_secs(1);
        assert!(!rest.lasts(now));
        let mut again = |pause: Duration| {
            now += pause;
            rest.begin(now, AWAY);
            let began = now;
            while rest.lasts(now) {
                now += AWAY;
            }
            (now - began).as_nanos() / AWAY.as_nanos()
        };
        // 31 of their slices after the last rest is soon, 32 is not.
        assert_eq!(again(Duration::ZERO), 2);
        for times in [4, 8, 16, 32, 32, 32] {
            assert_eq!(again(AWAY * 31), times);
        }
        assert_eq!(again(AWAY * 32), 2);
        assert_eq!(again(AWAY), 4);
    }
}
