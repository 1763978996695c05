//! A walk over a tree, in the order of names.

use crate::dir::{Dir, DirEntry};
use crate::error::Result;
use crate::metadata::Metadata;
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
    /// What is still to come, the next at the end.
    left: Vec<WalkEntry>,
}

impl Dir {
    /// Walks over a tree. A directory that cannot be read yields an error, and the walk goes on behind it.
    ///
    /// # Errors
    /// Not found; corrupt; I/O: of the start.
    pub fn walk(&self, path: impl AsRef<Path>) -> Result<Walk> {
        let path = path.as_ref();
        let metadata = self.symlink_metadata(path)?;
        let start = WalkEntry { path: path.to_owned(), depth: 0, metadata };
        Ok(Walk { root: self.clone(), left: vec![start] })
    }
}

impl Walk {
    /// Does not look into the directory that [`Iterator::next`] has returned last. Only directly after it.
    pub fn skip_dir(&mut self, entry: &WalkEntry) {
        while self.left.last().is_some_and(|e| e.depth > entry.depth && e.path.starts_with(&entry.path)) {
            self.left.pop();
        }
    }

    fn descend(&mut self, dir: &WalkEntry) -> Result<()> {
        let entries = self.root.read_dir(&dir.path)?;
        self.left.extend(entries.into_iter().rev().map(|DirEntry { name, metadata }| WalkEntry {
            path: dir.path.join(name),
            depth: dir.depth + 1,
            metadata,
        }));
        Ok(())
    }
}

impl Iterator for Walk {
    type Item = Result<WalkEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let entry = self.left.pop()?;
        if entry.metadata.is_dir()
            && let Err(e) = self.descend(&entry)
        {
            return Some(Err(e));
        }
        Some(Ok(entry))
    }
}
