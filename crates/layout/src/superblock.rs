//! The file-system superblock: 1024 bytes at byte offset 1024 of the image.
//!
//! ```text
//! 0x000 inodes  blocks_lo  reserved_lo  free_blocks_lo | 0x010 free_inodes first_data log_bs log_cs
//! 0x020 blocks/group clusters/group inodes/group mtime | 0x030 wtime mnt_count magic state errors ...
//! 0x054 first_ino inode_size block_group_nr            | 0x05C compat incompat ro_compat
//! 0x068 uuid  0x0E0 journal_inum journal_dev last_orphan hash_seed[4] hash_version desc_size
//! 0x150 blocks_hi ... 0x178 kbytes_written  0x194 error_count 0x270 checksum_seed 0x3FC checksum
//! ```
//! The bytes are kept whole: what is not understood is written back as it was read.
//! Source: kernel documentation, "ext4: super block".

use crate::bytes::{hi32, le_split, le16, le32, le64, lo32, put_le16, put_le32, put_le64};
use crate::checksum::crc32c;
use crate::error::{Corrupt, Structure};
use crate::features::{Features, incompat, ro_compat};
use crate::units::{BlockNo, BlockSize, GroupNo, Ino};

/// Bytes of a superblock.
pub const SIZE: usize = 1024;
/// Where the primary superblock is, in bytes from the start of the image.
pub const OFFSET: u64 = 1024;
/// `s_magic`.
pub const MAGIC: u16 = 0xEF53;

/// `s_state` bits.
pub mod state {
    pub const VALID: u16 = 1;
    pub const ERROR: u16 = 2;
    pub const ORPHAN: u16 = 4;
}

/// `s_default_mount_opts` bits.
pub mod default_opts {
    pub const DEBUG: u32 = 0x1;
    pub const BSDGROUPS: u32 = 0x2;
    pub const XATTR_USER: u32 = 0x4;
    pub const ACL: u32 = 0x8;
    pub const UID16: u32 = 0x10;
    pub const JMODE: u32 = 0x60;
    pub const JMODE_DATA: u32 = 0x20;
    pub const JMODE_ORDERED: u32 = 0x40;
    pub const JMODE_WBACK: u32 = 0x60;
    pub const NOBARRIER: u32 = 0x100;
    pub const BLOCK_VALIDITY: u32 = 0x200;
    pub const DISCARD: u32 = 0x400;
    pub const NODELALLOC: u32 = 0x800;
}

/// What to do when corruption is found (`s_errors`, mount option `errors=`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnError {
    Continue,
    RemountReadOnly,
    Panic,
}

const CHECKSUM_AT: usize = 0x3FC;

/// A superblock whose magic, geometry and checksum have been checked.
#[derive(Clone, PartialEq, Eq)]
pub struct Superblock {
    raw: Box<[u8; SIZE]>,
    block_size: BlockSize,
}

