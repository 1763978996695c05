//! Directories: what is made, found, renamed and removed by name.

use crate::error::{Error, ErrorKind, Result, from_io};
use crate::file::{File, FileOptions};
use crate::listing::{Listed, listed, names};
use crate::metadata::{FileType, Metadata};
use crate::resolve::{Found, Place, is_child_of, make_at, resolve};
use crate::shared::InodeRef;
use quire_fs::{NewKind, RenameFlags};
use quire_layout::inode::mode;
use std::ffi::OsString;
use std::io::{Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;

/// A directory of the image. Relative paths begin here, as with openat(2); it stays valid when the directory is
/// renamed.
///
/// [`FileSystem`](crate::FileSystem) dereferences to its root directory, so that all of these methods work on it, too.
/// Paths are bytes separated by `/`. Absolute paths begin at the root of the image, also those of symbolic links.
/// Permissions are not asked: whoever may write to the image is its root.
#[derive(Clone)]
pub struct Dir {
    pub(crate) inode: Arc<InodeRef>,
}

/// One name in a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct DirEntry {
    pub name: OsString,
    pub metadata: Metadata,
}

/// What the methods of this crate that make something need: the kind, permissions and owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct NewNode {
    pub file_type: FileType,
    /// Permission bits; no umask applies.
    pub permissions: u32,
    /// Major and minor number of a device.
    pub device: (u32, u32),
}

impl NewNode {
    #[must_use]
    pub fn new(file_type: FileType, permissions: u32) -> Self {
        NewNode { file_type, permissions, device: (0, 0) }
    }

    /// What mknod(2) makes of a mode: a file if it has no type. `None`: no type that mknod makes.
    #[must_use]
    pub fn from_mode(mode: u32) -> Option<Self> {
        let file_type = if mode & 0o170_000 == 0 { FileType::File } else { FileType::from_mode(mode)? };
        let made = !matches!(file_type, FileType::Dir | FileType::Symlink);
        made.then(|| NewNode::new(file_type, mode & 0o7777))
    }

    /// With the numbers of a device.
    #[must_use]
    pub fn device(self, major: u32, minor: u32) -> Self {
        NewNode { device: (major, minor), ..self }
    }
}

impl Dir {
    pub(crate) fn place(&self, path: &Path, follow: bool) -> Result<Place> {
        resolve(&self.inode, path, follow).map_err(|e| e.at(path))
    }

    pub(crate) fn node(&self, path: &Path, follow: bool) -> Result<Found> {
        self.place(path, follow)?.existing().map_err(|e| e.at(path))
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// Not found; not a directory; corrupt; I/O.
    pub fn open_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        let path = path.as_ref();
        let node = self.node(path, true)?;
        if !node.is_type(mode::DIR) {
            return Err(Error::new(ErrorKind::NotADirectory, "not a directory").at(path));
        }
        Ok(Dir { inode: node.inode.clone() })
    }

