//! Files of the host that commands make, replace or write to.
//!
//! *Guarantees*: a file appears whole or not at all. What has the name and is no regular file (a device, a FIFO) is
//! written to where that is what users expect, and never replaced.

use super::failure::Failure;
use super::signals::is_stopped;
use quire::{CompleteFile, Error, ErrorKind, FileSystem, NewFile};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use rustix::fs::{FileType, OFlags};
use rustix::io::Errno;
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::Duration;

/// How long a wait for the other side of a pipe goes on without a look at signals.
const SIGNAL_CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How often a FIFO is looked at until it has a reader.
const FIFO_CHECK: Duration = Duration::from_millis(20);
/// Symbolic links on the way to one file (path_resolution(7)).
const MAX_SYMLINKS: usize = 40;
/// What a pipe that can be written takes without a wait (pipe(7), PIPE_BUF).
const PIPE_BYTES: usize = 4096;

/// Where a file or an archive goes.
pub(super) enum Destination {
    /// A regular file, new or replaced.
    File(Box<NewFile>),
    /// Something else that exists: it is written to.
    Special(Stream),
}

impl Destination {
    /// A new file gets `mode` without the bits of the umask.
    pub(super) fn open(path: &Path, mode: u32) -> Result<Destination, Failure> {
        let regular = is_regular(path);
        let descriptor = is_descriptor(path);
        if regular && !descriptor {
            return NewFile::at(path, mode).map(|new| Destination::File(Box::new(new))).map_err(Failure::host);
        }
        // Behind what a shell has written to the file of `>` already.
        let append = regular && descriptor;
        Ok(Destination::Special(Stream::new(open_to_write(path, append)?.into())))
    }
}

/// Opens what exists. A FIFO that has no reader is waited for, but not after a signal.
fn open_to_write(path: &Path, append: bool) -> Result<File, Failure> {
    let is_fifo = std::fs::metadata(path).is_ok_and(|m| m.file_type().is_fifo());
    let flags = if is_fifo { OFlags::NOCTTY | OFlags::NONBLOCK } else { OFlags::NOCTTY };
    let mut options = File::options();
    options.write(true).append(append).custom_flags(flags.bits().cast_signed());
    loop {
        match options.open(path) {
            Err(e) if is_fifo && Errno::from_io_error(&e) == Some(Errno::NXIO) => {
                if is_stopped() {
                    return Err(Failure::Interrupted);
                }
                std::thread::sleep(FIFO_CHECK);
            }
            opened => return opened.map_err(|e| Failure::host(Error::host(path, &e))),
        }
    }
}

fn is_regular(path: &Path) -> bool {
    std::fs::metadata(path).map_or(true, |m| m.is_file())
}

/// Files that commands have made, and that have no names yet.
pub(super) struct Unfinished {
    files: Vec<CompleteFile>,
    /// They get none: nothing of the host is to change.
    is_dry: bool,
}

impl Unfinished {
    pub(super) fn new(is_dry: bool) -> Self {
        Unfinished { files: Vec::new(), is_dry }
    }

    /// # Errors
    /// A write to this file could not be undone.
    pub(super) fn check(&self, path: &Path) -> Result<(), Failure> {
        if self.is_dry && (!is_regular(path) || is_descriptor(path)) {
            let why = "a dry run writes to no device, FIFO or open file";
            return Err(Failure::host(Error::new(ErrorKind::InvalidInput, why).at(path)));
        }
        Ok(())
    }

    /// # Errors
    /// Those of [`NewFile::complete`].
    pub(super) fn push(&mut self, new: NewFile) -> Result<(), Failure> {
        self.files.push(new.complete().map_err(Failure::host)?);
        Ok(())
    }

    /// True if one of them replaces this file.
    pub(super) fn replaces(&self, path: &Path) -> bool {
        let Ok(m) = std::fs::metadata(path) else { return false };
        let is_same = |old: &Metadata| (old.dev(), old.ino()) == (m.dev(), m.ino());
        self.files.iter().any(|new| new.replaces().is_some_and(is_same))
    }

    /// Gives all of them their names, or none if it is dry.
    ///
    /// # Errors
    /// Those of [`CompleteFile::finish`].
    pub(super) fn finish(self) -> Result<(), Failure> {
        if self.is_dry {
            return Ok(());
        }
        self.files.into_iter().try_for_each(CompleteFile::finish).map_err(Failure::host)
    }
}

