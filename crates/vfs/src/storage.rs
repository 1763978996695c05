//! What a VFS keeps its files in. The extension's is [`crate::Images`]; a test or a measurement may bring its own, with
//! a clock of its own.

use crate::node::Node;
use quire::Result;
use std::ffi::CStr;
use std::sync::Arc;
use std::time::Duration;

/// How a file is opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OpenHow {
    pub write: bool,
    pub create: bool,
    /// It must not exist.
    pub exclusive: bool,
    /// Its name goes at once, and the file with its last handle.
    pub delete_on_close: bool,
    pub kind: Kind,
}

/// What a file is to SQLite.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Database,
    /// A rollback journal or a write-ahead log: it belongs to the database whose name it has, with an ending.
    Journal,
    Other,
}

/// What a file that was opened can do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Promises {
    /// Bytes of a write that a crash leaves whole or absent, at most; 0: no such promise.
    pub whole_write_bytes: usize,
    /// A file grows only over data that is there.
    pub safe_append: bool,
    /// [`StoredFile::begin_update`] works.
    pub updates: bool,
    /// Reading a part of a page costs less than reading all of it.
    pub subpage_reads: bool,
}

/// Files by name. Names are full, as [`Storage::full_name`] makes them.
pub trait Storage: Send + Sync + 'static {
    /// The full name for a name that a program gave. `parameter` finds the parameters of the database's URI.
    ///
    /// # Errors
    /// The name means nothing.
    fn full_name(&self, name: &[u8], parameter: &dyn Fn(&CStr) -> Option<Vec<u8>>) -> Result<Vec<u8>>;

    /// Opens a file.
    ///
    /// # Errors
    /// Not found; exists; no space; busy: the image is another process's; corrupt; I/O.
    fn open(&self, name: &[u8], how: OpenHow) -> Result<Box<dyn StoredFile>>;

    /// Opens a file without a name. `None`: temporary files are the default VFS's.
    ///
    /// # Errors
    /// No space; I/O.
    fn open_unnamed(&self) -> Option<Result<Box<dyn StoredFile>>> {
        None
    }

    /// Removes a file, durably if `sync` is set.
    ///
    /// # Errors
    /// Not found; read-only; corrupt; I/O.
    fn delete(&self, name: &[u8], sync: bool) -> Result<()>;

    /// True if the file exists and is not empty, or with `write` if it can be written.
    ///
    /// # Errors
    /// Corrupt; I/O.
    fn access(&self, name: &[u8], write: bool) -> Result<bool>;

    /// Time and chance; `None`: the default VFS's.
    fn surroundings(&self) -> Option<&dyn Surroundings> {
        None
    }
}

/// Time and chance, where they are not the system's.
pub trait Surroundings {
    fn sleep(&self, time: Duration);
    /// Since 1970.
    fn realtime(&self) -> Duration;
    fn fill_random(&self, bytes: &mut [u8]);
}

/// An open file. Dropping it closes it.
pub trait StoredFile: Send {
    /// What all handles of the file share.
    fn node(&self) -> &Arc<Node>;
    fn promises(&self) -> Promises;
    /// False: it was opened for reading only, also where writing was asked for.
    fn may_write(&self) -> bool;

    /// Reads; less than `buf` holds only at the end of the file. In an update, its bytes are seen.
    ///
    /// # Errors
    /// Corrupt; I/O.
    fn read(&self, buf: &mut [u8], at: u64) -> Result<usize>;

    /// Writes all bytes, into the update if one is under way.
    ///
    /// # Errors
    /// No space; too large; read-only; corrupt; I/O.
    fn write(&mut self, bytes: &[u8], at: u64) -> Result<()>;

    /// # Errors
    /// Read-only; corrupt; I/O.
    fn truncate(&mut self, size: u64) -> Result<()>;

    /// Makes durable what was written.
    ///
    /// # Errors
    /// Something could not be written, now or earlier.
    fn sync(&self) -> Result<()>;

    /// # Errors
    /// Corrupt; I/O.
    fn size(&self) -> Result<u64>;

    /// True if the file's name means another file, or none, by now.
    ///
    /// # Errors
    /// Corrupt; I/O.
    fn has_moved(&self) -> Result<bool>;

    /// Begins an atomic update: what is written from now on is the file's as a whole, or not at all.
    ///
    /// # Errors
    /// Unsupported; busy.
    fn begin_update(&mut self) -> Result<()>;

    /// Makes the update the file's; [`StoredFile::sync`] makes it durable.
    ///
    /// # Errors
    /// As [`StoredFile::write`]; the file is then as it was.
    fn commit_update(&mut self) -> Result<()>;

    /// Gives the update up, if there is one.
    fn abort_update(&mut self);

    /// Ends the use of the file, and tells what dropping it would hide.
    ///
    /// # Errors
    /// Something could not be written.
    fn close(self: Box<Self>) -> Result<()>;
}
