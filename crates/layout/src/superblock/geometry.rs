//! What the superblock says of the shape of the file system: counted in blocks, clusters, groups and inodes, checked
//! once when it is decoded. It changes only when the file system grows, as a whole (`growth`).

use super::{OFFSET, SIZE, bad};
use crate::bytes::{le_split, le16, le32};
use crate::error::Corrupt;
use crate::features::{Features, compat, incompat, ro_compat};
use crate::units::{BlockNo, BlockSize, GroupNo, Ino};

/// What was decided when the file system was made, its shape above all, and the features.
#[derive(Clone, PartialEq, Eq)]
pub struct Geometry {
    pub(super) raw: Box<[u8; SIZE]>,
    block_size: BlockSize,
}

/// `s_checksum_type`.
const CRC32C: u8 = 1;

impl Geometry {
    /// Takes the bytes of a superblock, and checks the shape that they give.
    pub(super) fn new(raw: &[u8; SIZE]) -> Result<Self, Corrupt> {
        let block_size = BlockSize::from_log(le32(raw, 0x18)).ok_or_else(|| bad("block size out of range"))?;
        let geometry = Geometry { raw: Box::new(*raw), block_size };
        geometry.check_geometry()?;
        Ok(geometry)
    }

    #[must_use]
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    #[must_use]
    pub fn features(&self) -> Features {
        Features { compat: le32(&*self.raw, 0x5C), incompat: le32(&*self.raw, 0x60), ro_compat: le32(&*self.raw, 0x64) }
    }

    pub(super) fn is_64bit(&self) -> bool {
        self.features().has_incompat(incompat::BIT64)
    }

    pub(super) fn split(&self, lo: usize, hi: usize) -> u64 {
        if self.is_64bit() { le_split(&*self.raw, lo, hi) } else { u64::from(le32(&*self.raw, lo)) }
    }

    #[must_use]
    pub fn revision(&self) -> u32 {
        le32(&*self.raw, 0x4C)
    }

    /// The journal's inode; 0 when the journal is on a device of its own.
    #[must_use]
    pub fn journal_ino(&self) -> Ino {
        Ino(le32(&*self.raw, 0xE0))
    }

    #[must_use]
    pub fn journal_dev(&self) -> u32 {
        le32(&*self.raw, 0xE4)
    }

    /// Bytes of the extended part that new inodes should have.
    #[must_use]
    pub fn want_extra_isize(&self) -> u16 {
        le16(&*self.raw, 0x15E)
    }

    /// Inode of the orphan file.
    #[must_use]
    pub fn orphan_file_ino(&self) -> Ino {
        Ino(le32(&*self.raw, 0x280))
    }

    fn check_geometry(&self) -> Result<(), Corrupt> {
        let bits = u32::try_from(self.block_size.bytes() * 8).expect("at most 2^19");
        let bigalloc = self.features().has_ro_compat(ro_compat::BIGALLOC);
        let inode_size = self.inode_size();
        if !inode_size.is_power_of_two() || inode_size < 128 || inode_size > self.block_size.bytes() {
            return Err(bad("inode size out of range"));
        }
        if self.inodes_per_group() == 0 || self.inodes_per_group() > bits {
            return Err(bad("inodes per group out of range"));
        }
        let inodes_per_block = u32::try_from(self.block_size.bytes() / inode_size).expect("small");
        if !self.inodes_per_group().is_multiple_of(inodes_per_block) {
            return Err(bad("inodes per group do not fill whole blocks"));
        }
        if self.blocks_per_group() < 256 || (!bigalloc && self.blocks_per_group() > bits) {
            return Err(bad("blocks per group out of range"));
        }
        if !bigalloc && le32(&*self.raw, 0x1C) != le32(&*self.raw, 0x18) {
            return Err(bad("cluster size differs without bigalloc"));
        }
        let first = self.first_data_block();
        if first != BlockNo(u64::from(self.block_size == BlockSize::K1)) && !(bigalloc && first.0 == 0) {
            return Err(bad("first data block out of range"));
        }
        if self.blocks_count() <= self.first_data_block().0 || self.blocks_count() >> (64 - self.block_size.bits()) != 0
        {
            return Err(bad("block count out of range"));
        }
        let groups = (self.blocks_count() - self.first_data_block().0).div_ceil(u64::from(self.blocks_per_group()));
        let inodes = groups.checked_mul(u64::from(self.inodes_per_group()));
        if inodes != Some(u64::from(self.inodes_count())) {
            return Err(bad("inode count does not match the groups"));
        }
        if self.features().metadata_csum() && self.raw[0x175] != CRC32C {
            return Err(bad("unknown type of checksums"));
        }
        let ds = le16(&*self.raw, 0xFE);
        if self.features().has_incompat(incompat::BIT64) && !(ds.is_power_of_two() && (64..=1024).contains(&ds)) {
            return Err(bad("descriptor size out of range"));
        }
        let per_block = u64::try_from(self.block_size.bytes() / self.desc_size()).expect("small");
        if self.features().has_incompat(incompat::META_BG)
            && u64::from(self.first_meta_bg()) > groups.div_ceil(per_block)
        {
            return Err(bad("the first meta block group is behind the last one"));
        }
        if self.first_ino().0 < 11 || self.first_ino().0 > self.inodes_count() {
            return Err(bad("first inode out of range"));
        }
        Ok(())
    }

    #[must_use]
    pub fn inodes_count(&self) -> u32 {
        le32(&*self.raw, 0x00)
    }

