//! A lease on an image file (fcntl(2), `F_SETLEASE`): a program that opens or truncates the file waits in the host's
//! kernel until the lease is given back, or for `/proc/sys/fs/lease-break-time` seconds.
//!
//! *Guarantees*: a lease exists only while no other program has the file open (M8).
//!
//! *Relies on*: the host's file system is local and has leases; the file belongs to the caller, or the caller has
//! CAP_LEASE. The process blocks [`Lease::SIGNAL`] in all its threads: the kernel sends it when another program opens
//! the file.

use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;

/// A file on which leases are taken. What it holds ends when the file is closed everywhere in this process.
#[derive(Debug)]
pub struct Lease(OwnedFd);

impl Lease {
    /// What the kernel sends when somebody opens a file with a lease.
    pub const SIGNAL: libc::c_int = libc::SIGIO;

    /// # Errors
    /// No descriptor can be had.
    pub(crate) fn on(file: BorrowedFd<'_>) -> Result<Self, Errno> {
        Ok(Lease(rustix::io::fcntl_dupfd_cloexec(file, 0)?))
    }

    /// Takes a lease.
    ///
    /// # Errors
    /// `EAGAIN`: somebody has the file open. `EACCES`, `EINVAL`, `EOPNOTSUPP`: there are no leases here.
    pub fn take(&self) -> Result<(), Errno> {
        self.set(libc::F_WRLCK)
    }

    /// Gives it back: whoever waits goes on.
    ///
    /// # Errors
    /// The kernel has no such lease any more.
    pub fn give_back(&self) -> Result<(), Errno> {
        self.set(libc::F_UNLCK)
    }

    fn set(&self, kind: libc::c_int) -> Result<(), Errno> {
        // SAFETY: the descriptor is open; this call of fcntl takes a number and touches no memory of ours.
        let r = unsafe { libc::fcntl(self.0.as_fd().as_raw_fd(), libc::F_SETLEASE, kind) };
        if r == 0 { Ok(()) } else { Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO)) }
    }
}
