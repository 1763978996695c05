//! The superblock as bytes: its checksum, its features, and who the file system is.

use super::SIZE;
use super::geometry::Geometry;
use crate::bytes::{le32, put_le16, put_le32};
use crate::checksum::crc32c;
use crate::features::{Features, incompat};

const CHECKSUM_AT: usize = 0x3FC;

/// A superblock whose magic, geometry and checksum have been checked.
#[derive(Clone, PartialEq, Eq)]
pub struct Superblock {
    geometry: Geometry,
}

impl Superblock {
    #[must_use]
    pub fn checksum_matches(&self) -> bool {
        !self.features().metadata_csum() || le32(&*self.geometry.raw, CHECKSUM_AT) == self.compute_checksum()
    }

    /// The bytes, to be changed.
    pub(super) fn raw_mut(&mut self) -> &mut [u8; SIZE] {
        &mut self.geometry.raw
    }

    pub(super) fn from_geometry(geometry: Geometry) -> Self {
        Superblock { geometry }
    }

    fn compute_checksum(&self) -> u32 {
        crc32c(!0, &self.geometry.raw[..CHECKSUM_AT])
    }

    /// Recomputes the checksum after changes.
    pub fn seal(&mut self) {
        if self.features().metadata_csum() {
            let sum = self.compute_checksum();
            put_le32(&mut *self.geometry.raw, CHECKSUM_AT, sum);
        }
    }

    /// The bytes as they go to disk. Seal first.
    #[must_use]
    pub fn bytes(&self) -> &[u8; SIZE] {
        &self.geometry.raw
    }

    pub fn set_features(&mut self, f: Features) {
        put_le32(&mut *self.geometry.raw, 0x5C, f.compat);
        put_le32(&mut *self.geometry.raw, 0x60, f.incompat);
        put_le32(&mut *self.geometry.raw, 0x64, f.ro_compat);
    }

    #[must_use]
    pub fn journal_uuid(&self) -> [u8; 16] {
        self.geometry.raw[0xD0..0xE0].try_into().expect("16 bytes")
    }

    /// Seed of all metadata checksums: stored (`metadata_csum_seed`) or made from the UUID.
    #[must_use]
    pub fn checksum_seed(&self) -> u32 {
        if self.features().has_incompat(incompat::CSUM_SEED) {
            le32(&*self.geometry.raw, 0x270)
        } else {
            crc32c(!0, &self.uuid())
        }
    }
}

/// Adds features, as the kernel does while a file system is in use. Revision 0, which has none, becomes revision 1,
/// with the inodes that revision 0 implies.
pub fn add_features(sb: &mut Superblock, more: Features) {
    if sb.revision() == 0 {
        let (first_ino, inode_size) = (sb.first_ino().0, sb.inode_size());
        let raw = sb.raw_mut();
        put_le32(raw, 0x4C, 1);
        put_le32(raw, 0x54, first_ino);
        put_le16(raw, 0x58, u16::try_from(inode_size).expect("128 in revision 0"));
    }
    let has = sb.features();
    sb.set_features(Features {
        compat: has.compat | more.compat,
        incompat: has.incompat | more.incompat,
        ro_compat: has.ro_compat | more.ro_compat,
    });
}

/// The shape is read as if it were the superblock's own.
impl std::ops::Deref for Superblock {
    type Target = Geometry;

    fn deref(&self) -> &Geometry {
        &self.geometry
    }
}

impl std::fmt::Debug for Superblock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Superblock")
            .field("blocks", &self.blocks_count())
            .field("block_size", &self.block_size().bytes())
            .field("features", &self.features().names())
            .finish_non_exhaustive()
    }
}
