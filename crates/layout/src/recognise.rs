//! What bytes are, where a superblock should be, before they are believed: ext4, the journal of another file system, or
//! something else.

use crate::bytes::{le16, le32};
use crate::features::incompat;
use crate::superblock::{MAGIC, SIZE};

/// Why bytes are no file system's superblock at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NotExt4 {
    #[error("not an ext4 file system: too small for a superblock")]
    TooSmall,
    #[error("not an ext4 file system: no superblock at byte 1024")]
    Empty,
    #[error("not an ext4 file system: the superblock at byte 1024 has no ext4 magic number")]
    NoMagic,
    #[error("an external journal, not a file system: name the file system, and this with journal_path=")]
    JournalDevice,
}

/// # Errors
/// The bytes at the superblock's place are none's of a file system.
pub fn recognise(raw: &[u8]) -> Result<(), NotExt4> {
    match raw.get(..SIZE) {
        None => Err(NotExt4::TooSmall),
        Some(raw) if raw.iter().all(|b| *b == 0) => Err(NotExt4::Empty),
        Some(raw) if le16(raw, 0x38) != MAGIC => Err(NotExt4::NoMagic),
        Some(raw) if le32(raw, 0x60) & incompat::JOURNAL_DEV != 0 => Err(NotExt4::JournalDevice),
        Some(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_system_is_named() {
        let mut raw = [0; SIZE];
        assert_eq!(recognise(&raw), Err(NotExt4::Empty));
        assert_eq!(recognise(&raw[..100]), Err(NotExt4::TooSmall));
        raw[0] = 1;
        assert_eq!(recognise(&raw), Err(NotExt4::NoMagic));
        raw[0x38..0x3a].copy_from_slice(&MAGIC.to_le_bytes());
        assert_eq!(recognise(&raw), Ok(()));
        raw[0x60] = 8;
        assert_eq!(recognise(&raw), Err(NotExt4::JournalDevice));
    }
}