/// Refuses the image that is open: what has its name would not be the image any more.
///
/// # Errors
/// Invalid input.
pub(super) fn check_not_image(fs: &FileSystem, path: &Path) -> Result<(), Failure> {
    if fs.is_image(path) {
        return Err(Failure::host(Error::new(ErrorKind::InvalidInput, "this is the image itself").at(path)));
    }
    Ok(())
}

/// True if a path leads to an open file of a process: `/dev/stdout`, `/dev/fd/N`. Others write to it, too.
fn is_descriptor(path: &Path) -> bool {
    let mut path = path.to_owned();
    for _ in 0..MAX_SYMLINKS {
        let dir = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let Ok(dir) = dir.canonicalize() else { return false };
        if dir.starts_with("/proc") && dir.ends_with("fd") {
            return true;
        }
        let Ok(target) = std::fs::read_link(&path) else { return false };
        path = dir.join(target);
    }
    false
}

/// Refuses what is there and is no regular file, before anything is done to it.
///
/// # Errors
/// Invalid input; for a block device, with what to use instead.
pub(super) fn check_regular(path: &Path, for_device: &str) -> Result<(), Failure> {
    let Some(m) = std::fs::metadata(path).ok().filter(|m| !m.is_file()) else { return Ok(()) };
    let instead = if m.file_type().is_block_device() { format!("; {for_device}") } else { String::new() };
    let why = format!("{}, not an image file{instead}", type_of(&m));
    Err(Failure::host(Error::new(ErrorKind::InvalidInput, why).at(path)))
}

/// What is known of an image that is read as a whole.
///
/// # Errors
/// It is not there. Invalid input: it is neither a file nor a block device.
pub(super) fn image_metadata(path: &Path) -> Result<Metadata, Failure> {
    let m = std::fs::metadata(path).map_err(|e| Failure::host(Error::host(path, &e)))?;
    if m.is_file() || m.file_type().is_block_device() {
        return Ok(m);
    }
    let why = format!("{}, not an image", type_of(&m));
    Err(Failure::host(Error::new(ErrorKind::InvalidInput, why).at(path)))
}

fn type_of(m: &Metadata) -> &'static str {
    let t = m.file_type();
    if t.is_block_device() {
        "a block device"
    } else if t.is_char_device() {
        "a character device"
    } else if t.is_dir() {
        "a directory"
    } else if t.is_fifo() {
        "a FIFO"
    } else {
        "a socket"
    }
}

/// The device and inode of a file, or the device that a node stands for, as the daemon of a mount tells them.
pub(super) fn identity(path: &Path) -> io::Result<quire_mount::FileIdentity> {
    Ok(quire_mount::FileIdentity::of(&rustix::fs::stat(path)?))
}

/// Standard input or output, a pipe, a device or an open file: a signal ends the work also while the other side of a
/// pipe is waited for.
pub(super) struct Stream {
    file: File,
    /// How much is written at once: of a pipe, what it takes without a wait.
    at_once: usize,
}

