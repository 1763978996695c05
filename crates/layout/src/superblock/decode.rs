//! A superblock from its bytes, whole or torn between two sectors.

use super::geometry::Geometry;
use super::record::Superblock;
use super::{MAGIC, SIZE, bad, state};
use crate::bytes::le16;
use crate::error::Corrupt;
use crate::features::{incompat, ro_compat};

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
        Ok(Superblock::from_geometry(Geometry::new(raw)?))
    }
}
