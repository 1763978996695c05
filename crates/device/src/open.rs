//! Opening an image file or a block device, once: how, with which lock, and why not.
//!
//! An image has one writer (M3). A file is locked with flock (shared for read-only), a block device is claimed with
//! `O_EXCL`, and a file that the kernel uses through a loop device is not opened for writing. A loop device's file is
//! locked with the device, so that it has one writer on both ways (H6). A file that was replaced during the wait for
//! its lock is opened again by its name. A lock of flock(2) belongs to the open file, which a forked child shares: who
//! is done with a device gives it up (`unlock`) instead of waiting for the last descriptor's end.

use crate::buf::{Buf, SECTOR};
use crate::busy::retry_while_busy;
use crate::holder::{self, Holder};
use crate::host::Host;
use crate::io::DeviceInfo;
use crate::policy::MAX_REPLACEMENTS;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags, Stat, StatxFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::io;
use std::path::{Path, PathBuf};

/// How to open an image or a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenOptions {
    pub read_only: bool,
    /// Where the device starts within the file, in bytes: a partition inside an image.
    pub offset: u64,
    /// Size of the device in bytes, if less than what follows `offset`.
    pub size: Option<u64>,
    /// Go past the host's page cache (`O_DIRECT`) where the host can.
    pub direct: bool,
    /// Lock it (see the module); false only for looking at what others have in use.
    pub lock: bool,
}

impl Default for OpenOptions {
    /// For reading and writing, whole, direct, locked.
    fn default() -> Self {
        OpenOptions { read_only: false, offset: 0, size: None, direct: true, lock: true }
    }
}

/// Why an image or a disk could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{}: no such file or device", .0.display())]
    NotFound(PathBuf),
    #[error("{}: permission denied", .0.display())]
    Permission(PathBuf),
    #[error("{}: the device or its file system is read-only", .0.display())]
    ReadOnly(PathBuf),
    #[error("{}: is a directory", .0.display())]
    IsDirectory(PathBuf),
    #[error("{}: neither a file nor a block device", .0.display())]
    WrongType(PathBuf),
    #[error("{}: in use by {holder}", path.display())]
    Busy { path: PathBuf, holder: Holder },
    #[error("{}: nothing to open at byte {offset}: it has {size} bytes", path.display())]
    BadRange { path: PathBuf, offset: u64, size: u64 },
    #[error("{}: the offset {offset} is not a multiple of the sector size, {sector}", path.display())]
    Unaligned { path: PathBuf, offset: u64, sector: u32 },
    #[error("{}: {what}: {source}", path.display())]
    Io { path: PathBuf, what: &'static str, source: io::Error },
}

impl OpenError {
    /// What could not be opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        match self {
            OpenError::NotFound(path)
            | OpenError::Permission(path)
            | OpenError::ReadOnly(path)
            | OpenError::IsDirectory(path)
            | OpenError::WrongType(path)
            | OpenError::Busy { path, .. }
            | OpenError::BadRange { path, .. }
            | OpenError::Unaligned { path, .. }
            | OpenError::Io { path, .. } => path,
        }
    }

    /// The system's number for this error.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            OpenError::NotFound(_) => Errno::NOENT.raw_os_error(),
            OpenError::Permission(_) => Errno::ACCESS.raw_os_error(),
            OpenError::ReadOnly(_) => Errno::ROFS.raw_os_error(),
            OpenError::IsDirectory(_) => Errno::ISDIR.raw_os_error(),
            OpenError::WrongType(_) => Errno::NOTBLK.raw_os_error(),
            OpenError::Busy { .. } => Errno::BUSY.raw_os_error(),
            OpenError::BadRange { .. } | OpenError::Unaligned { .. } => Errno::INVAL.raw_os_error(),
            OpenError::Io { source, .. } => source.raw_os_error().unwrap_or(Errno::IO.raw_os_error()),
        }
    }
}

/// An opened host file with what is known of it.
pub(crate) struct Opened {
    pub(crate) host: Host,
    pub(crate) info: DeviceInfo,
    pub(crate) direct: bool,
}