    /// Opens a file for reading and writing. It is read-only if the file system is.
    ///
    /// # Errors
    /// Not found; not a regular file; corrupt; I/O.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_with(path, FileOptions::new())
    }

    /// Opens a file, empty: makes it if it does not exist.
    ///
    /// # Errors
    /// As [`Dir::open_with`].
    pub fn create_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.open_with(path, FileOptions::new().create(true).truncate(true))
    }

    /// Opens a file as `options` say. A symbolic link at the end is followed, also to a file that is to be made.
    ///
    /// # Errors
    /// Not found; exists; not a regular file; no space; read-only; corrupt; I/O.
    pub fn open_with(&self, path: impl AsRef<Path>, options: FileOptions) -> Result<File> {
        let path = path.as_ref();
        File::open(|| self.place(path, !options.create_new), options).map_err(|e| e.at(path))
    }

    /// All bytes of a file.
    ///
    /// # Errors
    /// As [`Dir::open_file`].
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        let path = path.as_ref();
        let mut file = self.open_file(path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|e| from_io(path, e))?;
        Ok(bytes)
    }

    /// Makes a file of these bytes, or replaces the contents of one.
    ///
    /// # Errors
    /// As [`Dir::open_with`].
    pub fn write(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        self.create_file(path)?.write_all(bytes.as_ref()).map_err(|e| from_io(path, e))
    }

    /// Makes a directory with permissions 0755.
    ///
    /// # Errors
    /// Exists; not found (its parent); no space; read-only; corrupt; I/O.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Result<Dir> {
        let inode = self.make(path.as_ref(), NewKind::Dir, 0o755)?;
        Ok(Dir { inode })
    }

    /// Makes a directory and what is missing of its parents.
    ///
    /// # Errors
    /// As [`Dir::create_dir`]; not a directory.
    pub fn create_dir_all(&self, path: impl AsRef<Path>) -> Result<Dir> {
        let path = path.as_ref();
        let mut missing = Vec::new();
        // Without a `.` at the end: it is there when the directory is.
        for above in path.components().as_path().ancestors().filter(|p| !p.as_os_str().is_empty()) {
            match self.open_dir(above) {
                Err(e) if e.kind() == ErrorKind::NotFound => missing.push(above),
                Err(e) => return Err(e),
                Ok(dir) if missing.is_empty() => return Ok(dir),
                Ok(_) => break,
            }
        }
        let mut made = Err(quire_fs::Error::NotFound.into());
        for name in missing.into_iter().rev() {
            made = match self.create_dir(name) {
                // `..` of a directory that was just made.
                Err(e) if e.kind() == ErrorKind::Exists => Ok(self.open_dir(name).map_err(|_| e)?),
                other => Ok(other?),
            };
        }
        made
    }

    /// Makes a symbolic link at `path` to `target`, which need not exist.
    ///
    /// # Errors
    /// As [`Dir::create_dir`]; name too long (the target).
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Result<()> {
        let target = target.as_ref().as_os_str().as_bytes();
        self.make(path.as_ref(), NewKind::Symlink(target), 0o777).map(drop)
    }

    /// Makes an object of any kind but a symbolic link.
    ///
    /// # Errors
    /// As [`Dir::create_dir`]; invalid: a symbolic link.
    pub fn create_node(&self, path: impl AsRef<Path>, new: NewNode) -> Result<()> {
        let kind = match new.file_type {
            FileType::File => NewKind::File,
            FileType::Dir => NewKind::Dir,
            FileType::Symlink => {
                return Err(Error::new(ErrorKind::InvalidInput, "a symbolic link needs a target").at(path));
            }
            t => NewKind::Node { file_type: t.mode_bits(), device: new.device },
        };
        self.make(path.as_ref(), kind, new.permissions).map(drop)
    }

    fn make(&self, path: &Path, kind: NewKind<'_>, permissions: u32) -> Result<Arc<InodeRef>> {
        let place = self.place(path, false)?;
        let done = || {
            let name = place.vacant()?;
            if place.must_be_dir && kind != NewKind::Dir {
                return Err(quire_fs::Error::NotFound.into());
            }
            make_at(&place.dir, name, kind, permissions)
        };
        done().map_err(|e| e.at(path))
    }

    /// Gives a file another name; a symbolic link at `from` is linked itself.
    ///
    /// # Errors
    /// Not found; exists; not permitted (a directory); too many links; no space; read-only; corrupt; I/O.
    pub fn hard_link(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let node = self.node(from, false)?;
        let place = self.place(to, false)?;
        let done = || {
            let (call, name) = (place.dir.call()?, place.vacant()?);
            if place.must_be_dir {
                return Err(quire_fs::Error::NotFound.into());
            }
            let attr = call.volume.link(node.inode.ino, place.dir.ino, name)?;
            call.volume.forget(attr.ino, 1);
            Ok(())
        };
        done().map_err(|e: Error| e.at(to))
    }

    /// Moves a name, over another one if that exists. A directory replaces only an empty directory.
    ///
    /// # Errors
    /// Not found; is a directory, not a directory, directory not empty (what would be replaced); invalid (a directory
    /// below itself); busy (a path without a last name); no space; read-only; corrupt; I/O.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<()> {
        let (from, to) = (from.as_ref(), to.as_ref());
        let (source, target) = (self.place(from, false)?, self.place(to, false)?);
        let done = || {
            let name = source.named().map_err(|e| e.at(from))?;
            let to_name = target.last_name()?;
            if target.must_be_dir && source.node.as_ref().is_some_and(|n| !n.is_type(mode::DIR)) {
                return Err(quire_fs::Error::NotDir.into());
            }
            let call = source.dir.call()?;
            let (old, new) = (source.dir.ino, target.dir.ino);
            Ok(call.volume.rename(old, name, new, to_name, RenameFlags::default())?)
        };
        done().map_err(|e: Error| e.at(to))
    }

    /// Removes a name that is no directory's. Its inode is freed when no name and no open file is left.
    ///
    /// # Errors
    /// Not found; is a directory; busy (the path is that of the root, or ends in `.` or `..`); not permitted
    /// (immutable, append-only); read-only; corrupt; I/O.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let place = self.place(path, false)?;
        let done = || Ok(place.dir.call()?.volume.unlink(place.dir.ino, place.named()?)?);
        done().map_err(|e: Error| e.at(path))
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Not found; not a directory; directory not empty; busy (as with [`Dir::remove_file`]); not permitted; read-only;
    /// corrupt; I/O.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let place = self.place(path, false)?;
        let done = || Ok(place.dir.call()?.volume.rmdir(place.dir.ino, place.named()?)?);
        done().map_err(|e: Error| e.at(path))
    }

    /// Removes an object and everything below it. Symbolic links are removed, not followed; one with a `/` behind it is
    /// an error.
    ///
    /// # Errors
    /// As [`Dir::remove_file`] and [`Dir::remove_dir`]. Corrupt: a directory that lies elsewhere, by its `..`, or
    /// above; it stays. What was removed before an error is gone, except in a batch.
    pub fn remove_all(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let place = self.place(path, false)?;
        let dir = match &place.node {
            Some(node) if node.is_type(mode::DIR) => Dir { inode: node.inode.clone() },
            _ => return self.remove_file(path),
        };
        place.named().and_then(|_| check_child(&dir, &place.dir)).map_err(|e| e.at(path))?;
        dir.clear(path)?;
        self.remove_dir(path)
    }

    /// Removes everything in this directory, whose path is `path`. The way down is a list, not the stack: trees may be
    /// as deep as they like.
    fn clear(&self, path: &Path) -> Result<()> {
        let mut at = path.to_owned();
        let mut way = vec![(self.clone(), self.remove_files().map_err(|e| e.below(&at))?)];
        while let Some((dir, below)) = way.last_mut() {
            match below.last() {
                Some(name) => {
                    let next = open_child(dir, name).map_err(|e| e.below(&at))?;
                    at.push(name);
                    let below = next.remove_files().map_err(|e| e.below(&at))?;
                    way.push((next, below));
                }
                None => {
                    way.pop();
                    at.pop();
                    if let Some((parent, below)) = way.last_mut()
                        && let Some(name) = below.pop()
                    {
                        parent.remove_dir(&name).map_err(|e| e.below(&at))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Removes what is no directory; returns the directories.
    fn remove_files(&self) -> Result<Vec<OsString>> {
        let mut dirs = Vec::new();
        for e in self.entries()? {
            if e.metadata.is_dir() {
                dirs.push(e.name);
            } else {
                self.remove_file(&e.name)?;
            }
        }
        Ok(dirs)
    }

    /// The names in a directory with their metadata, without `.` and `..`, sorted.
    ///
    /// # Errors
    /// Not found; not a directory; corrupt; I/O.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<Vec<DirEntry>> {
        let path = path.as_ref();
        self.open_dir(path)?.entries().map_err(|e| e.at(path))
    }

    /// The names in this directory with their metadata, without `.` and `..`, sorted.
    ///
    /// # Errors
    /// Corrupt; I/O: the directory, or an inode that a name in it means.
    pub fn entries(&self) -> Result<Vec<DirEntry>> {
        let entry = |(name, metadata): Listed| Ok(DirEntry { name, metadata: metadata? });
        listed(&self.inode)?.into_iter().map(entry).collect()
    }

    /// As [`Dir::read_dir`], with an error in the place of metadata that cannot be read: a damaged inode hides none of
    /// the names beside it.
    ///
    /// # Errors
    /// Not found; not a directory; corrupt; I/O: the directory.
    pub fn read_dir_each(&self, path: impl AsRef<Path>) -> Result<Vec<(OsString, Result<Metadata>)>> {
        let path = path.as_ref();
        let all = listed(&self.open_dir(path)?.inode).map_err(|e| e.at(path))?;
        Ok(all.into_iter().map(|(name, metadata)| (name, metadata.map_err(|e| e.below(path)))).collect())
    }

    /// The names in a directory, without `.` and `..`, sorted. It reads no inode but the directory's.
    ///
    /// # Errors
    /// As [`Dir::read_dir_each`].
    pub fn names(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        let path = path.as_ref();
        names(&self.open_dir(path)?.inode).map_err(|e| e.at(path))
    }

    /// Makes the names in this directory durable. In a batch, that is left to the batch's commit.
    ///
    /// # Errors
    /// Something could not be written, now or earlier.
    pub fn sync_all(&self) -> Result<()> {
        if self.inode.shared.is_in_batch()? {
            return Ok(());
        }
        Ok(self.inode.call()?.volume.fsync(self.inode.ino, false)?)
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// Not found; invalid: not a symbolic link; corrupt; I/O.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<OsString> {
        let path = path.as_ref();
        let node = self.node(path, false)?;
        let target = || Ok(node.inode.call()?.volume.readlink(node.inode.ino)?);
        target().map(OsString::from_vec).map_err(|e: Error| e.at(path))
    }

    /// True if the path means something; false also if a directory on the way does not exist.
    ///
    /// # Errors
    /// Corrupt; I/O; too many symbolic links.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        match self.node(path.as_ref(), true) {
            Ok(_) => Ok(true),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
            Err(e) => Err(e),
        }
    }
}

/// Checks that a directory which was found in `above` lies there by its own `..`, too.
///
/// # Errors
/// Those of [`is_child_of`]; stale.
fn check_child(dir: &Dir, above: &InodeRef) -> Result<()> {
    is_child_of(&above.call()?.volume, dir.inode.ino, above.ino)
}

/// Opens a directory of `dir`, which its own `..` must name.
fn open_child(dir: &Dir, name: &OsString) -> Result<Dir> {
    let next = dir.open_dir(name)?;
    check_child(&next, &dir.inode).map_err(|e| e.at(name))?;
    Ok(next)
}
