//! A block group descriptor: 32 bytes, or 64 and more with `64bit`.
//!
//! ```text
//! 0x00 block_bitmap_lo  inode_bitmap_lo  inode_table_lo  free_blocks_lo free_inodes_lo
//! 0x10 used_dirs_lo flags exclude_bitmap block_bitmap_csum_lo inode_bitmap_csum_lo itable_unused_lo checksum
//! 0x20 the high halves in the same order
//! ```
//! Source: kernel documentation, "ext4: block group descriptors".

use crate::bytes::{hi16, hi32, le16, le32, lo16, lo32, put_le16, put_le32};
use crate::checksum::{crc16, crc32c};
use crate::error::{Corrupt, Structure};
use crate::features::ro_compat;
use crate::superblock::Superblock;
use crate::units::{BlockNo, GroupNo};
use smallvec::SmallVec;
use std::ops::Deref;

/// `bg_flags` bits.
pub mod flags {
    /// Inode table and bitmap are not initialised.
    pub const INODE_UNINIT: u16 = 1;
    /// Block bitmap is not initialised.
    pub const BLOCK_UNINIT: u16 = 2;
    /// The inode table is zeroed.
    pub const INODE_ZEROED: u16 = 4;
}

const CHECKSUM_AT: usize = 0x1E;

/// The bytes of a descriptor; those of the usual 64 are no allocation.
type Raw = SmallVec<[u8; 64]>;

/// One descriptor, with the bytes that are not understood kept as they are.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupDesc {
    raw: Raw,
}

/// What the checksum of a descriptor depends on, besides its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DescChecksum {
    None,
    /// `uninit_bg`: crc16 over UUID, group and descriptor.
    Crc16([u8; 16]),
    /// `metadata_csum`: low half of crc32c with the file system's seed.
    Crc32c(u32),
}

impl DescChecksum {
    #[must_use]
    pub fn of(sb: &Superblock) -> Self {
        let f = sb.features();
        if f.metadata_csum() {
            DescChecksum::Crc32c(sb.checksum_seed())
        } else if f.has_ro_compat(ro_compat::GDT_CSUM) {
            DescChecksum::Crc16(sb.uuid())
        } else {
            DescChecksum::None
        }
    }

    fn compute(self, g: GroupNo, raw: &[u8]) -> Option<u16> {
        match self {
            DescChecksum::None => None,
            DescChecksum::Crc16(uuid) => {
                let mut sum = crc16(!0, &uuid);
                sum = crc16(sum, &g.0.to_le_bytes());
                sum = crc16(sum, &raw[..CHECKSUM_AT]);
                // The 32-byte form has nothing after the checksum; offset 0x20 onward counts otherwise.
                Some(crc16(sum, &raw[CHECKSUM_AT + 2..]))
            }
            DescChecksum::Crc32c(seed) => {
                // Number, and bytes to the sum, in one run: a fraction of the pieces' cost.
                let mut head = [0; 4 + CHECKSUM_AT + 2];
                put_le32(&mut head, 0, g.0);
                head[4..4 + CHECKSUM_AT].copy_from_slice(&raw[..CHECKSUM_AT]);
                Some(lo16(crc32c(crc32c(seed, &head), &raw[CHECKSUM_AT + 2..])))
            }
        }
    }
}

impl GroupDesc {
    /// A descriptor of zeros for a group that is added.
    #[must_use]
    pub fn empty(sb: &Superblock) -> Self {
        GroupDesc { raw: SmallVec::from_elem(0, sb.desc_size()) }
    }

    /// Where the bitmaps and the inode table of the group are.
    pub fn set_places(&mut self, block_bitmap: BlockNo, inode_bitmap: BlockNo, inode_table: BlockNo) {
        for (lo, hi, b) in [(0x00, 0x20, block_bitmap), (0x04, 0x24, inode_bitmap), (0x08, 0x28, inode_table)] {
            put_le32(&mut self.raw, lo, lo32(b.0));
            if self.wide() {
                put_le32(&mut self.raw, hi, hi32(b.0));
            }
        }
    }