impl Superblock {
    /// Decodes and checks the bytes of a superblock.
    ///
    /// # Errors
    /// Corrupt: no magic, impossible geometry, or a checksum that does not match. A superblock torn
    /// between its sectors is the business of [`Superblock::decode_torn`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let sb = Self::decode_unverified(bytes)?;
        if !sb.checksum_matches() {
            return Err(bad("checksum does not match"));
        }
        Ok(sb)
    }

    /// As [`Superblock::decode`], but accepts a tear between the sector of the flags (0x200..) and that of
    /// the checksum: if toggling some of `VALID`, `ERROR`, `needs_recovery`, `orphan_present` and Quire's bit makes
    /// the checksum match, the bytes as they are on disk are right and only the checksum's sector is old
    /// or new. Returns the superblock with its checksum mended, and whether it had to be.
    ///
    /// # Errors
    /// As [`Superblock::decode`], where no toggling helps.
    pub fn decode_torn(bytes: &[u8]) -> Result<(Self, bool), Corrupt> {
        let sb = Self::decode_unverified(bytes)?;
        if sb.checksum_matches() {
            return Ok((sb, false));
        }
        for mask in 1u32..32 {
            let mut other = sb.clone();
            let mut f = other.features();
            if mask & 1 != 0 {
                other.set_state(other.state() ^ state::VALID);
            }
            if mask & 2 != 0 {
                f.incompat ^= incompat::RECOVER;
            }
            if mask & 4 != 0 {
                f.ro_compat ^= ro_compat::ORPHAN_PRESENT;
            }
            if mask & 8 != 0 {
                f.incompat ^= incompat::QUIRE_LOG;
            }
            if mask & 16 != 0 {
                other.set_state(other.state() ^ state::ERROR);
            }
            other.set_features(f);
            if other.checksum_matches() {
                let mut mended = sb;
                mended.seal();
                return Ok((mended, true));
            }
        }
        Err(bad("checksum does not match"))
    }

    /// Decodes with every check but the checksum's. Only to find the journal, whose copy of the superblock then
    /// serves.
    ///
    /// # Errors
    /// Corrupt: as [`Superblock::decode`], but for the checksum.
    pub fn decode_unverified(bytes: &[u8]) -> Result<Self, Corrupt> {
        let raw: &[u8; SIZE] = bytes.get(..SIZE).and_then(|b| b.try_into().ok()).ok_or_else(|| bad("truncated"))?;
        if le16(raw, 0x38) != MAGIC {
            return Err(bad("no ext4 magic"));
        }
        let block_size = BlockSize::from_log(le32(raw, 0x18)).ok_or_else(|| bad("block size out of range"))?;
        let sb = Superblock { raw: Box::new(*raw), block_size };
        sb.check_geometry()?;
        Ok(sb)
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
        let ds = le16(&*self.raw, 0xFE);
        if self.features().has_incompat(incompat::BIT64) && !(ds.is_power_of_two() && (64..=1024).contains(&ds)) {
            return Err(bad("descriptor size out of range"));
        }
        if self.first_ino().0 < 11 || self.first_ino().0 > self.inodes_count() {
            return Err(bad("first inode out of range"));
        }
        Ok(())
    }

    #[must_use]
    pub fn checksum_matches(&self) -> bool {
        !self.features().metadata_csum() || le32(&*self.raw, CHECKSUM_AT) == self.compute_checksum()
    }

    fn compute_checksum(&self) -> u32 {
        crc32c(!0, &self.raw[..CHECKSUM_AT])
    }

    /// Recomputes the checksum after changes.
    pub fn seal(&mut self) {
        if self.features().metadata_csum() {
            let sum = self.compute_checksum();
            put_le32(&mut *self.raw, CHECKSUM_AT, sum);
        }
    }

    /// The bytes as they go to disk. Seal first.
    #[must_use]
    pub fn bytes(&self) -> &[u8; SIZE] {
        &self.raw
    }

    #[must_use]
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    #[must_use]
    pub fn features(&self) -> Features {
        Features { compat: le32(&*self.raw, 0x5C), incompat: le32(&*self.raw, 0x60), ro_compat: le32(&*self.raw, 0x64) }
    }

    pub fn set_features(&mut self, f: Features) {
        put_le32(&mut *self.raw, 0x5C, f.compat);
        put_le32(&mut *self.raw, 0x60, f.incompat);
        put_le32(&mut *self.raw, 0x64, f.ro_compat);
    }

    fn is_64bit(&self) -> bool {
        self.features().has_incompat(incompat::BIT64)
    }

    #[must_use]
    pub fn inodes_count(&self) -> u32 {
        le32(&*self.raw, 0x00)
    }

    fn split(&self, lo: usize, hi: usize) -> u64 {
        if self.is_64bit() { le_split(&*self.raw, lo, hi) } else { u64::from(le32(&*self.raw, lo)) }
    }

    #[must_use]
    pub fn blocks_count(&self) -> u64 {
        self.split(0x04, 0x150)
    }

    /// Blocks that only root may use.
    #[must_use]
    pub fn reserved_blocks(&self) -> u64 {
        self.split(0x08, 0x154)
    }

    #[must_use]
    pub fn free_blocks(&self) -> u64 {
        self.split(0x0C, 0x158)
    }

    pub fn set_free_blocks(&mut self, n: u64) {
        put_le32(&mut *self.raw, 0x0C, lo32(n));
        if self.is_64bit() {
            put_le32(&mut *self.raw, 0x158, hi32(n));
        }
    }

    #[must_use]
    pub fn free_inodes(&self) -> u32 {
        le32(&*self.raw, 0x10)
    }

    pub fn set_free_inodes(&mut self, n: u32) {
        put_le32(&mut *self.raw, 0x10, n);
    }

    #[must_use]
    pub fn first_data_block(&self) -> BlockNo {
        BlockNo(u64::from(le32(&*self.raw, 0x14)))
    }

    /// The block that the primary superblock is in. With bigalloc and blocks of 1 KiB that is not the first of group 0: a cluster
    /// holds what lies before it, too.
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

    /// Seconds since the epoch, 40 bits.
    #[must_use]
    pub fn mount_time(&self) -> u64 {
        u64::from(le32(&*self.raw, 0x2C)) | u64::from(self.raw[0x275]) << 32
    }

    pub fn set_mount_time(&mut self, secs: u64) {
        put_le32(&mut *self.raw, 0x2C, lo32(secs));
        self.raw[0x275] = hi32(secs).to_le_bytes()[0];
    }

    #[must_use]
    pub fn write_time(&self) -> u64 {
        u64::from(le32(&*self.raw, 0x30)) | u64::from(self.raw[0x274]) << 32
    }

    pub fn set_write_time(&mut self, secs: u64) {
        put_le32(&mut *self.raw, 0x30, lo32(secs));
        self.raw[0x274] = hi32(secs).to_le_bytes()[0];
    }

    #[must_use]
    pub fn mount_count(&self) -> u16 {
        le16(&*self.raw, 0x34)
    }

    pub fn set_mount_count(&mut self, n: u16) {
        put_le16(&mut *self.raw, 0x34, n);
    }

    #[must_use]
    pub fn state(&self) -> u16 {
        le16(&*self.raw, 0x3A)
    }

    pub fn set_state(&mut self, s: u16) {
        put_le16(&mut *self.raw, 0x3A, s);
    }

    /// `s_errors`; an unknown value means continue, as in the kernel.
    #[must_use]
    pub fn on_error(&self) -> OnError {
        match le16(&*self.raw, 0x3C) {
            2 => OnError::RemountReadOnly,
            3 => OnError::Panic,
            _ => OnError::Continue,
        }
    }

    #[must_use]
    pub fn revision(&self) -> u32 {
        le32(&*self.raw, 0x4C)
    }

    /// User and group that may use reserved blocks (besides root).
    #[must_use]
    pub fn reserved_for(&self) -> (u16, u16) {
        (le16(&*self.raw, 0x50), le16(&*self.raw, 0x52))
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
    pub fn uuid(&self) -> [u8; 16] {
        self.raw[0x68..0x78].try_into().expect("16 bytes")
    }

    /// Volume label, up to its first NUL.
    #[must_use]
    pub fn label(&self) -> &[u8] {
        let l = &self.raw[0x78..0x88];
        &l[..l.iter().position(|b| *b == 0).unwrap_or(l.len())]
    }

    /// Where it was last mounted, up to the first NUL.
    #[must_use]
    pub fn last_mounted(&self) -> &[u8] {
        let l = &self.raw[0x88..0xC8];
        &l[..l.iter().position(|b| *b == 0).unwrap_or(l.len())]
    }

    pub fn set_last_mounted(&mut self, path: &[u8]) {
        let n = path.len().min(63);
        self.raw[0x88..0xC8].fill(0);
        self.raw[0x88..0x88 + n].copy_from_slice(&path[..n]);
    }

    #[must_use]
    pub fn reserved_gdt_blocks(&self) -> u16 {
        le16(&*self.raw, 0xCE)
    }

    #[must_use]
    pub fn journal_uuid(&self) -> [u8; 16] {
        self.raw[0xD0..0xE0].try_into().expect("16 bytes")
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

    /// Head of the orphan list, or `Ino(0)`.
    #[must_use]
    pub fn last_orphan(&self) -> Ino {
        Ino(le32(&*self.raw, 0xE8))
    }

    pub fn set_last_orphan(&mut self, ino: Ino) {
        put_le32(&mut *self.raw, 0xE8, ino.0);
    }

    #[must_use]
    pub fn hash_seed(&self) -> [u32; 4] {
        std::array::from_fn(|i| le32(&*self.raw, 0xEC + 4 * i))
    }

    #[must_use]
    pub fn hash_version(&self) -> u8 {
        self.raw[0xFC]
    }

    /// `s_flags & EXT2_FLAGS_UNSIGNED_HASH`: name bytes are hashed as unsigned numbers.
    #[must_use]
    pub fn unsigned_hash(&self) -> bool {
        le32(&*self.raw, 0x160) & 2 != 0
    }

    /// True if one of the two hash signedness flags is set.
    #[must_use]
    pub fn hash_sign_known(&self) -> bool {
        le32(&*self.raw, 0x160) & 3 != 0
    }

    /// Bytes of a group descriptor.
    #[must_use]
    pub fn desc_size(&self) -> usize {
        if self.is_64bit() { usize::from(le16(&*self.raw, 0xFE)) } else { 32 }
    }

    #[must_use]
    pub fn default_mount_opts(&self) -> u32 {
        le32(&*self.raw, 0x100)
    }

    #[must_use]
    pub fn first_meta_bg(&self) -> u32 {
        le32(&*self.raw, 0x104)
    }

    #[must_use]
    pub fn created(&self) -> u64 {
        u64::from(le32(&*self.raw, 0x108)) | u64::from(self.raw[0x276]) << 32
    }

    /// Backup of the journal inode's block map and size.
    #[must_use]
    pub fn journal_backup(&self) -> (u8, &[u8]) {
        (self.raw[0xFD], &self.raw[0x10C..0x150])
    }

    /// Bytes of the extended part that new inodes should have.
    #[must_use]
    pub fn want_extra_isize(&self) -> u16 {
        le16(&*self.raw, 0x15E)
    }

    /// Groups to a flex group.
    #[must_use]
    pub fn flex_bg_size(&self) -> u32 {
        1u32.checked_shl(u32::from(self.raw[0x174])).unwrap_or(1)
    }

    #[must_use]
    pub fn kbytes_written(&self) -> u64 {
        le64(&*self.raw, 0x178)
    }

    pub fn set_kbytes_written(&mut self, n: u64) {
        put_le64(&mut *self.raw, 0x178, n);
    }

    #[must_use]
    pub fn error_count(&self) -> u32 {
        le32(&*self.raw, 0x194)
    }

    /// Records an error found at `now` (seconds) about `ino` and `block` in `place` (a function or check),
    /// as the kernel's `save_error_info` does.
    pub fn record_error(&mut self, now: u64, ino: Ino, block: BlockNo, place: &str) {
        let mut put = |time: usize, time_hi: usize, ino_at: usize, block_at: usize, func: usize, line: usize| {
            put_le32(&mut *self.raw, time, lo32(now));
            self.raw[time_hi] = hi32(now).to_le_bytes()[0];
            put_le32(&mut *self.raw, ino_at, ino.0);
            put_le64(&mut *self.raw, block_at, block.0);
            self.raw[func..func + 32].fill(0);
            let n = place.len().min(31);
            self.raw[func..func + n].copy_from_slice(&place.as_bytes()[..n]);
            put_le32(&mut *self.raw, line, 0);
        };
        put(0x1CC, 0x279, 0x1D0, 0x1D8, 0x1E0, 0x1D4);
        if le32(&*self.raw, 0x198) == 0 {
            let mut put_first = |now: u64| {
                put_le32(&mut *self.raw, 0x198, lo32(now));
                self.raw[0x278] = hi32(now).to_le_bytes()[0];
                put_le32(&mut *self.raw, 0x19C, ino.0);
                put_le64(&mut *self.raw, 0x1A0, block.0);
                self.raw[0x1A8..0x1C8].fill(0);
                let n = place.len().min(31);
                self.raw[0x1A8..0x1A8 + n].copy_from_slice(&place.as_bytes()[..n]);
            };
            put_first(now);
        }
        let count = self.error_count().saturating_add(1);
        put_le32(&mut *self.raw, 0x194, count);
        self.set_state(self.state() | state::ERROR);
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

    /// Inode of the orphan file.
    #[must_use]
    pub fn orphan_file_ino(&self) -> Ino {
        Ino(le32(&*self.raw, 0x280))
    }

    /// Seed of all metadata checksums: stored (`metadata_csum_seed`) or made from the UUID.
    #[must_use]
    pub fn checksum_seed(&self) -> u32 {
        if self.features().has_incompat(incompat::CSUM_SEED) {
            le32(&*self.raw, 0x270)
        } else {
            crc32c(!0, &self.uuid())
        }
    }

    /// True if group `g` holds a backup of the superblock and the descriptors.
    #[must_use]
    pub fn has_backup(&self, g: GroupNo) -> bool {
        let f = self.features();
        if g.0 == 0 {
            return true;
        }
        if f.has_compat(crate::features::compat::SPARSE_SUPER2) {
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

impl std::fmt::Debug for Superblock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Superblock")
            .field("blocks", &self.blocks_count())
            .field("block_size", &self.block_size.bytes())
            .field("features", &self.features().names())
            .finish_non_exhaustive()
    }
}

fn bad(why: &'static str) -> Corrupt {
    Corrupt::new(Structure::Superblock, why)
}
