//! How far the extended part of an inode record reaches.

use crate::bytes::le16;

/// Bytes of the part every inode has.
pub const GOOD_OLD_SIZE: usize = 128;

/// Bytes of the extended part; 0 in a 128-byte record.
pub(super) fn extra_isize(raw: &[u8]) -> usize {
    if raw.len() > GOOD_OLD_SIZE { usize::from(le16(raw, 0x80)) } else { 0 }
}

/// True if the extended part reaches byte `end` of the record.
pub(super) fn has_extra(raw: &[u8], end: usize) -> bool {
    GOOD_OLD_SIZE + extra_isize(raw) >= end
}
