//! Where a shell is: an open image and a directory in it, which the commands and the completion share.

use super::failure::Failure;
use quire::FileSystem;
use std::ffi::OsString;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Commands of the shell itself, and what they do.
pub(super) const OWN_COMMANDS: &[(&str, &str)] = &[
    ("cd", "Go to a directory of the image; without one, to its root"),
    ("pwd", "Show where the shell is"),
    ("help", "Show the commands, or how one is used"),
    ("exit", "End the shell, as Ctrl-D and quit do"),
    ("quit", "End the shell"),
];

/// An open image, and the directory where the shell is.
#[derive(Clone)]
pub(super) struct Place {
    fs: FileSystem,
    here: Arc<Mutex<PathBuf>>,
}

impl Place {
    pub(super) fn new(fs: FileSystem) -> Self {
        Place { fs, here: Arc::new(Mutex::new(PathBuf::from("/"))) }
    }

    pub(super) fn fs(&self) -> &FileSystem {
        &self.fs
    }

    /// Leaves the image clean.
    pub(super) fn close(self) -> quire::Result<()> {
        self.fs.close()
    }

    pub(super) fn here(&self) -> PathBuf {
        self.here.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A path as seen from here. A `/` at its end stays, because it asks for a directory.
    pub(super) fn absolute(&self, path: impl AsRef<Path>) -> OsString {
        self.here().join(path).into_os_string()
    }

    /// Goes to a directory. `..` goes up in the path that was typed, as in other shells.
    pub(super) fn enter(&self, path: impl AsRef<Path>) -> Result<(), Failure> {
        let mut to = PathBuf::from("/");
        for part in self.here().join(path).components() {
            match part {
                Component::ParentDir => drop(to.pop()),
                Component::Normal(name) => to.push(name),
                _ => {}
            }
        }
        self.fs.open_dir(&to)?;
        *self.here.lock().unwrap_or_else(PoisonError::into_inner) = to;
        Ok(())
    }
}
