//! `lockfile=`: a file that is there as long as the image is in use, for programs that do not know Quire's own locks
//! (fuse2fs has the same option).
//!
//! *Guarantees*: it is made if nobody else has made it, and goes when the image is clean, or could not be opened. After
//! a SIGKILL it stays, as the locks of other programs do.

use crate::error::MountError;
use rustix::io::Errno;
use std::fs::File;
use std::path::{Path, PathBuf};

/// The file; gone when dropped.
#[derive(Debug)]
pub(crate) struct LockFile(PathBuf);

impl LockFile {
    /// Makes the file.
    ///
    /// # Errors
    /// It exists, or cannot be made.
    pub(crate) fn make(path: &Path) -> Result<Self, MountError> {
        let failed = |e: std::io::Error| MountError::LockFile {
            path: path.to_owned(),
            source: Errno::from_io_error(&e).unwrap_or(Errno::IO),
        };
        // The daemon leaves the caller's working directory.
        let path = std::path::absolute(path).map_err(failed)?;
        File::options().write(true).create_new(true).open(&path).map_err(failed)?;
        Ok(LockFile(path))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for LockFile {
    fn drop(&mut self) {
        if let Err(e) = std::fs::remove_file(&self.0) {
            tracing::warn!("{}: {e}", self.0.display());
        }
    }
}
