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

use crate::bytes::{hi16, hi32, le16, le32, lo16, lo32, put_le16, put_le32};
use crate::checksum::{crc32c, crc32c_le32};
use crate::error::{Corrupt, Structure};
use crate::features::{Features, ro_compat};
use crate::units::{BlockNo, Ino};

/// Bytes of the part every inode has.
pub const GOOD_OLD_SIZE: usize = 128;

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

const CSUM_LO: usize = 0x7C;
const CSUM_HI: usize = 0x82;

/// A point in time as ext4 stores it: seconds since the epoch in 34 bits (1901 to 2446), nanoseconds in 30.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Timestamp {
    pub secs: i64,
    pub nanos: u32,
}

impl Timestamp {
    /// The last second that 34 bits hold, 2446-05-10.
    pub const MAX_SECS: i64 = 0x3_7FFF_FFFF;
    /// The first, 1901-12-13.
    pub const MIN_SECS: i64 = -0x8000_0000;

    fn decode(base: u32, extra: Option<u32>) -> Self {
        let secs = i64::from(base.cast_signed());
        match extra {
            None => Timestamp { secs, nanos: 0 },
            Some(x) => Timestamp { secs: secs + (i64::from(x & 3) << 32), nanos: (x >> 2).min(999_999_999) },
        }
    }

    /// Base and extra words; clamps to what they hold.
    fn encode(self, wide: bool) -> (u32, u32) {
        let max = if wide { Self::MAX_SECS } else { i64::from(i32::MAX) };
        let secs = self.secs.clamp(Self::MIN_SECS, max);
        let base = lo32(secs.cast_unsigned());
        let epoch = lo32(((secs - i64::from(base.cast_signed())) >> 32).cast_unsigned()) & 3;
        (base, epoch | self.nanos << 2)
    }
}

/// Which of an inode's times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    Access,
    Change,
    Modify,
    Create,
}

impl Time {
    /// Offsets of the base and the extra word.
    fn at(self) -> (usize, usize) {
        match self {
            Time::Access => (0x08, 0x8C),
            Time::Change => (0x0C, 0x84),
            Time::Modify => (0x10, 0x88),
            Time::Create => (0x90, 0x94),
        }
    }
}

/// One inode record, decoded in place.
#[derive(Clone, PartialEq, Eq)]
pub struct Inode {
    raw: Vec<u8>,
}

