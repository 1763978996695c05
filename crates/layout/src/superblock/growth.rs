//! A file system of more blocks: what its superblock says.
//!
//! The bytes of a [`Superblock`] are changed here only as a whole, and checked again, so that a shape that could not be
//! read back is never written.

use super::record::Superblock;
use crate::bytes::{hi32, lo16, lo32, put_le16, put_le32};
use crate::error::Corrupt;
use crate::features::{incompat, ro_compat};
use crate::units::{GroupNo, Ino};

/// What changes in the superblock beside the number of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Growth {
    /// Blocks of the file system afterwards.
    pub blocks: u64,
    /// Of the blocks that come, those that nobody uses.
    pub free_blocks: u64,
    /// Of the blocks that come, those that hold the file system itself.
    pub overhead: u64,
    /// Blocks that only root may use, afterwards.
    pub reserved_blocks: u64,
    /// Blocks reserved for descriptors that now hold descriptors.
    pub descriptor_blocks: u16,
}

impl Growth {
    /// The superblock of this file system when it has grown. All new inodes are free. The caller seals it.
    ///
    /// # Errors
    /// Corrupt: the shape would not be legal, as with more inodes than 32 bits can count.
    pub fn of(&self, sb: &Superblock) -> Result<Superblock, Corrupt> {
        let bad = || super::bad("cannot have so many blocks");
        let groups = (self.blocks.checked_sub(sb.first_data_block().0).ok_or_else(bad)?)
            .div_ceil(u64::from(sb.blocks_per_group()));
        let inodes = groups.checked_mul(u64::from(sb.inodes_per_group())).ok_or_else(bad)?;
        let inodes = u32::try_from(inodes).map_err(|_| bad())?;
        let more_inodes = inodes.checked_sub(sb.inodes_count()).ok_or_else(bad)?;
        let reserved = sb.reserved_gdt_blocks().checked_sub(self.descriptor_blocks).ok_or_else(bad)?;
        if self.blocks < sb.blocks_count() || !sb.is_64bit() && self.blocks > u64::from(u32::MAX) {
            return Err(bad());
        }
        let mut larger = sb.clone();
        let wide = sb.is_64bit();
        let raw = larger.raw_mut();
        put_le32(raw, 0x00, inodes);
        for (lo, hi, n) in [(0x04, 0x150, self.blocks), (0x08, 0x154, self.reserved_blocks)] {
            put_le32(raw, lo, lo32(n));
            if wide {
                put_le32(raw, hi, hi32(n));
            }
        }
        put_le16(raw, 0xCE, reserved);
        if let Some(overhead) = sb.overhead_clusters() {
            put_le32(raw, 0x248, u32::try_from(overhead.saturating_add(self.overhead)).unwrap_or(0));
        }
        larger.set_free_blocks(sb.free_blocks().saturating_add(self.free_blocks));
        larger.set_free_inodes(sb.free_inodes().saturating_add(more_inodes));
        Superblock::decode_unverified(larger.bytes())
    }
}

/// The superblock as group `g` keeps a copy of it: without the flags of a mount.
#[must_use]
pub fn backup_of(sb: &Superblock, g: GroupNo) -> Superblock {
    let mut sb = sb.clone();
    let mut f = sb.features();
    f.incompat &= !(incompat::RECOVER | incompat::QUIRE_LOG);
    f.ro_compat &= !ro_compat::ORPHAN_PRESENT;
    sb.set_features(f);
    sb.set_last_orphan(Ino(0));
    // `s_block_group_nr`: what does not fit is cut off, as everywhere.
    put_le16(sb.raw_mut(), 0x5A, lo16(g.0));
    sb.seal();
    sb
}
