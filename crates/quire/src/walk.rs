//! A walk over a tree, in the order of names.
//!
//! *Guarantees*: it ends, also in a corrupt image. Memory grows with the names in the directories from the start down
//! to the one that is read, and not with the rest of the tree.

use crate::dir::Dir;
use crate::error::{Error, Result};
use crate::listing::{Listed, listed};
use crate::metadata::Metadata;
use crate::resolve::{child, is_child_of};
use quire_layout::inode::mode;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// One object that a walk meets.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct WalkEntry {
    /// The path, with that of the start in front.
    pub path: PathBuf,
    /// Directories between the start and this; 0 for the start.
    pub depth: usize,
    pub metadata: Metadata,
}

/// Iterates over everything below a path: a directory before what is in it, names in the order of their bytes. Symbolic
/// links are not followed.
///
/// ```
/// # use quire::CreateOptions;
/// # let fs = CreateOptions::new().size(4 << 20).in_memory()?;
/// fs.create_dir_all("/etc/apt")?;
/// fs.write("/etc/fstab", "")?;
/// let paths: Vec<_> = fs.walk("/etc")?.map(|e| Ok(e?.path)).collect::<quire::Result<_>>()?;
/// assert_eq!(paths, ["/etc", "/etc/apt", "/etc/fstab"].map(std::path::PathBuf::from));
/// # Ok::<(), quire::Error>(())
/// ```
pub struct Walk {
    root: Dir,
    /// What is returned first.
    start: Option<WalkEntry>,
    /// The directories from the start down to the one whose names come next.
    way: Vec<Level>,
    /// The path of the last of them.
    path: Vec<u8>,
}

/// A directory on the way down.
struct Level {
    dir: Dir,
    /// Bytes of [`Walk::path`] that are its path.
    path_len: usize,
    left: std::vec::IntoIter<Listed>,
    /// Directories in it that were entered.
    met: HashSet<u32>,
}

impl Dir {
    /// Walks over a tree. An object that cannot be read yields an error, and the walk goes on behind it. So does a
    /// directory that is below itself, or has two names, in a corrupt image: each directory is walked once, where its
    /// `..` leads.
    ///
    /// # Errors
    /// Not found; corrupt; I/O: of the start.
    pub fn walk(&self, path: impl AsRef<Path>) -> Result<Walk> {
        let path = path.as_ref();
        let metadata = self.symlink_metadata(path)?;
        let start = WalkEntry { path: path.to_owned(), depth: 0, metadata };
        Ok(Walk { root: self.clone(), start: Some(start), way: Vec::new(), path: Vec::new() })
    }
}

impl Walk {
    /// Does not look into the directory that [`Iterator::next`] has returned last. Only directly after it.
    pub fn skip_dir(&mut self, entry: &WalkEntry) {
        if self.way.len() == entry.depth + 1 && self.path == entry.path.as_os_str().as_bytes() {
            self.leave();
        }
    }

    /// The directory that has the name which [`Iterator::next`] has returned last, and this name: what is asked of it
    /// there takes no longer in a deep tree. `None` for the start. Only directly after it.
    ///
    /// ```
    /// # use quire::CreateOptions;
    /// # let fs = CreateOptions::new().size(4 << 20).in_memory()?;
    /// fs.create_dir_all("/etc/apt")?;
    /// fs.write("/etc/apt/list", "deb")?;
    /// let mut walk = fs.walk("/etc")?;
    /// while let Some(entry) = walk.next() {
    ///     let entry = entry?;
    ///     if let Some((dir, name)) = walk.place_of(&entry).filter(|_| entry.metadata.is_file()) {
    ///         assert_eq!(dir.read(name)?, b"deb");
    ///     }
    /// }
    /// # Ok::<(), quire::Error>(())
    /// ```
    #[must_use]
    pub fn place_of<'w>(&'w self, entry: &'w WalkEntry) -> Option<(&'w Dir, &'w OsStr)> {
        let above = self.way.get(entry.depth.checked_sub(1)?)?;
        Some((&above.dir, entry.path.file_name()?))
    }

    fn leave(&mut self) {
        self.way.pop();
        self.path.truncate(self.way.last().map_or(0, |above| above.path_len));
    }

    /// The next name on the way.
    fn advance(&mut self) -> Option<Result<WalkEntry>> {
        loop {
            let depth = self.way.len();
            if let Some((name, metadata)) = self.way.last_mut()?.left.next() {
                let above = Path::new(OsStr::from_bytes(&self.path));
                let path = above.join(name);
                let entry = metadata.map(|metadata| WalkEntry { path, depth, metadata });
                return Some(entry.map_err(|e| e.below(above)));
            }
            self.leave();
        }
    }

    /// Goes down into a directory.
    fn enter(&mut self, entry: &WalkEntry) -> Result<()> {
        let name = entry.path.file_name().filter(|_| entry.depth > 0);
        let dir = match (self.way.last(), name) {
            (Some(above), Some(name)) => match child(&above.dir.inode, name.as_bytes())? {
                node if node.is_type(mode::DIR) => Dir { inode: node.inode },
                _ => return Err(quire_fs::Error::NotDir.into()),
            },
            _ => self.root.open_dir(&entry.path)?,
        };
        self.check(&dir, entry.metadata.ino)?;
        let left = listed(&dir.inode).map_err(|e| e.below(&entry.path))?.into_iter();
        self.path = entry.path.as_os_str().as_bytes().to_vec();
        self.way.push(Level { dir, path_len: self.path.len(), left, met: HashSet::new() });
        Ok(())
    }

    /// Refuses what would make the walk endless, or exponentially long: a directory whose `..` is another one, and a
    /// second name in the same directory.
    fn check(&mut self, dir: &Dir, listed: u32) -> Result<()> {
        let Some(above) = self.way.last_mut() else { return Ok(()) };
        is_child_of(&dir.inode.call()?.volume, dir.inode.ino, above.dir.inode.ino)?;
        if above.met.insert(listed) { Ok(()) } else { Err(Error::corrupt_dir(listed, "has two names")) }
    }
}

impl Iterator for Walk {
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = match self.start.take() {
            Some(start) => start,
            None => match self.advance()? {
                Ok(entry) => entry,
                Err(e) => return Some(Err(e)),
            },
        };
        if entry.metadata.is_dir()
            && let Err(e) = self.enter(&entry)
        {
            return Some(Err(e.at(&entry.path)));
        }
        Some(Ok(entry))
    }
}
