//! Who a file system is, and what mke2fs chose for it besides its shape.

use super::CreatorOs;
use super::geometry::Geometry;
use crate::bytes::le32;

impl Geometry {
    #[must_use]
    pub fn creator_os(&self) -> CreatorOs {
        match le32(&*self.raw, 0x48) {
            0 => CreatorOs::Linux,
            1 => CreatorOs::Hurd,
            _ => CreatorOs::Other,
        }
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
}
