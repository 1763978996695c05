//! How other processes talk to a mount: private ioctls on its root directory (`'Q'`). They need no rights beyond
//! reaching the mount, except freeze and thaw.

use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::ffi::c_void;
use std::path::{Path, PathBuf};

/// Bytes of the answer that tells about the mount.
pub(crate) const ABOUT_SIZE: usize = 8192;
/// Bytes of the figures. An ioctl's size has 14 bits.
pub(crate) const STATS_SIZE: usize = 16000;

/// Commands: direction, size, type and number, as `_IO` and `_IOR` encode them.
const fn command(size: u32, number: u32) -> u32 {
    let read = if size == 0 { 0 } else { 2 << 30 };
    read | size << 16 | (b'Q' as u32) << 8 | number
}
pub(crate) const ABOUT: u32 = command(8192, 1);
pub(crate) const STATS: u32 = command(16000, 2);
pub(crate) const SYNC: u32 = command(0, 3);
pub(crate) const FREEZE: u32 = command(0, 4);
pub(crate) const THAW: u32 = command(0, 5);
/// On any file or directory: what is said about its data. Four bytes: 0 nothing, 1 journal, 2 ordered.
pub const GET_JOURNAL: u32 = command(4, 6);
pub const SET_JOURNAL: u32 = 1 << 30 | 4 << 16 | (b'Q' as u32) << 8 | 7;

/// What a mount tells about itself.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct About {
    /// The daemon's process.
    pub pid: u32,
    pub image: PathBuf,
    /// Where the file system starts in the image, in bytes.
    pub offset: u64,
    /// Nothing was written to it.
    pub read_only: bool,
    pub version: String,
}

/// A mounted file system, seen from another process.
pub struct Control {
    root: OwnedFd,
}

/// Why a mount could not be talked to.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    #[error("{}: {}", path.display(), crate::fail::words(*source))]
    Open { path: PathBuf, source: Errno },
    #[error("{}: not a Quire mount", .0.display())]
    NotQuire(PathBuf),
    #[error("{what}: {}", crate::fail::words(*source))]
    Refused { what: &'static str, source: Errno },
    #[error("the mount gave an answer that cannot be understood (another version?)")]
    Garbled,
}

impl Control {
    /// Finds the mount that `dir` is in.
    ///
    /// # Errors
    /// There is no such directory, or no Quire there.
    pub fn open(dir: &Path) -> Result<(Control, About), ControlError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(dir, flags, Mode::empty())
            .map_err(|source| ControlError::Open { path: dir.to_owned(), source })?;
        let control = Control { root };
        let about = match control.ask::<ABOUT, ABOUT_SIZE>() {
            Ok(text) => serde_json::from_str(&text).map_err(|_| ControlError::Garbled)?,
            Err(Errno::NOTTY | Errno::NOSYS | Errno::INVAL | Errno::OPNOTSUPP) => {
                return Err(ControlError::NotQuire(dir.to_owned()));
            }
            Err(source) => return Err(ControlError::Open { path: dir.to_owned(), source }),
        };
        Ok((control, about))
    }

    /// The figures of the mount, as JSON.
    ///
    /// # Errors
    /// The mount does not answer.
    pub fn stats(&self) -> Result<String, ControlError> {
        self.ask::<STATS, STATS_SIZE>().map_err(|source| ControlError::Refused { what: "stats", source })
    }

    /// Makes everything durable: what the kernel still holds, then what the volume does.
    ///
    /// # Errors
    /// Something could not be written.
    pub fn sync(&self) -> Result<(), ControlError> {
        self.write_cached("sync")?;
        self.tell::<SYNC>("sync")
    }

    /// Brings the image into a clean state and holds it there.
    ///
    /// # Errors
    /// Frozen already, not permitted, or something could not be written.
    pub fn freeze(&self) -> Result<(), ControlError> {
        self.write_cached("freeze")?;
        self.tell::<FREEZE>("freeze")
    }

    /// Ends a freeze.
    ///
    /// # Errors
    /// Not frozen, not permitted.
    pub fn thaw(&self) -> Result<(), ControlError> {
        self.tell::<THAW>("thaw")
    }

    /// The kernel hands over the pages that it holds.
    fn write_cached(&self, what: &'static str) -> Result<(), ControlError> {
        rustix::fs::syncfs(&self.root).map_err(|source| ControlError::Refused { what, source })
    }

    fn ask<const CMD: u32, const N: usize>(&self) -> Result<String, Errno> {
        let fd = rustix::fd::AsFd::as_fd(&self.root);
        let answer = ask::<CMD, N>(fd)?;
        let end = answer.iter().position(|b| *b == 0).unwrap_or(N);
        Ok(String::from_utf8_lossy(&answer[..end]).into_owned())
    }

    fn tell<const CMD: u32>(&self, what: &'static str) -> Result<(), ControlError> {
        // SAFETY: the command carries no data in either direction.
        unsafe { rustix::ioctl::ioctl(&self.root, rustix::ioctl::NoArg::<CMD>::new()) }
            .map_err(|source| ControlError::Refused { what, source })
    }
}

/// An ioctl that fills `N` bytes.
fn ask<const CMD: u32, const N: usize>(fd: BorrowedFd<'_>) -> Result<Box<[u8; N]>, Errno> {
    struct Ask<'a, const CMD: u32, const N: usize>(&'a mut [u8; N]);
    // SAFETY: the command encodes `N` as its size, so that the kernel writes no more than the array holds.
    unsafe impl<const CMD: u32, const N: usize> rustix::ioctl::Ioctl for Ask<'_, CMD, N> {
        type Output = ();
        const IS_MUTATING: bool = true;
        fn opcode(&self) -> rustix::ioctl::Opcode {
            CMD
        }
        fn as_ptr(&mut self) -> *mut c_void {
            self.0.as_mut_ptr().cast()
        }
        unsafe fn output_from_ptr(_: rustix::ioctl::IoctlOutput, _: *mut c_void) -> Result<(), Errno> {
            Ok(())
        }
    }
    let mut answer = Box::new([0; N]);
    // SAFETY: as above; the array lives until the call returns.
    unsafe { rustix::ioctl::ioctl(fd, Ask::<CMD, N>(&mut answer)) }?;
    Ok(answer)
}