impl Stream {
    fn new(fd: OwnedFd) -> Stream {
        let stat = rustix::fs::fstat(&fd);
        let t = stat.map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode));
        let whole = |fd: OwnedFd| Stream { file: fd.into(), at_once: usize::MAX };
        let own = if t == FileType::Fifo { own_pipe(&fd) } else { None };
        match (t, own) {
            (_, Some(own)) => whole(own),
            (FileType::RegularFile | FileType::BlockDevice, None) => whole(fd),
            (_, None) => Stream { file: fd.into(), at_once: PIPE_BYTES },
        }
    }

    /// # Errors
    /// It is closed.
    pub(super) fn stdin() -> io::Result<Stream> {
        Ok(Stream::new(io::stdin().as_fd().try_clone_to_owned()?))
    }

    /// # Errors
    /// It is closed.
    pub(super) fn stdout() -> io::Result<Stream> {
        Ok(Stream::new(io::stdout().as_fd().try_clone_to_owned()?))
    }

    /// # Errors
    /// The process has too many open files.
    pub(super) fn file(file: &File) -> io::Result<Stream> {
        Ok(Stream::new(file.try_clone()?.into()))
    }

    /// Takes back the last bytes that were written, if this is a regular file that ends with them. Elsewhere it does
    /// nothing.
    ///
    /// # Errors
    /// Those of ftruncate(2).
    pub(super) fn take_back(&self, bytes: u64) -> io::Result<()> {
        let m = self.file.metadata()?;
        let is_end = m.is_file() && (&self.file).stream_position()? == m.len();
        if is_end && bytes > 0 { self.file.set_len(m.len().saturating_sub(bytes)) } else { Ok(()) }
    }

    /// Opens a FIFO or a device without waiting for its writer.
    ///
    /// # Errors
    /// Those of open(2).
    pub(super) fn from_path(path: &Path) -> io::Result<Stream> {
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
        Ok(Stream::new(file.into()))
    }

    /// Waits until a transfer would not.
    fn wait(&self, what: PollFlags) -> io::Result<()> {
        loop {
            if is_stopped() {
                // `Interrupted` would be tried again.
                return Err(io::Error::other(Error::new(ErrorKind::Cancelled, "interrupted")));
            }
            match poll(&mut [PollFd::new(&self.file, what)], Some(&SIGNAL_CHECK)) {
                Ok(0) | Err(Errno::INTR) => {}
                // What cannot be waited for is always ready.
                Ok(_) | Err(Errno::PERM) => return Ok(()),
                Err(e) => return Err(e.into()),
            }
        }
    }
}

/// A pipe that is written to, opened again so that it takes what it has room for. Set on the one that we were given,
/// O_NONBLOCK would be on for all processes that share it.
fn own_pipe(fd: &OwnedFd) -> Option<OwnedFd> {
    let flags = rustix::fs::fcntl_getfl(fd).ok()?;
    if flags & OFlags::ACCMODE != OFlags::WRONLY {
        return None;
    }
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    rustix::fs::open(path, flags, rustix::fs::Mode::empty()).ok()
}

impl Read for Stream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            self.wait(PollFlags::IN)?;
            match self.file.read(buf) {
                // Another reader was faster.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        loop {
            self.wait(PollFlags::OUT)?;
            match self.file.write(&buf[..buf.len().min(self.at_once)]) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Owner, group and all extended attributes of one file for another; ACLs are among these.
///
/// # Errors
/// One of them cannot be kept. What only root may set (`trusted.`, `security.`) is kept where that is possible.
pub(super) fn copy_owner_and_xattrs(from: &Path, to: &File) -> io::Result<()> {
    let (old, new) = (std::fs::metadata(from)?, to.metadata()?);
    if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
        let owner = (rustix::fs::Uid::from_raw(old.uid()), rustix::fs::Gid::from_raw(old.gid()));
        rustix::fs::fchown(to, Some(owner.0), Some(owner.1))
            .map_err(|e| io::Error::new(io::Error::from(e).kind(), format!("its owner cannot be kept: {e}")))?;
    }
    for name in xattr_names(from)? {
        let text = name.to_string_lossy();
        let is_roots = text.starts_with("trusted.") || text.starts_with("security.");
        match copy_xattr(from, to, &name) {
            Err(e) if !is_roots => {
                return Err(io::Error::new(e.kind(), format!("its attribute {text} cannot be kept: {e}")));
            }
            _ => {}
        }
    }
    Ok(())
}

fn xattr_names(path: &Path) -> io::Result<Vec<std::ffi::CString>> {
    let mut list = vec![0; XATTR_BYTES];
    match rustix::fs::listxattr(path, &mut list) {
        Ok(len) => {
            let names = list[..len].split(|b| *b == 0).filter(|name| !name.is_empty());
            Ok(names.filter_map(|name| std::ffi::CString::new(name).ok()).collect())
        }
        Err(Errno::OPNOTSUPP) => Ok(Vec::new()),
        Err(e) => Err(e.into()),
    }
}

/// Bytes of a list of names and of a value, which Linux limits (xattr(7)).
const XATTR_BYTES: usize = 65_536;

fn copy_xattr(from: &Path, to: &File, name: &std::ffi::CStr) -> io::Result<()> {
    let mut value = vec![0; XATTR_BYTES];
    let len = rustix::fs::getxattr(from, name, &mut value)?;
    Ok(rustix::fs::fsetxattr(to, name, &value[..len], rustix::fs::XattrFlags::empty())?)
}
