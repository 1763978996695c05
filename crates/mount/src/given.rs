//! What the caller has opened for the daemon, named by a path: `/dev/fd/N`, `/proc/self/fd/N`.
//!
//! As a directory, such a path is a descriptor of `/dev/fuse` that the caller has mounted already (libfuse's
//! convention, which container runtimes use). As an image, it is opened anew through the path, so that an image without
//! a name, or one in another mount namespace, can be mounted.
//!
//! *Relies on*: a daemon that was split off has the descriptors of the process that read the command line.

use rustix::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use rustix::fs::FileType;
use rustix::io::{Errno, FdFlags};
use std::path::{Path, PathBuf};

/// Device number of `/dev/fuse` (Documentation/admin-guide/devices.txt).
const FUSE_DEVICE: (u32, u32) = (10, 229);

/// The descriptor that a path names.
pub(crate) fn descriptor(path: &Path) -> Option<RawFd> {
    let text = path.to_str()?;
    let digits = ["/dev/fd/", "/proc/self/fd/"].iter().find_map(|p| text.strip_prefix(p))?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

/// A connection to the kernel that the caller has made and mounted.
///
/// # Errors
/// `EBADF` if the descriptor is not open, `ENODEV` if it is something else.
pub(crate) fn connection(fd: RawFd) -> Result<OwnedFd, Errno> {
    // SAFETY: the number is looked at once, and nothing in this process closes it meanwhile; a closed one is EBADF.
    let borrowed = unsafe { BorrowedFd::borrow_raw(fd) };
    let stat = rustix::fs::fstat(borrowed)?;
    let device = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    if !FileType::from_raw_mode(stat.st_mode).is_char_device() || device != FUSE_DEVICE {
        return Err(Errno::NODEV);
    }
    rustix::io::fcntl_setfd(borrowed, FdFlags::CLOEXEC)?;
    // SAFETY: it is open, and whoever names it on the command line gives it to this process; no other part of the
    // process knows its number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The device number of the file system behind a connection, as `/proc/self/mountinfo` writes it. `None` before
/// Linux 6.16, which does not tell it.
pub(crate) fn device_of(connection: &impl AsRawFd) -> Option<String> {
    let about = std::fs::read_to_string(format!("/proc/self/fdinfo/{}", connection.as_raw_fd())).ok()?;
    let minor: u32 = about.lines().find_map(|l| l.strip_prefix("fuse_connection:"))?.trim().parse().ok()?;
    Some(format!("0:{minor}"))
}

/// What a path of an image shows to users: for a descriptor, what it is of.
pub(crate) fn shown(path: &Path) -> PathBuf {
    std::fs::read_link(path).unwrap_or_else(|_| path.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_is_named_by_two_directories() {
        assert_eq!(descriptor(Path::new("/dev/fd/7")), Some(7));
        assert_eq!(descriptor(Path::new("/proc/self/fd/12")), Some(12));
        for other in ["/dev/fd/", "/dev/fd/x", "/dev/fd/-1", "/dev/fd/7/a", "/proc/1/fd/7", "7"] {
            assert_eq!(descriptor(Path::new(other)), None, "{other}");
        }
    }

    #[test]
    fn a_descriptor_of_something_else_is_refused() {
        let file = tempfile::tempfile().unwrap();
        assert_eq!(connection(file.as_raw_fd()).unwrap_err(), Errno::NODEV);
        assert_eq!(connection(1_000_000).unwrap_err(), Errno::BADF);
    }
}
