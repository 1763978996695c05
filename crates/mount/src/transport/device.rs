//! The FUSE device, `/dev/fuse`: requests are read from it, replies and notices written to it.
//!
//! A reader that has waited for a request only a moment polls before it sleeps the next time: within the spin window it
//! reads without waiting, and yields its CPU between two reads. If another thread takes the CPU for longer than the
//! kernel's own short work needs, polling backs off, for twice as long each time that it happens again soon.

use crate::policy::{CPU_TAKEN, LONG_BACKOFF, SHORT_BACKOFF, SPIN_AFTER, SPIN_BEFORE_YIELD, SPIN_WINDOW};
use quire_device::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use quire_device::sync::thread;
use quire_device::{Clock, SystemClock};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::time::Duration;

const DEVICE: &str = "/dev/fuse";

/// What a reader finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    /// A request of so many bytes.
    Request(usize),
    Nothing,
    /// The file system is unmounted.
    End,
}

/// A descriptor of the FUSE device.
pub(crate) struct Channel {
    fd: OwnedFd,
    /// There is a CPU besides the caller's.
    may_spin: bool,
    /// The last request came soon.
    spins: AtomicBool,
    backoff: Backoff,
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Channel {
    /// False once the kernel has ended the connection.
    pub(crate) fn is_connected(&self) -> bool {
        let mut fds = [PollFd::new(&self.fd, PollFlags::empty())];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        !matches!(rustix::event::poll(&mut fds, Some(&at_once)), Ok(1..)) || fds[0].revents().is_empty()
    }

    pub(crate) fn new(fd: OwnedFd) -> Self {
        let unblocked =
            rustix::fs::fcntl_getfl(&fd).and_then(|flags| rustix::fs::fcntl_setfl(&fd, flags | OFlags::NONBLOCK));
        let may_spin = unblocked.is_ok() && std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
        Channel { fd, may_spin, spins: AtomicBool::new(false), backoff: Backoff::default() }
    }

    /// Readers sleep at once.
    pub(crate) fn never_spins(&mut self) {
        self.may_spin = false;
    }

    /// Opens the device; it belongs to no mount yet.
    pub(crate) fn open_device() -> Result<OwnedFd, Errno> {
        rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
    }

    /// Reads the next request, if there is one.
    pub(crate) fn receive_now(&self, buf: &mut [u8]) -> Result<Found, Errno> {
        loop {
            match rustix::io::read(&self.fd, &mut *buf) {
                Ok(n) => return Ok(Found::Request(n)),
                // Aborted: an unmount that overtook a request on its way here.
                Err(Errno::NODEV | Errno::CONNABORTED) => return Ok(Found::End),
                Err(Errno::AGAIN) => return Ok(Found::Nothing),
                // Interrupted, or the request was withdrawn before we had it.
                Err(Errno::NOENT | Errno::INTR) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Waits for the next request; `None` when the file system is unmounted.
    pub(crate) fn receive(&self, buf: &mut [u8]) -> Result<Option<usize>, Errno> {
        let since = SystemClock.monotonic();
        let waited = || SystemClock.monotonic().saturating_sub(since);
        let mut slept = false;
        loop {
            match self.receive_now(buf)? {
                Found::Request(n) => {
                    if slept {
                        let spins =
                            self.may_spin && waited() < SPIN_AFTER && !self.backoff.lasts(SystemClock.monotonic());
                        self.spins.store(spins, Ordering::Relaxed);
                    }
                    return Ok(Some(n));
                }
                Found::End => return Ok(None),
                Found::Nothing => {
                    let so_far = waited();
                    if !self.spins.load(Ordering::Relaxed) || so_far >= SPIN_WINDOW {
                        slept = true;
                        self.sleep()?;
                    } else if so_far > SPIN_BEFORE_YIELD {
                        self.yield_cpu();
                    }
                }
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

    /// Until a request waits, or the connection is over.
    fn sleep(&self) -> Result<(), Errno> {
        match rustix::event::poll(&mut [PollFd::new(&self.fd, PollFlags::IN)], None) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Sends a reply or a notice. `NOENT`: nobody waits for it any more.
    pub(crate) fn send(&self, bytes: &[u8]) -> Result<(), Errno> {
        rustix::io::write(&self.fd, bytes).map(drop)
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