impl Inode {
    /// Takes a record as it stands on disk and checks its checksum (`seed`: the file system's, `None`
    /// without `metadata_csum`).
    ///
    /// # Errors
    /// Corrupt, with the inode as object.
    pub fn decode(ino: Ino, raw: &[u8], seed: Option<u32>) -> Result<Self, Corrupt> {
        let inode = Inode { raw: raw.to_vec() };
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
            if !never_used && inode.stored_checksum() != inode.compute_checksum(ino, seed) {
                return Err(bad("checksum does not match"));
            }
        }
        Ok(inode)
    }

    /// A fresh, zeroed record of `size` bytes whose extended part has `extra` bytes.
    #[must_use]
    pub fn new(size: usize, extra: u16) -> Self {
        let mut raw = vec![0; size];
        if size > GOOD_OLD_SIZE {
            let fits = u16::try_from(size - GOOD_OLD_SIZE).unwrap_or(u16::MAX);
            put_le16(&mut raw, 0x80, extra.min(fits));
        }
        Inode { raw }
    }

    /// Recomputes the checksum and returns the bytes for the disk.
    pub fn sealed(&mut self, ino: Ino, seed: Option<u32>) -> &[u8] {
        if let Some(seed) = seed {
            let sum = self.compute_checksum(ino, seed);
            put_le16(&mut self.raw, CSUM_LO, lo16(sum));
            if self.has_extra(CSUM_HI + 2) {
                put_le16(&mut self.raw, CSUM_HI, hi16(sum));
            }
        }
        &self.raw
    }

    /// True if `other`, a record of the same size, differs at most in access, modification and change times,
    /// `i_version` and checksum.
    #[must_use]
    pub fn same_but_for_times(&self, other: &[u8]) -> bool {
        const KEPT: [std::ops::Range<usize>; 4] = [0..0x08, 0x14..0x24, 0x28..CSUM_LO, CSUM_LO + 2..GOOD_OLD_SIZE];
        let same = |r: std::ops::Range<usize>| self.raw.get(r.clone()) == other.get(r);
        let wide = self.raw.len().min(0x9C);
        let extra = self.raw.len() <= GOOD_OLD_SIZE || (same(0x80..CSUM_HI) && same(0x90..wide.min(0x98)));
        KEPT.into_iter().all(same) && extra && self.raw[wide..] == other[wide.min(other.len())..]
    }

    /// The whole record, for xattrs in its tail.
    #[must_use]
    pub fn raw(&self) -> &[u8] {
        &self.raw
    }

    pub fn raw_mut(&mut self) -> &mut [u8] {
        &mut self.raw
    }

    /// Seed of the checksums of this inode's own blocks (extent nodes, directory blocks).
    #[must_use]
    pub fn checksum_seed(&self, ino: Ino, fs_seed: u32) -> u32 {
        crc32c_le32(crc32c_le32(fs_seed, ino.0), self.generation())
    }

    fn compute_checksum(&self, ino: Ino, fs_seed: u32) -> u32 {
        let mut sum = self.checksum_seed(ino, fs_seed);
        sum = crc32c(sum, &self.raw[..CSUM_LO]);
        sum = crc32c(sum, &[0, 0]);
        sum = crc32c(sum, &self.raw[CSUM_LO + 2..GOOD_OLD_SIZE]);
        if self.raw.len() > GOOD_OLD_SIZE {
            let rest = if self.has_extra(CSUM_HI + 2) {
                sum = crc32c(sum, &self.raw[GOOD_OLD_SIZE..CSUM_HI]);
                sum = crc32c(sum, &[0, 0]);
                CSUM_HI + 2
            } else {
                GOOD_OLD_SIZE
            };
            sum = crc32c(sum, &self.raw[rest..]);
        }
        if self.has_extra(CSUM_HI + 2) { sum } else { sum & 0xFFFF }
    }

    fn stored_checksum(&self) -> u32 {
        let hi = if self.has_extra(CSUM_HI + 2) { u32::from(le16(&self.raw, CSUM_HI)) << 16 } else { 0 };
        u32::from(le16(&self.raw, CSUM_LO)) | hi
    }

    /// Bytes of the extended part; 0 in a 128-byte record.
    #[must_use]
    pub fn extra_isize(&self) -> usize {
        if self.raw.len() > GOOD_OLD_SIZE { usize::from(le16(&self.raw, 0x80)) } else { 0 }
    }

    /// True if the extended part reaches byte `end` of the record.
    fn has_extra(&self, end: usize) -> bool {
        GOOD_OLD_SIZE + self.extra_isize() >= end
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

    /// The block of extended attributes, or `None`.
    #[must_use]
    pub fn xattr_block(&self) -> Option<BlockNo> {
        let b = u64::from(le32(&self.raw, 0x68)) | u64::from(le16(&self.raw, 0x76)) << 32;
        (b != 0).then_some(BlockNo(b))
    }

    pub fn set_xattr_block(&mut self, b: Option<BlockNo>) {
        let b = b.map_or(0, |b| b.0);
        put_le32(&mut self.raw, 0x68, lo32(b));
        put_le16(&mut self.raw, 0x76, lo16(hi32(b)));
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

    /// One of the times, or `None` for a creation time that the record has no room for.
    #[must_use]
    pub fn time(&self, which: Time) -> Option<Timestamp> {
        let (base, extra) = which.at();
        if which == Time::Create && !self.has_extra(base + 4) {
            return None;
        }
        let extra = self.has_extra(extra + 4).then(|| le32(&self.raw, extra));
        Some(Timestamp::decode(le32(&self.raw, base), extra))
    }

    /// Stores a time, clamped to what the record can hold.
    pub fn set_time(&mut self, which: Time, t: Timestamp) {
        let (base, extra) = which.at();
        if which == Time::Create && !self.has_extra(base + 4) {
            return;
        }
        let wide = self.has_extra(extra + 4);
        let (b, x) = t.encode(wide);
        put_le32(&mut self.raw, base, b);
        if wide {
            put_le32(&mut self.raw, extra, x);
        }
    }

    /// `i_version`, which the kernel counts up on each change.
    #[must_use]
    pub fn version(&self) -> u64 {
        let hi = if self.has_extra(0x9C) { u64::from(le32(&self.raw, 0x98)) << 32 } else { 0 };
        u64::from(le32(&self.raw, 0x24)) | hi
    }

    pub fn set_version(&mut self, v: u64) {
        put_le32(&mut self.raw, 0x24, lo32(v));
        if self.has_extra(0x9C) {
            put_le32(&mut self.raw, 0x98, hi32(v));
        }
    }

    /// Project id, or 0.
    #[must_use]
    pub fn project(&self) -> u32 {
        if self.has_extra(0xA0) { le32(&self.raw, 0x9C) } else { 0 }
    }

    pub fn set_project(&mut self, id: u32) {
        if self.has_extra(0xA0) {
            put_le32(&mut self.raw, 0x9C, id);
        }
    }

    /// Device number of a device node as (major, minor).
    #[must_use]
    pub fn device(&self) -> (u32, u32) {
        let (old, new) = (le32(&self.raw, 0x28), le32(&self.raw, 0x2C));
        if old != 0 {
            ((old >> 8) & 0xFF, old & 0xFF)
        } else {
            ((new >> 8) & 0xFFF, (new & 0xFF) | ((new >> 12) & 0xF_FF00))
        }
    }

    pub fn set_device(&mut self, major: u32, minor: u32) {
        self.block_area_mut().fill(0);
        if major < 256 && minor < 256 {
            put_le32(&mut self.raw, 0x28, major << 8 | minor);
        } else {
            put_le32(&mut self.raw, 0x2C, (minor & 0xFF) | (major & 0xFFF) << 8 | (minor & 0xF_FF00) << 12);
        }
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
    fn times_keep_34_bits_and_nanoseconds() {
        let mut i = Inode::new(256, 32);
        for secs in [Timestamp::MIN_SECS, -1, 0, 0x7FFF_FFFF, 0x8000_0000, 0x1_0000_0000, Timestamp::MAX_SECS] {
            let t = Timestamp { secs, nanos: 999_999_999 };
            i.set_time(Time::Modify, t);
            assert_eq!(i.time(Time::Modify), Some(t));
        }
        i.set_time(Time::Modify, Timestamp { secs: i64::MAX, nanos: 1 });
        assert_eq!(i.time(Time::Modify).unwrap().secs, Timestamp::MAX_SECS);
        let mut old = Inode::new(128, 0);
        old.set_time(Time::Modify, Timestamp { secs: 0x1_0000_0000, nanos: 5 });
        assert_eq!(old.time(Time::Modify), Some(Timestamp { secs: 0x7FFF_FFFF, nanos: 0 }));
        assert_eq!(old.time(Time::Create), None);
    }

    #[test]
    fn times_versions_and_checksums_do_not_make_a_difference() {
        for size in [128, 256, 512] {
            let mut i = Inode::new(size, 32);
            i.set_mode(0o100_644);
            let old = i.sealed(Ino(12), Some(7)).to_vec();
            i.set_version(0x1_0000_0001);
            for t in [Time::Access, Time::Change, Time::Modify] {
                i.set_time(t, Timestamp { secs: 0x1_0000_0005, nanos: 7 });
            }
            i.sealed(Ino(12), Some(7));
            assert!(i.same_but_for_times(&old));
            for change in [0x00, 0x14, 0x28, 0x64, 0x7F, 0x81, 0x90, 0x9C, 0xA0, size - 1] {
                let mut j = i.clone();
                if change < size {
                    j.raw_mut()[change] ^= 1;
                    assert!(!j.same_but_for_times(&old), "byte {change:#x} of {size}");
                }
            }
        }
    }

    #[test]
    fn device_numbers_round_trip() {
        let mut i = Inode::new(256, 32);
        for (major, minor) in [(0, 0), (8, 1), (255, 255), (256, 0), (1, 256), (0xFFF, 0xF_FFFF)] {
            i.set_device(major, minor);
            assert_eq!(i.device(), (major, minor));
        }
    }

    #[test]
    fn a_changed_record_fails_its_checksum() {
        let mut i = Inode::new(256, 32);
        i.set_mode(0o100_644);
        let mut raw = i.sealed(Ino(12), Some(7)).to_vec();
        assert!(Inode::decode(Ino(12), &raw, Some(7)).is_ok());
        assert!(Inode::decode(Ino(13), &raw, Some(7)).is_err());
        raw[0xFF] ^= 1;
        assert!(Inode::decode(Ino(12), &raw, Some(7)).is_err());
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
