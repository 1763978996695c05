//! A name's entry, and which names there can be.

use crate::error::{Error, Result};
use quire_layout::dir::{FileType, is_name};
use quire_layout::{BlockNo, Corrupt, Ino, Structure};

/// A name's entry and its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Entry {
    pub ino: Ino,
    /// `Unknown` on file systems without `filetype`; the inode has the type.
    pub file_type: FileType,
    pub(super) block: BlockNo,
    pub(super) offset: usize,
}

/// The longest name, in bytes.
pub const MAX_NAME: usize = 255;

pub(super) fn check_name(name: &[u8]) -> Result<()> {
    match name.len() {
        _ if is_name(name) => Ok(()),
        0 => Err(Error::NotFound),
        n if n > MAX_NAME => Err(Error::NameTooLong),
        _ => Err(Error::Invalid("a name holds neither NUL nor a slash")),
    }
}

pub(super) fn corrupt(why: &'static str, dir: Ino) -> Corrupt {
    Corrupt::new(Structure::DirectoryBlock, why).of(dir.0)
}
