//! A file of the host that is made whole: it has a temporary name until it is complete.
//!
//! *Guarantees* I3: what had the name before keeps it until then. M3: an image that is replaced is locked until the new
//! one has its name, so that no other program writes to what is about to go.

use crate::error::{Error, ErrorKind, Result};
use crate::process::Process;
use quire_device::sync::Arc;
use quire_device::{BlockDevice, FileDevice};
use rustix::fs::{Mode, OFlags};
use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::{NamedTempFile, TempPath};

/// What the owner may do with a file that is being made, whatever its mode will be.
const OWNER_READ_WRITE: u32 = 0o600;
const PERMISSIONS: u32 = 0o777;

/// A file of the host that gets its name when it is complete.
///
/// A new file has the mode that was asked for without the bits of the umask, like one from open(2). A file that is
/// replaced passes on its mode, and its owner where the caller may give it away. A symbolic link to a file stays, and
/// the file is replaced. If it is dropped before [`NewFile::finish`], nothing has happened.
///
/// ```
/// use quire::NewFile;
/// use std::io::Write;
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("f");
/// let new = NewFile::at(&path, 0o666)?;
/// new.file().write_all(b"all of it").unwrap();
/// assert!(!path.exists());
/// new.finish()?;
/// assert_eq!(std::fs::read(&path).unwrap(), b"all of it");
/// # Ok::<(), quire::Error>(())
/// ```
#[must_use]
pub struct NewFile {
    temporary: NamedTempFile,
    mode: u32,
    place: Place,
}

/// Where a file goes.
struct Place {
    /// What the caller calls it.
    path: PathBuf,
    /// The name that it gets.
    real: PathBuf,
    /// What has the name.
    old: Option<Metadata>,
    may_replace: bool,
    held: Option<Held>,
}

/// The image that is replaced, locked.
struct Held {
    device: Arc<FileDevice>,
    process: Process,
}

impl Drop for Held {
    /// Gives the lock up, also where a forked child has the same open file. That child leaves it alone (M3).
    fn drop(&mut self) {
        if self.process.check().is_ok() {
            self.device.unlock();
        }
    }
}

/// A [`NewFile`] that is written and closed, and waits for its name: any number of them may wait.
///
/// If it is dropped before [`CompleteFile::finish`], nothing has happened.
#[must_use]
pub struct CompleteFile {
    temporary: TempPath,
    place: Place,
}

impl NewFile {
    /// Begins a file that replaces what has the name.
    ///
    /// # Errors
    /// Exists: what has the name is no regular file. Not found: there is no such directory, or a symbolic link leads
    /// nowhere. The host refuses.
    pub fn at(path: impl AsRef<Path>, mode: u32) -> Result<NewFile> {
        NewFile::begin(path.as_ref(), mode, true, None)
    }

    /// Begins a file whose name must be free, also at the end.
    ///
    /// # Errors
    /// Exists. Not found: there is no such directory. The host refuses.
    pub fn unless_exists(path: impl AsRef<Path>, mode: u32) -> Result<NewFile> {
        let path = path.as_ref();
        match std::fs::symlink_metadata(path) {
            Ok(_) => Err(Error::host(path, &io::Error::from(rustix::io::Errno::EXIST))),
            Err(_) => NewFile::begin(path, mode, false, None),
        }
    }

    /// Begins an image. One that it replaces is locked until the new one has its name; a name that is free must be free
    /// at the end, too, because another program may have made an image of that name and use it.
    ///
    /// # Errors
    /// Those of [`NewFile::at`]. Busy: the image is in use. Permission denied: it may not be written.
    pub fn image(path: impl AsRef<Path>, mode: u32) -> Result<NewFile> {
        let path = path.as_ref();
        let held = hold_image(path)?;
        NewFile::begin(path, mode, held.is_some(), held)
    }

    fn begin(path: &Path, mode: u32, may_replace: bool, held: Option<Held>) -> Result<NewFile> {
        let host = |e: io::Error| Error::host(path, &e);
        let (real, old) = match std::fs::metadata(path) {
            Ok(m) if m.is_file() => (path.canonicalize().map_err(host)?, Some(m)),
            Ok(_) => return Err(Error::new(ErrorKind::Exists, "exists, and is no regular file").with_path(path)),
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(host(e)),
            Err(_) if std::fs::symlink_metadata(path).is_ok() => {
                return Err(Error::new(ErrorKind::NotFound, "a symbolic link that leads nowhere").with_path(path));
            }
            Err(_) => (path.to_owned(), None),
        };
        let dir = real.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // The kernel takes the umask off. What replaces a file is the owner's until it has that file's mode.
        let first = if old.is_some() { 0 } else { mode & PERMISSIONS };
        let mode_now = Mode::from_raw_mode(first | OWNER_READ_WRITE);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let make = |at: &Path| Ok(File::from(rustix::fs::open(at, flags, mode_now)?));
        // With `tempfile_in` an error would name the temporary file.
        let temporary = tempfile::Builder::new().prefix(".quire-").make_in(dir, make).map_err(host)?;
        Ok(NewFile { temporary, mode, place: Place { path: path.to_owned(), real, old, may_replace, held } })
    }