    #[must_use]
    pub fn blocks_count(&self) -> u64 {
        self.split(0x04, 0x150)
    }

    #[must_use]
    pub fn first_data_block(&self) -> BlockNo {
        BlockNo(u64::from(le32(&*self.raw, 0x14)))
    }

    /// The block that the primary superblock is in. With bigalloc and blocks of 1 KiB that is not the first of group 0:
    /// a cluster holds what lies before it, too.
    #[must_use]
    pub fn own_block(&self) -> BlockNo {
        BlockNo(OFFSET >> self.block_size.bits())
    }

    /// Blocks to a cluster: 1 without bigalloc.
    #[must_use]
    pub fn cluster_blocks(&self) -> u64 {
        let (log_bs, log_cs) = (le32(&*self.raw, 0x18), le32(&*self.raw, 0x1C));
        1u64.checked_shl(log_cs.saturating_sub(log_bs)).unwrap_or(1)
    }

    #[must_use]
    pub fn blocks_per_group(&self) -> u32 {
        le32(&*self.raw, 0x20)
    }

    /// Bits of a block bitmap: blocks per group, without bigalloc.
    #[must_use]
    pub fn clusters_per_group(&self) -> u32 {
        let per = u64::from(self.blocks_per_group()) / self.cluster_blocks();
        u32::try_from(per).expect("no more than the blocks")
    }

    #[must_use]
    pub fn inodes_per_group(&self) -> u32 {
        le32(&*self.raw, 0x28)
    }

    /// Groups in the file system.
    #[must_use]
    pub fn group_count(&self) -> u32 {
        let blocks = self.blocks_count() - self.first_data_block().0;
        u32::try_from(blocks.div_ceil(u64::from(self.blocks_per_group()))).expect("checked against the inode count")
    }

    /// The group of a block, or `None` outside the file system.
    #[must_use]
    pub fn group_of(&self, b: BlockNo) -> Option<GroupNo> {
        if b.0 >= self.blocks_count() {
            return None;
        }
        let rel = b.0.checked_sub(self.first_data_block().0)?;
        u32::try_from(rel / u64::from(self.blocks_per_group())).ok().map(GroupNo)
    }

    /// First block of a group.
    #[must_use]
    pub fn group_start(&self, g: GroupNo) -> BlockNo {
        self.first_data_block().plus(u64::from(g.0) * u64::from(self.blocks_per_group()))
    }

    /// First inode that is not reserved.
    #[must_use]
    pub fn first_ino(&self) -> Ino {
        Ino(if self.revision() == 0 { 11 } else { le32(&*self.raw, 0x54) })
    }

    /// Bytes of an inode record.
    #[must_use]
    pub fn inode_size(&self) -> usize {
        if self.revision() == 0 { 128 } else { usize::from(le16(&*self.raw, 0x58)) }
    }

    #[must_use]
    pub fn reserved_gdt_blocks(&self) -> u16 {
        le16(&*self.raw, 0xCE)
    }

    /// Bytes of a group descriptor.
    #[must_use]
    pub fn desc_size(&self) -> usize {
        if self.is_64bit() { usize::from(le16(&*self.raw, 0xFE)) } else { 32 }
    }

    #[must_use]
    pub fn first_meta_bg(&self) -> u32 {
        le32(&*self.raw, 0x104)
    }

    /// Groups to a flex group.
    #[must_use]
    pub fn flex_bg_size(&self) -> u32 {
        1u32.checked_shl(u32::from(self.raw[0x174])).unwrap_or(1)
    }

    /// Clusters that hold the file system itself, if the image tells.
    #[must_use]
    pub fn overhead_clusters(&self) -> Option<u64> {
        let n = u64::from(le32(&*self.raw, 0x248));
        (n != 0 && n <= self.blocks_count() / self.cluster_blocks()).then_some(n)
    }

    /// The two groups with backups under `sparse_super2`.
    #[must_use]
    pub fn backup_groups(&self) -> [u32; 2] {
        [le32(&*self.raw, 0x24C), le32(&*self.raw, 0x250)]
    }

    /// True if group `g` holds a backup of the superblock and the descriptors.
    #[must_use]
    pub fn has_backup(&self, g: GroupNo) -> bool {
        let f = self.features();
        if g.0 == 0 {
            return true;
        }
        if f.has_compat(compat::SPARSE_SUPER2) {
            return self.backup_groups().contains(&g.0);
        }
        if g.0 == 1 || !f.has_ro_compat(ro_compat::SPARSE_SUPER) {
            return true;
        }
        [3u32, 5, 7].iter().any(|p| {
            let mut n = g.0;
            while n.is_multiple_of(*p) {
                n /= p;
            }
            n == 1
        })
    }

    /// The block that holds descriptor `g`, and the byte offset in it.
    #[must_use]
    pub fn descriptor_at(&self, g: GroupNo) -> (BlockNo, usize) {
        let per_block = u32::try_from(self.block_size.bytes() / self.desc_size()).expect("at most 2048");
        let index = g.0 / per_block;
        let offset = usize::try_from(g.0 % per_block).expect("small") * self.desc_size();
        let meta_bg = self.features().has_incompat(incompat::META_BG);
        let block = if !meta_bg || index < self.first_meta_bg() {
            // The superblock's own block comes first in group 0.
            self.own_block().plus(1 + u64::from(index))
        } else if index == 0 {
            self.own_block().plus(1)
        } else {
            let first = GroupNo(index * per_block);
            self.group_start(first).plus(u64::from(self.has_backup(first)))
        };
        (block, offset)
    }
}
