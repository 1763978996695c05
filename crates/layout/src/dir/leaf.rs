//! A block of names: a linear directory's blocks, and the leaves of an htree.
//!
//! ```text
//! entry entry ... entry | with metadata_csum the last 12 bytes: 0u32  12u16  0u8  0xDEu8  crc32c u32
//! ```
//! The checksum covers the block without the tail, seeded with the directory's inode number and generation.
//! The tail looks like a free entry to those who do not know it.

use super::entry::{DirEntry, DirFormat, Entries, FileType, is_name};
use crate::bytes::{le32, put_le32};
use crate::checksum::crc32c;
use crate::error::{Corrupt, Structure};
use crate::units::Ino;

/// Bytes of the checksum tail.
const TAIL: usize = 12;
/// `det_reserved_ft` of the tail.
const TAIL_TYPE: u8 = 0xDE;

fn bad(why: &'static str) -> Corrupt {
    Corrupt::new(Structure::DirectoryBlock, why)
}

impl DirFormat {
    /// Where the entries of a leaf end.
    pub(super) fn leaf_end(&self) -> usize {
        self.block_size.bytes() - if self.csum_seed.is_some() { TAIL } else { 0 }
    }

    /// The records of a leaf, free ones included.
    #[must_use]
    pub fn entries<'a>(&self, block: &'a [u8]) -> Entries<'a> {
        self.walk(block, 0, self.leaf_end())
    }

    /// The records of a directory in its inode, in one of the two places where they are.
    #[must_use]
    pub fn inline_entries<'a>(&self, area: &'a [u8]) -> Entries<'a> {
        self.walk(area, 0, area.len())
    }

    /// Checks a leaf that came from disk: checksum, then every record and name.
    ///
    /// # Errors
    /// Corrupt; the block is for the caller to add.
    pub fn check_leaf(&self, block: &[u8]) -> Result<(), Corrupt> {
        if block.len() != self.block_size.bytes() {
            return Err(bad("not a whole block"));
        }
        if let Some(seed) = self.csum_seed {
            let end = self.leaf_end();
            if block[end..end + 8] != [0, 0, 0, 0, 12, 0, 0, TAIL_TYPE] {
                return Err(bad("no checksum tail"));
            }
            if le32(block, end + 8) != crc32c(seed, &block[..end]) {
                return Err(bad("checksum does not match"));
            }
        }
        for e in self.entries(block) {
            let e = e?;
            if e.is_used() && !is_name(e.name) {
                return Err(bad("name holds a NUL or a slash"));
            }
        }
        Ok(())
    }

    /// Writes the tail. To be called after every change of a leaf.
    pub(super) fn seal_leaf(&self, block: &mut [u8]) {
        if let Some(seed) = self.csum_seed {
            let end = self.leaf_end();
            block[end..end + 8].copy_from_slice(&[0, 0, 0, 0, 12, 0, 0, TAIL_TYPE]);
            let sum = crc32c(seed, &block[..end]);
            put_le32(block, end + 8, sum);
        }
    }

    /// The used entry with this name.
    ///
    /// # Errors
    /// Corrupt: a record before it breaks the rules.
    pub fn find<'a>(&self, block: &'a [u8], name: &[u8]) -> Result<Option<DirEntry<'a>>, Corrupt> {
        for e in self.entries(block) {
            let e = e?;
            if e.is_used() && e.name == name {
                return Ok(Some(e));
            }
        }
        Ok(None)
    }

    /// Makes a zeroed block the first of a new directory: `.` and `..`.
    pub fn init_first(&self, block: &mut [u8], own: Ino, parent: Ino) {
        let first = Self::record_len(1);
        self.put_entry(block, (0, first), own, FileType::Directory, b".");
        self.put_entry(block, (first, self.leaf_end() - first), parent, FileType::Directory, b"..");
        self.seal_leaf(block);
    }

    /// Makes a zeroed block a leaf without names.
    pub fn init_leaf(&self, block: &mut [u8]) {
        self.put_rec_len(block, 0, self.leaf_end());
        self.seal_leaf(block);
    }

    /// The first gap that holds a name: its record's byte, length, and bytes that stay with the record.
    fn gap(&self, block: &[u8], name_len: usize) -> Result<Option<(usize, usize, usize)>, Corrupt> {
        let need = Self::record_len(name_len);
        for e in self.entries(block) {
            let e = e?;
            if e.rec_len - e.needs() >= need {
                return Ok(Some((e.offset, e.rec_len, e.needs())));
            }
        }
        Ok(None)
    }

    /// True if a name of so many bytes fits in.
    ///
    /// # Errors
    /// Corrupt: a record breaks the rules.
    pub fn has_room(&self, block: &[u8], name_len: usize) -> Result<bool, Corrupt> {
        Ok(self.gap(block, name_len)?.is_some())
    }

    /// Puts a name into the first gap that holds it; `false` if there is none, and nothing has changed.
    ///
    /// # Errors
    /// Corrupt: a record breaks the rules.
    pub fn insert(&self, block: &mut [u8], name: &[u8], ino: Ino, ft: FileType) -> Result<bool, Corrupt> {
        let Some((at, rec_len, used)) = self.gap(block, name.len())? else { return Ok(false) };
        if used > 0 {
            self.put_rec_len(block, at, used);
        }
        self.put_entry(block, (at + used, rec_len - used), ino, ft, name);
        self.seal_leaf(block);
        Ok(true)
    }

    /// Frees the entry at byte `offset`: its space joins the record before it. Its bytes are wiped.
    ///
    /// # Errors
    /// Corrupt: a record breaks the rules, or none begins there.
    pub fn remove(&self, block: &mut [u8], offset: usize) -> Result<(), Corrupt> {
        remove_in(self, block, self.leaf_end(), offset)?;
        self.seal_leaf(block);
        Ok(())
    }

    /// Lets the entry at byte `offset` name another inode. `..` of an htree root: [`DirFormat::set_root_parent`].
    ///
    /// # Errors
    /// Corrupt: no used entry is there.
    pub fn replace(&self, block: &mut [u8], offset: usize, ino: Ino, ft: FileType) -> Result<(), Corrupt> {
        replace_in(self, block, self.leaf_end(), (offset, ino, ft))?;
        self.seal_leaf(block);
        Ok(())
    }

    pub(super) fn put_target(&self, block: &mut [u8], offset: usize, ino: Ino, ft: FileType) {
        put_le32(block, offset, ino.0);
        block[offset + 7] = if self.filetype { ft.number() } else { 0 };
    }

    /// The first two entries of a directory's first block, which must be `.` (`own`) and `..`; gives the second.
    ///
    /// # Errors
    /// Corrupt: they are not.
    pub fn dots<'a>(&self, block: &'a [u8], own: Ino) -> Result<DirEntry<'a>, Corrupt> {
        // An htree root's `..` reaches over the index to the very end of the block, also with a checksum.
        let end = self.block_size.bytes();
        let dot = self.entry(block, 0, end)?;
        if dot.name != b"." || dot.ino != own {
            return Err(bad("first entry is not ."));
        }
        let dotdot = self.entry(block, dot.rec_len, end)?;
        if dotdot.name != b".." || !dotdot.is_used() {
            return Err(bad("second entry is not .."));
        }
        Ok(dotdot)
    }
}

/// [`DirFormat::remove`] from records that end at byte `end`; seals nothing.
pub(super) fn remove_in(format: &DirFormat, block: &mut [u8], end: usize, offset: usize) -> Result<(), Corrupt> {
    let mut before = None;
    for e in format.walk(block, 0, end) {
        let e = e?;
        if e.offset < offset {
            before = Some((e.offset, e.rec_len));
            continue;
        }
        if e.offset > offset {
            break;
        }
        let rec_len = e.rec_len;
        block[offset..offset + rec_len].fill(0);
        match before {
            Some((at, len)) => format.put_rec_len(block, at, len + rec_len),
            None => format.put_rec_len(block, offset, rec_len),
        }
        return Ok(());
    }
    Err(bad("no entry where one was found"))
}

/// [`DirFormat::replace`] among records that end at byte `end`; seals nothing.
pub(super) fn replace_in(
    format: &DirFormat,
    block: &mut [u8],
    end: usize,
    to: (usize, Ino, FileType),
) -> Result<(), Corrupt> {
    let (offset, ino, ft) = to;
    if !format.entry(block, offset, end)?.is_used() {
        return Err(bad("no entry where one was found"));
    }
    format.put_target(block, offset, ino, ft);
    Ok(())
}