    /// The file, which may be written.
    #[must_use]
    pub fn file(&self) -> &File {
        self.temporary.as_file()
    }

    /// Where it is until it is complete.
    #[must_use]
    pub fn temporary_path(&self) -> &Path {
        self.temporary.path()
    }

    /// An error about the temporary name, told of the name that the file gets.
    pub(crate) fn named(&self, e: Error) -> Error {
        if e.path() == Some(self.temporary_path()) { e.with_path(&self.place.path) } else { e }
    }

    /// Makes the data durable, gives the file its name, and makes that durable.
    ///
    /// # Errors
    /// As [`NewFile::finish`].
    pub fn finish_durably(self) -> Result<()> {
        let path = self.place.path.clone();
        let host = |e: io::Error| Error::host(&path, &e);
        self.file().sync_all().map_err(host)?;
        let dir = self.temporary.path().parent().map(Path::to_owned);
        self.finish()?;
        dir.map_or(Ok(()), |dir| File::open(dir)?.sync_all()).map_err(host)
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// Those of [`CompleteFile::finish`].
    pub fn finish(self) -> Result<()> {
        self.complete()?.finish()
    }

    /// Gives the file its attributes and closes it. It gets its name later.
    ///
    /// # Errors
    /// The host refuses.
    pub fn complete(self) -> Result<CompleteFile> {
        self.set_attributes().map_err(|e| Error::host(&self.place.path, &e))?;
        Ok(CompleteFile { temporary: self.temporary.into_temp_path(), place: self.place })
    }

    fn set_attributes(&self) -> io::Result<()> {
        let file = self.file();
        let now = file.metadata()?;
        let mode = match &self.place.old {
            Some(old) => {
                let owner = (rustix::fs::Uid::from_raw(old.uid()), rustix::fs::Gid::from_raw(old.gid()));
                if (now.uid(), now.gid()) != (old.uid(), old.gid()) {
                    // An ordinary user cannot give files away: it becomes the user's, as with any editor.
                    rustix::fs::fchown(file, Some(owner.0), Some(owner.1)).ok();
                }
                old.mode() & PERMISSIONS
            }
            None => now.mode() & self.mode & PERMISSIONS,
        };
        if now.mode() & PERMISSIONS == mode { Ok(()) } else { file.set_permissions(Permissions::from_mode(mode)) }
    }
}

impl CompleteFile {
    /// The file that it replaces.
    #[must_use]
    pub fn replaces(&self) -> Option<&Metadata> {
        self.place.old.as_ref()
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// Exists: the name had to be free, and is not any more. The host refuses.
    pub fn finish(self) -> Result<()> {
        let Place { path, real, may_replace, held, .. } = self.place;
        let named = if may_replace {
            self.temporary.persist(&real)
        } else {
            // A host that can neither rename without replacing nor make hard links still renames.
            self.temporary.persist_noclobber(&real).or_else(|e| match e.error.kind() {
                io::ErrorKind::AlreadyExists => Err(e),
                _ if std::fs::symlink_metadata(&real).is_ok() => Err(e),
                _ => e.path.persist(&real),
            })
        };
        named.map_err(|e| Error::host(&path, &e.error))?;
        drop(held);
        Ok(())
    }
}

/// Locks an image that is about to be replaced, as one that is written to. `None`: there is no file of this name.
///
/// # Errors
/// Busy: it is in use. Permission denied: it may not be written.
fn hold_image(path: &Path) -> Result<Option<Held>> {
    if !std::fs::metadata(path).is_ok_and(|m| m.is_file()) {
        return Ok(None);
    }
    let how = quire_device::OpenOptions { direct: false, ..quire_device::OpenOptions::default() };
    let device = Arc::new(FileDevice::open(path, how)?);
    Ok(Some(Held { device, process: Process::current() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::tests::as_forked_child;

    /// A file that is being replaced by an image, and its open file as a forked child has it.
    fn replacement() -> (tempfile::TempDir, PathBuf, NewFile, Arc<FileDevice>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("image");
        std::fs::write(&path, [0; 4096]).unwrap();
        let new = NewFile::image(&path, 0o666).unwrap();
        let kept = new.place.held.as_ref().unwrap().device.clone();
        (dir, path, new, kept)
    }

    #[test]
    fn image_whose_replacement_was_given_up_is_free_while_a_forked_child_has_its_descriptor() {
        let (_dir, path, new, _kept) = replacement();
        drop(new);
        drop(hold_image(&path).unwrap());
    }

    #[test]
    fn replacement_that_a_forked_child_drops_leaves_the_image_locked() {
        let (_dir, path, new, _kept) = replacement();
        as_forked_child(|| drop(new));
        assert_eq!(hold_image(&path).map(drop).unwrap_err().kind(), ErrorKind::Busy);
    }
}
