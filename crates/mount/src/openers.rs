//! Programs that open a mounted image: they may while it is mounted, and wait once it is unmounted, until it is clean.
//!
//! umount(8) and `fusermount3 -u` of an image file return while the daemon still empties the log: the kernel's FUSE
//! module waits for a last answer only on block devices. So the daemon holds a lease on the image file. An open(2) by
//! e2fsck, cp or another mount then waits in the kernel until the daemon has closed the file.
//!
//! ```text
//! open(image) ─> the kernel holds it back, SIGIO ─> connected?  give the lease back; take another when they are gone
//!                                                  └ unmounted? keep it until the image is clean and the file closed
//! ```
//!
//! *Guarantees*: M8: after an unmount has returned, a program that opens the image sees it clean, if no other program
//! had it open before and the image is clean within the host's lease-break-time (45 s).
//!
//! *Relies on*: an unmount breaks the connection before it returns.

use crate::session::Session;
use quire_device::sync::thread;
use quire_device::{Lease, sync::Arc};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::{AsFd, FromRawFd, OwnedFd};
use rustix::io::Errno;
use rustix::pipe::PipeFlags;

/// How soon a lease is tried again that another program's open file has prevented.
const RETRY: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Answers openers until it is dropped.
pub(crate) struct Openers(#[allow(dead_code, reason = "the thread sees it close")] OwnedFd);

impl Openers {
    /// # Errors
    /// The host has no leases for this file, or no thread could be had.
    pub(crate) fn start(lease: Arc<Lease>, session: Session) -> std::io::Result<Openers> {
        let holds = match lease.take() {
            Ok(()) => true,
            Err(Errno::AGAIN) => false,
            Err(e) => return Err(e.into()),
        };
        let (closes, ours) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        let mut watched = Watched { lease, session, holds, signals: signals()? };
        thread::Builder::new().name("quire-openers".to_owned()).spawn(move || while watched.step(&closes) {})?;
        Ok(Openers(ours))
    }
}

/// A descriptor that can be read when somebody opens the file.
fn signals() -> std::io::Result<OwnedFd> {
    // SAFETY: a signal set is plain data, made empty before it is used; the calls only read and write it. The
    // descriptor that signalfd has just made is ours.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, Lease::SIGNAL);
        match libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(std::io::Error::last_os_error()),
        }
    }
}

struct Watched {
    lease: Arc<Lease>,
    session: Session,
    holds: bool,
    signals: OwnedFd,
}

impl Watched {
    /// Waits for the next event. False when the mount is over: a lease that is held then ends with the file.
    fn step(&mut self, closes: &OwnedFd) -> bool {
        let mut fds = [
            PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(closes.as_fd(), PollFlags::IN),
        ];
        let polled = rustix::event::poll(&mut fds, (!self.holds).then_some(&RETRY));
        let (opened, over) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
        match polled {
            Err(Errno::INTR) => true,
            Err(_) => false,
            Ok(_) if over => false,
            Ok(0) => {
                self.holds = self.lease.take().is_ok();
                true
            }
            Ok(_) => {
                if opened {
                    self.opened();
                }
                true
            }
        }
    }

    fn opened(&mut self) {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        // The descriptor does not block: all signals that have come are read.
        while rustix::io::read(&self.signals, &mut info).is_ok() {}
        if self.holds && self.session.is_connected() {
            self.lease.give_back().ok();
            self.holds = false;
        }
    }
}
