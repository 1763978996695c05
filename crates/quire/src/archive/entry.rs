//! One object on its way into an image, and where its data comes from.

use crate::error::{Error, ErrorKind, Result};
use crate::metadata::{FileType, Timestamp};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Bytes of a path. Each of its names takes many times its length in memory (I2).
const MAX_PATH_BYTES: usize = 1 << 20;
/// Bytes of a longer one that its error shows.
const SHOWN_BYTES: usize = 100;

/// A path inside of the tree that is imported: names without `/`, `.` and `..`. Empty: the tree's root.
pub(super) type Names = Vec<Vec<u8>>;

/// What an entry is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Dir,
    /// Of so many bytes, holes included.
    File(u64),
    Symlink(Vec<u8>),
    /// Another name of an entry that came before.
    HardLink(Names),
    /// A device, fifo or socket.
    Node(FileType, (u32, u32)),
}

/// An object that is to be made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) path: Names,
    pub(super) kind: Kind,
    pub(super) permissions: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) modified: Timestamp,
    pub(super) accessed: Option<Timestamp>,
    /// Full names and values.
    pub(super) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The data of a file.
pub(super) trait Data {
    /// The next bytes of data, in order: their place in the file, and how many. `None`: that is all; the rest are
    /// holes.
    ///
    /// # Errors
    /// The source cannot be read.
    fn next(&mut self, buf: &mut [u8]) -> Result<Option<(u64, usize)>>;

    /// The ranges of data, as start and length, instead of the data.
    ///
    /// # Errors
    /// The source cannot be read.
    fn ranges(&mut self, each: &mut dyn FnMut(u64, u64)) -> Result<()>;
}

/// No data.
pub(super) struct NoData;

impl Data for NoData {
    fn next(&mut self, _: &mut [u8]) -> Result<Option<(u64, usize)>> {
        Ok(None)
    }

    fn ranges(&mut self, _: &mut dyn FnMut(u64, u64)) -> Result<()> {
        Ok(())
    }
}

/// Receives the entries of a tree, each before its data is read.
pub(super) trait Sink {
    fn entry(&mut self, entry: &Entry, data: &mut dyn Data) -> Result<()>;

    /// A layer of an OCI image begins: whiteouts in it hide what came before it.
    fn layer(&mut self) {}
}

/// The names of a path, as a tar or a whiteout has it. A `/` in front of it means nothing, as to GNU tar: the path
/// begins at the tree's root.
///
/// # Errors
/// Outside root: with `..`. Bad input: a zero byte in it, or longer than [`MAX_PATH_BYTES`].
pub(super) fn names(path: &[u8]) -> Result<Names> {
    if path.len() > MAX_PATH_BYTES {
        let beginning = [&path[..SHOWN_BYTES], b"..."].concat();
        let why = format!("a path of {} bytes, and {MAX_PATH_BYTES} are read", path.len());
        return Err(Error::new(ErrorKind::BadInput, why).at(shown(&beginning)));
    }
    if path.contains(&0) {
        return Err(Error::new(ErrorKind::BadInput, "a name has a zero byte").at(shown(path)));
    }
    let parts = path.split(|b| *b == b'/').filter(|p| !p.is_empty() && *p != b".");
    let names: Names = parts.map(<[u8]>::to_vec).collect();
    if names.iter().any(|n| n == b"..") {
        let why = "a name with .. would leave the root of the import";
        return Err(Error::new(ErrorKind::OutsideRoot, why).at(shown(path)));
    }
    Ok(names)
}

/// A path for messages.
pub(super) fn shown(path: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(path))
}

/// Names as one path, for messages.
pub(super) fn joined(names: &[Vec<u8>]) -> PathBuf {
    names.iter().map(|n| OsStr::from_bytes(n)).collect()
}
