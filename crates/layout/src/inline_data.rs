//! Small files and directories inside their inode (`inline_data`).
//!
//! ```text
//! file       i_block[60]: bytes 0..60     | attribute system.data: bytes 60.. up to the size
//! directory  i_block[60]: parent u32, entries (56 bytes) | system.data: more entries
//! ```
//! Names are removed and changed in place. Everything else first moves the content to a block; nothing new is put
//! into an inode.
//! Source: kernel documentation, "ext4: inline data".

use crate::error::{Corrupt, Structure};
use crate::inode::{Inode, flags};
use crate::units::Ino;
use crate::xattr::{self, Namespace, Value, ValueInodes};

/// True if the inode's content is in the inode.
#[must_use]
pub fn is_inline(inode: &Inode) -> bool {
    inode.has(flags::INLINE_DATA)
}

/// Bytes of `i_block` before a directory's entries: the number of its parent.
pub const PARENT: usize = 4;
/// Bytes of a directory's entries in `i_block`.
pub const ENTRIES: usize = 56;

/// The part that is in the attribute; empty if there is none.
///
/// # Errors
/// Corrupt: the inode's attributes are, or the value is not in the inode.
pub fn tail(ino: Ino, inode: &Inode) -> Result<Vec<u8>, Corrupt> {
    let attrs = xattr::decode_inline(ino, inode, ValueInodes::Allowed)?;
    match attrs.into_iter().find(|a| a.is(Namespace::SYSTEM, b"data")).map(|a| a.value) {
        None => Ok(Vec::new()),
        Some(Value::Here(bytes)) => Ok(bytes),
        Some(_) => Err(Corrupt::new(Structure::InlineData, "value is not in the inode").of(ino.0)),
    }
}

/// The bytes of an inline file or symbolic link that the inode holds, at most its size. A file is zeros from there to
/// its size: `mke2fs -d` makes a sparse file of any size so.
///
/// # Errors
/// Corrupt: as [`tail`].
pub fn content(ino: Ino, inode: &Inode) -> Result<Vec<u8>, Corrupt> {
    let mut bytes = inode.block_area().to_vec();
    bytes.extend(tail(ino, inode)?);
    bytes.truncate(usize::try_from(inode.size()).unwrap_or(usize::MAX));
    Ok(bytes)
}
