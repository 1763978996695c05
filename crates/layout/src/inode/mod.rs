//! An inode record: 128 bytes, or `s_inode_size` with the extended fields.
//!
//! ```text
//! 0x00 mode uid_lo size_lo atime ctime mtime dtime gid_lo links blocks_lo flags version
//! 0x28 i_block[60]: extent root, indirect map, fast symlink, or device number
//! 0x64 generation file_acl_lo size_hi | 0x74 osd2: blocks_hi acl_hi uid_hi gid_hi csum_lo
//! 0x80 extra_isize csum_hi ctime_x mtime_x atime_x crtime crtime_x version_hi projid | xattrs ...
//! ```
//! The bytes are kept whole: what is not understood is written back as it was read.
//! Source: kernel documentation, "ext4: index nodes".

mod checksum;
mod device;
mod extended;
mod time;

pub use device::{device_number, is_device_number, set_device_number};
pub use extended::GOOD_OLD_SIZE;
pub use time::{Time, Timestamp, same_but_for_times};

use crate::bytes::{hi16, hi32, le16, le32, lo16, lo32, put_le16, put_le32};
use crate::error::{Corrupt, Structure};
use crate::features::{Features, ro_compat};
use crate::superblock::CreatorOs;
use crate::units::{BlockNo, Ino};
use smallvec::SmallVec;

/// Bytes of a record as mke2fs makes it; one of that size is no allocation.
const USUAL_SIZE: usize = 256;

/// `i_mode` file types.
pub mod mode {
    pub const FMT: u16 = 0xF000;
    pub const FIFO: u16 = 0x1000;
    pub const CHR: u16 = 0x2000;
    pub const DIR: u16 = 0x4000;
    pub const BLK: u16 = 0x6000;
    pub const REG: u16 = 0x8000;
    pub const LNK: u16 = 0xA000;
    pub const SOCK: u16 = 0xC000;
}

/// `i_flags` bits.
pub mod flags {
    pub const SECRM: u32 = 0x1;
    pub const UNRM: u32 = 0x2;
    pub const COMPR: u32 = 0x4;
    pub const SYNC: u32 = 0x8;
    pub const IMMUTABLE: u32 = 0x10;
    pub const APPEND: u32 = 0x20;
    pub const NODUMP: u32 = 0x40;
    pub const NOATIME: u32 = 0x80;
    pub const ENCRYPT: u32 = 0x800;
    pub const INDEX: u32 = 0x1000;
    pub const IMAGIC: u32 = 0x2000;
    pub const JOURNAL_DATA: u32 = 0x4000;
    pub const NOTAIL: u32 = 0x8000;
    pub const DIRSYNC: u32 = 0x1_0000;
    pub const TOPDIR: u32 = 0x2_0000;
    pub const HUGE_FILE: u32 = 0x4_0000;
    pub const EXTENTS: u32 = 0x8_0000;
    pub const VERITY: u32 = 0x10_0000;
    pub const EA_INODE: u32 = 0x20_0000;
    pub const DAX: u32 = 0x200_0000;
    pub const INLINE_DATA: u32 = 0x1000_0000;
    pub const PROJINHERIT: u32 = 0x2000_0000;
    pub const CASEFOLD: u32 = 0x4000_0000;
}

/// One inode record, decoded in place.
#[derive(Clone, PartialEq, Eq)]
pub struct Inode {
    raw: SmallVec<[u8; USUAL_SIZE]>,
    /// Whose image it is in: some fields mean something else in those of the Hurd.
    pub os: CreatorOs,
}

impl Inode {
    /// Takes a record as it stands on disk and checks its checksum (`seed`: the file system's, `None`
    /// without `metadata_csum`).
    ///
    /// # Errors
    /// Corrupt, with the inode as object.
    pub fn decode(ino: Ino, raw: &[u8], seed: Option<u32>) -> Result<Self, Corrupt> {
        let inode = Inode { raw: SmallVec::from_slice(raw), os: CreatorOs::Linux };
        let bad = |why| Corrupt::new(Structure::Inode, why).of(ino.0);
        if raw.len() > GOOD_OLD_SIZE {
            let extra = inode.extra_isize();
            if GOOD_OLD_SIZE + extra > raw.len() || !extra.is_multiple_of(4) {
                return Err(bad("extended size out of range"));
            }
        }
        if let Some(seed) = seed {
            // A record that was never used is all zeros, checksum included.
            let never_used = raw.iter().all(|b| *b == 0);
            if !never_used && checksum::stored(raw) != checksum::compute(raw, ino, seed) {
                return Err(bad("checksum does not match"));
            }
        }
        Ok(inode)
    }

