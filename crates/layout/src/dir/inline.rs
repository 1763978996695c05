//! The records of a directory in its inode (`inline_data`), and the block that they would be.
//!
//! ```text
//! inode:  i_block 4..60 (entries) | system.data (entries)         a place is one of the two; its records fill it
//! block:  .  ..  the same entries, the last one up to the end
//! ```

use super::entry::{DirFormat, FileType, is_name};
use super::leaf;
use crate::error::{Corrupt, Structure};
use crate::units::Ino;

/// The byte of the block at which the records from the inode begin: behind `.` and `..`.
const DOTS: usize = 24;

/// Makes a zeroed block the only one of a directory whose records are in these places.
///
/// # Errors
/// Corrupt: a record breaks the rules, or the places hold more than a block.
pub fn to_block(
    format: &DirFormat,
    block: &mut [u8],
    (own, parent): (Ino, Ino),
    places: [&[u8]; 2],
) -> Result<(), Corrupt> {
    let bad = |why| Corrupt::new(Structure::DirectoryBlock, why);
    let (mut at, mut last) = (DOTS, None);
    if at + places[0].len() + places[1].len() > format.leaf_end() {
        return Err(bad("does not fit a block"));
    }
    for place in places {
        for e in format.inline_entries(place) {
            let e = e?;
            if e.is_used() && !is_name(e.name) {
                return Err(bad("name holds a NUL or a slash"));
            }
            last = Some(at + e.offset);
        }
        at += place.len();
    }
    format.init_first(block, own, parent);
    if let Some(last) = last {
        let middle = DOTS + places[0].len();
        format.put_rec_len(block, DOTS / 2, DOTS / 2);
        block[DOTS..middle].copy_from_slice(places[0]);
        block[middle..at].copy_from_slice(places[1]);
        format.put_rec_len(block, last, format.leaf_end() - last);
        format.seal_leaf(block);
    }
    Ok(())
}

/// Where the record is that [`to_block`] puts at byte `offset` of the block: a byte of the two places, one behind the
/// other. `None` for `.` and `..`.
#[must_use]
pub fn place(offset: usize) -> Option<usize> {
    offset.checked_sub(DOTS)
}

/// As [`DirFormat::remove`], in one of the places.
///
/// # Errors
/// As [`DirFormat::remove`].
pub fn remove(format: &DirFormat, place: &mut [u8], offset: usize) -> Result<(), Corrupt> {
    leaf::remove_in(format, place, place.len(), offset)
}

/// As [`DirFormat::replace`], in one of the places.
///
/// # Errors
/// As [`DirFormat::replace`].
pub fn replace(format: &DirFormat, place: &mut [u8], offset: usize, to: (Ino, FileType)) -> Result<(), Corrupt> {
    leaf::replace_in(format, place, place.len(), (offset, to.0, to.1))
}
