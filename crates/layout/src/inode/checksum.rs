//! The checksum of an inode record: of the file system's seed, the number, the generation and the record without the sum itself. Its upper half
//! stands in the extended part, if there is room.

use super::{GOOD_OLD_SIZE, Inode};
use crate::bytes::{hi16, le16, lo16, put_le16};
use crate::checksum::{crc32c, crc32c_le32};
use crate::units::Ino;

pub(super) const CSUM_LO: usize = 0x7C;
pub(super) const CSUM_HI: usize = 0x82;

impl Inode {
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

    /// Seed of the checksums of this inode's own blocks (extent nodes, directory blocks).
    #[must_use]
    pub fn checksum_seed(&self, ino: Ino, fs_seed: u32) -> u32 {
        crc32c_le32(crc32c_le32(fs_seed, ino.0), self.generation())
    }

    pub(super) fn compute_checksum(&self, ino: Ino, fs_seed: u32) -> u32 {
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

    pub(super) fn stored_checksum(&self) -> u32 {
        let hi = if self.has_extra(CSUM_HI + 2) { u32::from(le16(&self.raw, CSUM_HI)) << 16 } else { 0 };
        u32::from(le16(&self.raw, CSUM_LO)) | hi
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