/// Opens, locks and looks at `path`.
pub(crate) fn open(path: &Path, how: OpenOptions) -> Result<Opened, OpenError> {
    let failed = |what| move |e| failure(path, what, e);
    // Looked at before it is opened: opening a FIFO waits, opening a tape rewinds it.
    let before = rustix::fs::stat(path).map_err(failed("stat"))?;
    let block_device = kind(path, &before)?;
    let (fd, mut direct, stat) = open_and_lock(path, how, block_device, &before)?;
    // Also where the kernel holds the claim on the device for us: it does not know who uses the file.
    let backing =
        if block_device && (how.lock || !how.read_only) { lock_backing(path, stat.st_rdev, how)? } else { None };
    let (logical, physical) = if block_device {
        let logical = rustix::fs::ioctl_blksszget(&fd).map_err(failed("sector size"))?;
        (logical, rustix::fs::ioctl_blkpbszget(&fd).map_err(failed("sector size"))?.max(logical))
    } else {
        (512, 512)
    };
    // Our buffers and blocks are aligned to 512 bytes; a file whose host wants more goes through the page cache, so
    // that writes of neighbouring blocks never share a unit.
    if direct && !block_device && !takes_sectors(&fd) {
        turn_off_direct(&fd).map_err(failed("O_DIRECT"))?;
        direct = false;
    }
    let whole = rustix::fs::seek(&fd, rustix::fs::SeekFrom::End(0)).map_err(failed("size"))?;
    let size = device_size(path, how, whole, logical)?;
    let discards = !how.read_only && (!block_device || can_discard(stat.st_rdev));
    let info =
        DeviceInfo { size, logical_sector: logical, physical_sector: physical, read_only: how.read_only, discards };
    let sector = usize::try_from(logical).expect("u32 fits");
    let mut host = Host::new(fd, how.offset, block_device, sector, discards);
    host.backing = backing;
    tracing::debug!(path = %path.display(), direct, ?info, "device opened");
    Ok(Opened { host, info, direct })
}

fn failure(path: &Path, what: &'static str, e: Errno) -> OpenError {
    match e {
        Errno::NOENT | Errno::NOTDIR | Errno::NXIO | Errno::NODEV => OpenError::NotFound(path.to_owned()),
        Errno::ACCESS | Errno::PERM => OpenError::Permission(path.to_owned()),
        Errno::ROFS => OpenError::ReadOnly(path.to_owned()),
        e => OpenError::Io { path: path.to_owned(), what, source: e.into() },
    }
}

/// True for a block device, false for a file, or an error.
fn kind(path: &Path, stat: &Stat) -> Result<bool, OpenError> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(false),
        FileType::BlockDevice => Ok(true),
        FileType::Directory => Err(OpenError::IsDirectory(path.to_owned())),
        _ => Err(OpenError::WrongType(path.to_owned())),
    }
}

/// Opens it and locks a file. The lock of a file that has lost its name meanwhile keeps nobody off the new one, so that
/// one is opened then.
fn open_and_lock(
    path: &Path,
    how: OpenOptions,
    block_device: bool,
    before: &Stat,
) -> Result<(OwnedFd, bool, Stat), OpenError> {
    for _ in 0..MAX_REPLACEMENTS {
        let (fd, direct) = open_fd(path, how, block_device, before)?;
        let stat = rustix::fs::fstat(&fd).map_err(|e| failure(path, "fstat", e))?;
        if kind(path, &stat)? != block_device {
            return Err(OpenError::WrongType(path.to_owned()));
        }
        if block_device || !how.lock {
            return Ok((fd, direct, stat));
        }
        lock_file(path, &fd, how.read_only, &stat)?;
        let now = rustix::fs::stat(path).map_err(|e| failure(path, "stat", e))?;
        if (now.st_dev, now.st_ino) == (stat.st_dev, stat.st_ino) {
            return Ok((fd, direct, stat));
        }
    }
    Err(OpenError::Busy { path: path.to_owned(), holder: Holder::Unknown })
}

/// Opens it, direct if asked for and possible.
fn open_fd(path: &Path, how: OpenOptions, block_device: bool, stat: &Stat) -> Result<(OwnedFd, bool), OpenError> {
    let mut flags = OFlags::CLOEXEC | OFlags::NOCTTY | if how.read_only { OFlags::RDONLY } else { OFlags::RDWR };
    if block_device && how.lock {
        flags |= OFlags::EXCL;
    }
    let open = |direct: bool| {
        let direct = if direct { OFlags::DIRECT } else { OFlags::empty() };
        rustix::fs::open(path, flags | direct, Mode::empty())
    };
    let (result, direct) = match retry_while_busy(|| open(how.direct)) {
        Err(Errno::INVAL) if how.direct => (retry_while_busy(|| open(false)), false),
        result => (result, how.direct),
    };
    match result {
        Ok(fd) => Ok((fd, direct)),
        Err(Errno::BUSY) if block_device => {
            Err(OpenError::Busy { path: path.to_owned(), holder: holder::device_holder(stat.st_rdev) })
        }
        Err(Errno::TXTBSY) => Err(OpenError::Busy { path: path.to_owned(), holder: Holder::Unknown }),
        Err(e) => Err(failure(path, "open", e)),
    }
}