    /// Decodes the descriptor of group `g` and checks its checksum and that its blocks lie in the image.
    ///
    /// # Errors
    /// Corrupt, with the group as object.
    pub fn decode(sb: &Superblock, sums: DescChecksum, g: GroupNo, raw: &[u8]) -> Result<Self, Corrupt> {
        let bad = |why| Corrupt::new(Structure::GroupDescriptor, why).of(g.0);
        let raw = raw.get(..sb.desc_size()).ok_or_else(|| bad("truncated"))?;
        if sums.compute(g, raw).is_some_and(|s| s != le16(raw, CHECKSUM_AT)) {
            return Err(bad("checksum does not match"));
        }
        let d = GroupDesc { raw: Raw::from_slice(raw) };
        let inside = |b: BlockNo, n: u64| {
            b.0 > sb.first_data_block().0 && b.0.checked_add(n).is_some_and(|end| end <= sb.blocks_count())
        };
        let table = u64::from(sb.inodes_per_group()) * u64::try_from(sb.inode_size()).expect("small")
            / sb.block_size().bytes64();
        if !inside(d.block_bitmap(), 1) {
            return Err(bad("block bitmap outside the file system"));
        }
        if !inside(d.inode_bitmap(), 1) {
            return Err(bad("inode bitmap outside the file system"));
        }
        if !inside(d.inode_table(), table) {
            return Err(bad("inode table outside the file system"));
        }
        if d.free_inodes() > sb.inodes_per_group() || d.free_blocks() > sb.blocks_per_group() {
            return Err(bad("more free than there are"));
        }
        if d.itable_unused() > sb.inodes_per_group() {
            return Err(bad("more unused inodes than there are"));
        }
        Ok(d)
    }

    /// Recomputes the checksum and returns the bytes for the disk.
    #[must_use]
    pub fn encode(mut self, sums: DescChecksum, g: GroupNo) -> impl Deref<Target = [u8]> {
        if let Some(sum) = sums.compute(g, &self.raw) {
            put_le16(&mut self.raw, CHECKSUM_AT, sum);
        }
        self.raw
    }

    fn wide(&self) -> bool {
        self.raw.len() >= 64
    }

    fn block(&self, lo: usize, hi: usize) -> BlockNo {
        let high = if self.wide() { u64::from(le32(&self.raw, hi)) << 32 } else { 0 };
        BlockNo(u64::from(le32(&self.raw, lo)) | high)
    }

    fn count(&self, lo: usize, hi: usize) -> u32 {
        let high = if self.wide() { u32::from(le16(&self.raw, hi)) << 16 } else { 0 };
        u32::from(le16(&self.raw, lo)) | high
    }

    fn set_count(&mut self, lo: usize, hi: usize, n: u32) {
        put_le16(&mut self.raw, lo, lo16(n));
        if self.wide() {
            put_le16(&mut self.raw, hi, hi16(n));
        }
    }

    #[must_use]
    pub fn block_bitmap(&self) -> BlockNo {
        self.block(0x00, 0x20)
    }

    #[must_use]
    pub fn inode_bitmap(&self) -> BlockNo {
        self.block(0x04, 0x24)
    }

    /// First block of the inode table.
    #[must_use]
    pub fn inode_table(&self) -> BlockNo {
        self.block(0x08, 0x28)
    }

    /// Free clusters (blocks, without bigalloc).
    #[must_use]
    pub fn free_blocks(&self) -> u32 {
        self.count(0x0C, 0x2C)
    }

    pub fn set_free_blocks(&mut self, n: u32) {
        self.set_count(0x0C, 0x2C, n);
    }

    #[must_use]
    pub fn free_inodes(&self) -> u32 {
        self.count(0x0E, 0x2E)
    }

    pub fn set_free_inodes(&mut self, n: u32) {
        self.set_count(0x0E, 0x2E, n);
    }

    #[must_use]
    pub fn used_dirs(&self) -> u32 {
        self.count(0x10, 0x30)
    }

    pub fn set_used_dirs(&mut self, n: u32) {
        self.set_count(0x10, 0x30, n);
    }

    #[must_use]
    pub fn flags(&self) -> u16 {
        le16(&self.raw, 0x12)
    }

    pub fn set_flags(&mut self, f: u16) {
        put_le16(&mut self.raw, 0x12, f);
    }

    #[must_use]
    pub fn has(&self, flag: u16) -> bool {
        self.flags() & flag != 0
    }

    /// Inodes at the end of the table that were never used.
    #[must_use]
    pub fn itable_unused(&self) -> u32 {
        self.count(0x1C, 0x32)
    }

    pub fn set_itable_unused(&mut self, n: u32) {
        self.set_count(0x1C, 0x32, n);
    }

    /// Stored checksum of the block bitmap: 32 bits, or 16 in a short descriptor.
    #[must_use]
    pub fn block_bitmap_csum(&self) -> u32 {
        self.count(0x18, 0x38)
    }

    pub fn set_block_bitmap_csum(&mut self, sum: u32) {
        self.set_count(0x18, 0x38, sum);
    }

    #[must_use]
    pub fn inode_bitmap_csum(&self) -> u32 {
        self.count(0x1A, 0x3A)
    }

    pub fn set_inode_bitmap_csum(&mut self, sum: u32) {
        self.set_count(0x1A, 0x3A, sum);
    }

    /// The part of a bitmap checksum that this descriptor can store.
    #[must_use]
    pub fn csum_bits(&self, sum: u32) -> u32 {
        if self.wide() { sum } else { sum & 0xFFFF }
    }
}