    /// A fresh, zeroed record of `size` bytes whose extended part has `extra` bytes.
    #[must_use]
    pub fn new(size: usize, extra: u16) -> Self {
        let mut raw = SmallVec::from_elem(0, size);
        if size > GOOD_OLD_SIZE {
            let fits = u16::try_from(size - GOOD_OLD_SIZE).unwrap_or(u16::MAX);
            put_le16(&mut raw, 0x80, extra.min(fits));
        }
        Inode { raw, os: CreatorOs::Linux }
    }

    /// The whole record, for xattrs in its tail.
    #[must_use]
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    pub fn raw_mut(&mut self) -> &mut [u8] {
        &mut self.raw
    }

    /// Bytes of the extended part; 0 in a 128-byte record.
    #[must_use]
    pub fn extra_isize(&self) -> usize {
        extended::extra_isize(&self.raw)
    }

    #[must_use]
    pub fn mode(&self) -> u16 {
        le16(&self.raw, 0x00)
    }

    pub fn set_mode(&mut self, m: u16) {
        put_le16(&mut self.raw, 0x00, m);
    }

    /// `mode & FMT`.
    #[must_use]
    pub fn file_type(&self) -> u16 {
        self.mode() & mode::FMT
    }

    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.file_type() == mode::DIR
    }

    #[must_use]
    pub fn is_file(&self) -> bool {
        self.file_type() == mode::REG
    }

    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.file_type() == mode::LNK
    }

    #[must_use]
    pub fn uid(&self) -> u32 {
        u32::from(le16(&self.raw, 0x02)) | u32::from(le16(&self.raw, 0x78)) << 16
    }

    pub fn set_uid(&mut self, uid: u32) {
        put_le16(&mut self.raw, 0x02, lo16(uid));
        put_le16(&mut self.raw, 0x78, hi16(uid));
    }

    #[must_use]
    pub fn gid(&self) -> u32 {
        u32::from(le16(&self.raw, 0x18)) | u32::from(le16(&self.raw, 0x7A)) << 16
    }

    pub fn set_gid(&mut self, gid: u32) {
        put_le16(&mut self.raw, 0x18, lo16(gid));
        put_le16(&mut self.raw, 0x7A, hi16(gid));
    }

    /// Size in bytes. The high half counts for files, and for directories as well (`large_dir`).
    #[must_use]
    pub fn size(&self) -> u64 {
        let hi = if self.is_file() || self.is_dir() { u64::from(le32(&self.raw, 0x6C)) << 32 } else { 0 };
        u64::from(le32(&self.raw, 0x04)) | hi
    }

    pub fn set_size(&mut self, size: u64) {
        put_le32(&mut self.raw, 0x04, lo32(size));
        put_le32(&mut self.raw, 0x6C, hi32(size));
    }

    #[must_use]
    pub fn links(&self) -> u16 {
        le16(&self.raw, 0x1A)
    }

    pub fn set_links(&mut self, n: u16) {
        put_le16(&mut self.raw, 0x1A, n);
    }

    #[must_use]
    pub fn flags(&self) -> u32 {
        le32(&self.raw, 0x20)
    }

    pub fn set_flags(&mut self, f: u32) {
        put_le32(&mut self.raw, 0x20, f);
    }

    #[must_use]
    pub fn has(&self, flag: u32) -> bool {
        self.flags() & flag != 0
    }

    #[must_use]
    pub fn uses_extents(&self) -> bool {
        self.has(flags::EXTENTS)
    }

    #[must_use]
    pub fn generation(&self) -> u32 {
        le32(&self.raw, 0x64)
    }

    pub fn set_generation(&mut self, n: u32) {
        put_le32(&mut self.raw, 0x64, n);
    }

    /// The block of extended attributes, or `None`. In images of the Hurd the upper half is part of the mode.
    #[must_use]
    pub fn xattr_block(&self) -> Option<BlockNo> {
        let hi = if self.os == CreatorOs::Hurd { 0 } else { u64::from(le16(&self.raw, 0x76)) << 32 };
        let b = u64::from(le32(&self.raw, 0x68)) | hi;
        (b != 0).then_some(BlockNo(b))
    }

    pub fn set_xattr_block(&mut self, b: Option<BlockNo>) {
        let b = b.map_or(0, |b| b.0);
        put_le32(&mut self.raw, 0x68, lo32(b));
        if self.os != CreatorOs::Hurd {
            put_le16(&mut self.raw, 0x76, lo16(hi32(b)));
        }
    }

    /// Deletion time, or the next inode of the orphan list.
    #[must_use]
    pub fn dtime(&self) -> u32 {
        le32(&self.raw, 0x14)
    }

    pub fn set_dtime(&mut self, t: u32) {
        put_le32(&mut self.raw, 0x14, t);
    }

    /// Space used, in 512-byte units (`st_blocks`).
    #[must_use]
    pub fn sectors(&self, f: Features, block_size: u64) -> u64 {
        let lo = u64::from(le32(&self.raw, 0x1C));
        if !f.has_ro_compat(ro_compat::HUGE_FILE) {
            return lo;
        }
        let n = lo | u64::from(le16(&self.raw, 0x74)) << 32;
        if self.has(flags::HUGE_FILE) { n.saturating_mul(block_size / 512) } else { n }
    }

    /// Stores the space used, in 512-byte units; `false` if the image's features cannot hold it.
    #[must_use]
    pub fn set_sectors(&mut self, f: Features, block_size: u64, n: u64) -> bool {
        let huge = f.has_ro_compat(ro_compat::HUGE_FILE);
        let (stored, flag) = match n {
            n if hi32(n) == 0 => (n, false),
            n if huge && n >> 48 == 0 => (n, false),
            n if huge && (n / (block_size / 512)) >> 48 == 0 => (n / (block_size / 512), true),
            _ => return false,
        };
        put_le32(&mut self.raw, 0x1C, lo32(stored));
        if huge {
            put_le16(&mut self.raw, 0x74, lo16(hi32(stored)));
            let f = self.flags() & !flags::HUGE_FILE;
            self.set_flags(if flag { f | flags::HUGE_FILE } else { f });
        }
        true
    }

    /// The 60 bytes of the block map.
    #[must_use]
    pub fn block_area(&self) -> &[u8; 60] {
        self.raw[0x28..0x64].try_into().expect("60 bytes")
    }

    pub fn block_area_mut(&mut self) -> &mut [u8; 60] {
        (&mut self.raw[0x28..0x64]).try_into().expect("60 bytes")
    }

    /// `i_version`, which the kernel counts up on each change. 0 in images of the Hurd, where a translator's block has
    /// the field's place.
    #[must_use]
    pub fn version(&self) -> u64 {
        if self.os == CreatorOs::Hurd {
            return 0;
        }
        let hi = if extended::has_extra(&self.raw, 0x9C) { u64::from(le32(&self.raw, 0x98)) << 32 } else { 0 };
        u64::from(le32(&self.raw, 0x24)) | hi
    }

    pub fn set_version(&mut self, v: u64) {
        if self.os == CreatorOs::Hurd {
            return;
        }
        put_le32(&mut self.raw, 0x24, lo32(v));
        if extended::has_extra(&self.raw, 0x9C) {
            put_le32(&mut self.raw, 0x98, hi32(v));
        }
    }

    /// Project id, or 0.
    #[must_use]
    pub fn project(&self) -> u32 {
        if extended::has_extra(&self.raw, 0xA0) { le32(&self.raw, 0x9C) } else { 0 }
    }

    /// Recomputes the checksum and returns the bytes for the disk.
    pub fn sealed(&mut self, ino: Ino, seed: Option<u32>) -> &[u8] {
        if let Some(seed) = seed {
            checksum::seal(&mut self.raw, ino, seed);
        }
        &self.raw
    }

    /// Seed of the checksums of this inode's own blocks (extent nodes, directory blocks).
    #[must_use]
    pub fn checksum_seed(&self, ino: Ino, fs_seed: u32) -> u32 {
        checksum::seed_of_blocks(&self.raw, ino, fs_seed)
    }
}