/// Locks a file; refuses to write to one that the kernel uses.
fn lock_file(path: &Path, fd: &OwnedFd, read_only: bool, stat: &Stat) -> Result<(), OpenError> {
    match retry_while_busy(|| rustix::fs::flock(fd, lock_kind(read_only))) {
        Err(Errno::WOULDBLOCK) => {
            return Err(OpenError::Busy { path: path.to_owned(), holder: holder::lock_holder(stat) });
        }
        // A host without locks (some network file systems): nothing to hold on to.
        Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => {
            tracing::warn!(path = %path.display(), "the host cannot lock this file: nobody else may use it meanwhile");
        }
        other => other.map_err(|e| failure(path, "flock", e))?,
    }
    // The kernel lets go of a loop device some time after the umount of what it shows.
    let used = || holder::loop_device(stat).filter(|_| !read_only);
    match retry_while_busy(|| if used().is_some() { Err(Errno::BUSY) } else { Ok(()) }) {
        Ok(()) => Ok(()),
        Err(_) => Err(OpenError::Busy { path: path.to_owned(), holder: used().unwrap_or(Holder::Unknown) }),
    }
}

/// Locks the file that a loop device shows, as if it were opened itself. One that we cannot open is not locked.
fn lock_backing(device: &Path, rdev: u64, how: OpenOptions) -> Result<Option<OwnedFd>, OpenError> {
    let Some(file) = holder::backing_file(rdev) else { return Ok(None) };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    let Ok((fd, stat)) =
        rustix::fs::open(&file, flags, Mode::empty()).and_then(|fd| rustix::fs::fstat(&fd).map(|s| (fd, s)))
    else {
        tracing::debug!(device = %device.display(), file = %file.display(), "the file behind it is not locked");
        return Ok(None);
    };
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => {}
        // A loop device on a loop device.
        FileType::BlockDevice => return lock_backing(device, stat.st_rdev, how),
        _ => return Ok(None),
    }
    match retry_while_busy(|| rustix::fs::flock(&fd, lock_kind(how.read_only))) {
        Err(Errno::WOULDBLOCK) => Err(OpenError::Busy { path: device.to_owned(), holder: holder::lock_holder(&stat) }),
        Err(Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
        other => other.map(|()| Some(fd)).map_err(|e| failure(&file, "flock", e)),
    }
}

/// Gives up the locks of an opened file, and of the file behind a loop device, on all of their descriptors.
pub(crate) fn unlock(host: &Host) {
    let file = Some(&host.fd).filter(|_| !host.block_device);
    for fd in file.into_iter().chain(&host.backing) {
        // On a host without locks there was nothing to give up.
        rustix::fs::flock(fd, FlockOperation::Unlock).ok();
    }
}

fn lock_kind(read_only: bool) -> FlockOperation {
    if read_only { FlockOperation::NonBlockingLockShared } else { FlockOperation::NonBlockingLockExclusive }
}

/// True if the file takes direct transfers of single 512-byte sectors from memory aligned to 512.
fn takes_sectors(fd: &OwnedFd) -> bool {
    let limit = u32::try_from(SECTOR).expect("a small constant");
    if let Ok(s) = rustix::fs::statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)
        && StatxFlags::from_bits_retain(s.stx_mask).contains(StatxFlags::DIOALIGN)
        && (s.stx_dio_offset_align == 0 || s.stx_dio_offset_align > limit || s.stx_dio_mem_align > limit)
    {
        return false;
    }
    let mut probe = Buf::zeroed(SECTOR);
    let slice = &mut [io::IoSliceMut::new(&mut probe)];
    !matches!(rustix::io::preadv2(fd, slice, 0, ReadWriteFlags::empty()), Err(Errno::INVAL | Errno::OPNOTSUPP))
}

fn turn_off_direct(fd: &OwnedFd) -> Result<(), Errno> {
    let flags = rustix::fs::fcntl_getfl(fd.as_fd())?;
    rustix::fs::fcntl_setfl(fd, flags - OFlags::DIRECT)
}

/// Bytes of the device: what follows the offset, limited, in whole sectors.
fn device_size(path: &Path, how: OpenOptions, whole: u64, logical: u32) -> Result<u64, OpenError> {
    let sector = u64::from(logical);
    if !how.offset.is_multiple_of(sector) {
        return Err(OpenError::Unaligned { path: path.to_owned(), offset: how.offset, sector: logical });
    }
    let bad = || OpenError::BadRange { path: path.to_owned(), offset: how.offset, size: whole };
    let rest = whole.checked_sub(how.offset).ok_or_else(bad)?;
    let size = how.size.map_or(rest, |limit| rest.min(limit));
    let size = size - size % sector;
    if size == 0 && how.offset > 0 { Err(bad()) } else { Ok(size) }
}

/// True if the kernel says that the block device takes discards.
fn can_discard(rdev: u64) -> bool {
    let dir = format!("/sys/dev/block/{}:{}", rustix::fs::major(rdev), rustix::fs::minor(rdev));
    // A partition has its queue one level up.
    ["queue", "../queue"].iter().any(|queue| {
        std::fs::read_to_string(format!("{dir}/{queue}/discard_max_bytes"))
            .is_ok_and(|s| s.trim().parse::<u64>().is_ok_and(|n| n > 0))
    })
}
