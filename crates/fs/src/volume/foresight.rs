//! What a write is going to read, looked for before anything is changed.
//!
//! *Guarantees* L7, for handles [`without_waiting`](super::without_waiting): a change whose first steps miss metadata
//! ends with a miss before them. What later steps of a long change read, they wait for.

use super::handle::Volume;
use super::manner::run;
use crate::data::{DiskAttr, coming_write};
use crate::engine::Misses;
use crate::error::Result;
use crate::inode::{Attr, live};
use quire_layout::Ino;

/// The attributes of a file before bytes are written to it. Through a handle
/// [`without_waiting`](super::without_waiting) the call also ends with a miss where memory has not the map of these
/// bytes, or the rest of a block of which they are a part.
///
/// # Errors
/// As [`Volume::getattr`].
pub fn attr_before_write(volume: &Volume, ino: Ino, offset: u64, bytes: u64) -> Result<Attr> {
    let coming = match volume.misses {
        Misses::Tell => coming_write(&volume.inner.data, ino, offset, bytes),
        Misses::Load => None,
    };
    let found = run(volume, |op| {
        let inode = live(op, ino)?;
        if let Some(coming) = &coming {
            coming.foresee(op, ino, &inode)?;
        }
        Ok(DiskAttr::new(&volume.inner.data, Attr::of(op.sb(), ino, &inode)))
    })?;
    Ok(found.with_pending(&volume.inner.data))
}
