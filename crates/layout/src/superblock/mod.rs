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

mod geometry;
mod usage;

use crate::bytes::{le_split, le16, le32, put_le32};
use crate::checksum::crc32c;
use crate::error::{Corrupt, Structure};
use crate::features::{Features, incompat, ro_compat};
use crate::units::{BlockSize, Ino};

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

    fn split(&self, lo: usize, hi: usize) -> u64 {
        if self.is_64bit() { le_split(&*self.raw, lo, hi) } else { u64::from(le32(&*self.raw, lo)) }
    }

    #[must_use]
    pub fn revision(&self) -> u32 {
        le32(&*self.raw, 0x4C)
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

    #[must_use]
    pub fn default_mount_opts(&self) -> u32 {
        le32(&*self.raw, 0x100)
    }

    #[must_use]
    pub fn created(&self) -> u64 {
        u64::from(le32(&*self.raw, 0x108)) | u64::from(self.raw[0x276]) << 32
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

    /// Seed of all metadata checksums: stored (`metadata_csum_seed`) or made from the UUID.
    #[must_use]
    pub fn checksum_seed(&self) -> u32 {
        if self.features().has_incompat(incompat::CSUM_SEED) {
            le32(&*self.raw, 0x270)
        } else {
            crc32c(!0, &self.uuid())
        }
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
