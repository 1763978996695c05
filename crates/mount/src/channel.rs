//! One descriptor of the FUSE device: whole requests in, whole replies out.

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

const DEVICE: &str = "/dev/fuse";

/// A descriptor of the FUSE device.
pub(crate) struct Channel(OwnedFd);

impl Channel {
    pub(crate) fn new(fd: OwnedFd) -> Self {
        Channel(fd)
    }

    /// Opens the device; it belongs to no mount yet.
    pub(crate) fn open_device() -> Result<OwnedFd, Errno> {
        rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
    }

    /// Waits for the next request; `None` when the file system is unmounted.
    pub(crate) fn receive(&self, buf: &mut [u8]) -> Result<Option<usize>, Errno> {
        loop {
            match rustix::io::read(&self.0, &mut *buf) {
                Ok(n) => return Ok(Some(n)),
                Err(Errno::NODEV) => return Ok(None),
                // Interrupted, or the request was withdrawn before we had it.
                Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// True if a request waits.
    pub(crate) fn is_ready(&self) -> bool {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        matches!(rustix::event::poll(&mut fds, Some(&now)), Ok(n) if n > 0)
    }

    /// Sends a reply. `NOENT`: nobody waits for it any more.
    pub(crate) fn send(&self, reply: &[u8]) -> Result<(), Errno> {
        rustix::io::write(&self.0, reply).map(drop)
    }
}
