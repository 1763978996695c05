//! The FUSE device, `/dev/fuse`: requests are read from it, replies and notices written to it.

use super::spin::Spin;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

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
    spin: Spin,
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
        let spin = Spin::new();
        if unblocked.is_err() {
            spin.never();
        }
        Channel { fd, spin }
    }

    /// Readers sleep at once.
    pub(crate) fn never_spins(&self) {
        self.spin.never();
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
        let look = || match self.receive_now(buf)? {
            Found::Request(n) => Ok(Some(Some(n))),
            Found::End => Ok(Some(None)),
            Found::Nothing => Ok(None),
        };
        self.spin.until(look, || self.sleep())
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