impl std::fmt::Debug for Inode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Inode")
            .field("mode", &format_args!("{:o}", self.mode()))
            .field("size", &self.size())
            .field("links", &self.links())
            .field("flags", &format_args!("{:#x}", self.flags()))
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fields_of_the_hurd_are_left_alone() {
        let mut i = Inode { os: CreatorOs::Hurd, ..Inode::new(256, 32) };
        i.raw_mut()[0x24..0x28].copy_from_slice(&[1, 2, 3, 4]);
        i.raw_mut()[0x76..0x78].copy_from_slice(&[5, 6]);
        let before = i.raw().to_vec();
        i.set_version(99);
        i.set_xattr_block(None);
        assert_eq!((i.version(), i.xattr_block(), i.raw()), (0, None, &before[..]));
    }

    #[test]
    fn space_beyond_32_bits_needs_huge_file() {
        let huge = Features { ro_compat: ro_compat::HUGE_FILE, ..Features::default() };
        let mut i = Inode::new(256, 32);
        assert!(!i.set_sectors(Features::default(), 4096, 1 << 32));
        assert!(i.set_sectors(huge, 4096, 1 << 32));
        assert_eq!(i.sectors(huge, 4096), 1 << 32);
        assert!(i.set_sectors(huge, 4096, 1 << 48));
        assert!(i.has(flags::HUGE_FILE));
        assert_eq!(i.sectors(huge, 4096), 1 << 48);
        assert!(i.set_sectors(huge, 4096, 8));
        assert!(!i.has(flags::HUGE_FILE));
    }
}
