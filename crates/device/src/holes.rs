//! Where an image has no bytes of its own on the host: holes, and extents that were never written.
//!
//! The first write into one costs the host a metadata commit at the next flush, so a log is written out once. A loop
//! device hides the holes of its file (mke2fs punches them: it discards the whole device first); they are looked up in
//! that file.

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;
use std::fs;
use std::ops::Range;
use std::path::Path;

/// A file that holds a device's bytes.
pub(crate) struct Backing<'a> {
    file: File<'a>,
    /// Where the device begins in it.
    base: u64,
}

enum File<'a> {
    Image(BorrowedFd<'a>),
    OfLoop(OwnedFd),
}

impl<'a> Backing<'a> {
    /// The image file itself.
    pub(crate) fn of_image(fd: BorrowedFd<'a>, base: u64) -> Self {
        Backing { file: File::Image(fd), base }
    }

    /// The file behind a loop device. `None` if it is no loop device, or its file cannot be looked at from here.
    pub(crate) fn of_loop(device: BorrowedFd<'_>, base: u64) -> Option<Self> {
        let rdev = rustix::fs::fstat(device).ok()?.st_rdev;
        let dir = format!("/sys/dev/block/{}:{}/loop", rustix::fs::major(rdev), rustix::fs::minor(rdev));
        let (path, start) = (read(&dir, "backing_file")?, read(&dir, "offset")?.parse::<u64>().ok()?);
        let file = rustix::fs::open(Path::new(&path), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
        Some(Backing { file: File::OfLoop(file), base: start.checked_add(base)? })
    }

    /// False if it was found by a name, which may be another file's by now.
    pub(crate) fn is_certain(&self) -> bool {
        matches!(self.file, File::Image(_))
    }

    /// The first hole at or behind `range.start`, within the range of the device. A host that knows no holes has none.
    pub(crate) fn hole(&self, range: Range<u64>) -> Result<Option<Range<u64>>, Errno> {
        let (Some(start), Some(end)) = (self.base.checked_add(range.start), self.base.checked_add(range.end)) else {
            return Ok(None);
        };
        let hole = match self.seek(SeekFrom::Hole(start)) {
            Ok(hole) if hole < end => hole,
            Ok(_) | Err(Errno::NXIO | Errno::INVAL) => return Ok(None),
            Err(e) => return Err(e),
        };
        let data = match self.seek(SeekFrom::Data(hole)) {
            Ok(data) => data.min(end),
            Err(Errno::NXIO) => end,
            Err(e) => return Err(e),
        };
        Ok(Some(hole - self.base..data - self.base))
    }

    fn seek(&self, to: SeekFrom) -> Result<u64, Errno> {
        match &self.file {
            File::Image(fd) => rustix::fs::seek(fd, to),
            File::OfLoop(fd) => rustix::fs::seek(fd.as_fd(), to),
        }
    }
}

fn read(dir: &str, name: &str) -> Option<String> {
    fs::read_to_string(Path::new(dir).join(name)).ok().map(|s| s.trim_end_matches('\n').to_owned())
}
