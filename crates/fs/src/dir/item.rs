//! One name of a listing, and its receiver.

use quire_layout::Ino;
use quire_layout::dir::FileType;

/// One name of a listing.
#[derive(Clone, Copy, Debug)]
pub struct DirItem<'a> {
    pub ino: Ino,
    pub name: &'a [u8],
    /// `Unknown` on file systems without `filetype`; the inode has the type.
    pub file_type: FileType,
    /// The cookie with which a listing goes on behind this item. Never 0, below 2^63.
    pub next_cookie: u64,
}

/// Receives the items of a listing; `false` ends it before the item.
pub(super) type Sink<'s> = dyn FnMut(DirItem<'_>) -> bool + 's;
