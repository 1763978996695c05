//! The checksum of an inode record: of the file system's seed, the number, the generation and the record without the
//! sum itself. Its upper half stands in the extended part, if there is room.

use super::extended::has_extra;
use crate::bytes::{hi16, le16, le32, lo16, put_le16, put_le32};
use crate::checksum::crc32c;
use crate::units::Ino;

pub(super) const CSUM_LO: usize = 0x7C;
pub(super) const CSUM_HI: usize = 0x82;
/// Bytes of number and generation.
const OWNER: usize = 8;

/// Number and generation, as every checksum of the inode begins.
fn owner(raw: &[u8], ino: Ino) -> [u8; OWNER] {
    let mut bytes = [0; OWNER];
    put_le32(&mut bytes, 0, ino.0);
    put_le32(&mut bytes, 4, le32(raw, 0x64));
    bytes
}

/// Seed of the checksums of the inode's own blocks.
pub(super) fn seed_of_blocks(raw: &[u8], ino: Ino, fs_seed: u32) -> u32 {
    crc32c(fs_seed, &owner(raw, ino))
}

/// The checksum that a record should have. The bytes up to the last sum are laid together first, because one long run
/// costs a fraction of its pieces.
pub(super) fn compute(raw: &[u8], ino: Ino, fs_seed: u32) -> u32 {
    let mut head = [0; OWNER + CSUM_HI + 2];
    let (first, rest) = raw.split_at(raw.len().min(CSUM_HI + 2));
    let head = &mut head[..OWNER + first.len()];
    head[..OWNER].copy_from_slice(&owner(raw, ino));
    head[OWNER..].copy_from_slice(first);
    put_le16(head, OWNER + CSUM_LO, 0);
    let whole = has_extra(raw, CSUM_HI + 2);
    if whole {
        put_le16(head, OWNER + CSUM_HI, 0);
    }
    let sum = crc32c(crc32c(fs_seed, head), rest);
    if whole { sum } else { sum & 0xFFFF }
}

/// The checksum that a record has.
pub(super) fn stored(raw: &[u8]) -> u32 {
    let hi = if has_extra(raw, CSUM_HI + 2) { u32::from(le16(raw, CSUM_HI)) << 16 } else { 0 };
    u32::from(le16(raw, CSUM_LO)) | hi
}

/// Gives a record its checksum.
pub(super) fn seal(raw: &mut [u8], ino: Ino, fs_seed: u32) {
    let sum = compute(raw, ino, fs_seed);
    put_le16(raw, CSUM_LO, lo16(sum));
    if has_extra(raw, CSUM_HI + 2) {
        put_le16(raw, CSUM_HI, hi16(sum));
    }
}

#[cfg(test)]
mod tests {
    use super::super::Inode;
    use super::*;

    /// As the kernel's documentation says it, piece by piece.
    fn by_pieces(i: &Inode, ino: Ino, seed: u32) -> u32 {
        let mut raw = i.raw.clone();
        put_le16(&mut raw, CSUM_LO, 0);
        if has_extra(&i.raw, CSUM_HI + 2) {
            put_le16(&mut raw, CSUM_HI, 0);
        }
        let owner = crc32c(crc32c(seed, &ino.0.to_le_bytes()), &i.generation().to_le_bytes());
        assert_eq!(i.checksum_seed(ino, seed), owner);
        let sum = crc32c(owner, &raw);
        if has_extra(&i.raw, CSUM_HI + 2) { sum } else { sum & 0xFFFF }
    }

    #[test]
    fn records_of_every_size_have_their_sum() {
        for (size, extra) in [(128, 0), (256, 0), (256, 2), (256, 4), (256, 32), (1024, 32), (4096, 28)] {
            let mut i = Inode::new(size, extra);
            let extra = i.raw.get(0x80..0x82).map(<[u8]>::to_vec);
            for (n, b) in i.raw.iter_mut().enumerate() {
                *b = u8::try_from(n * 7 % 251).unwrap();
            }
            if let Some(extra) = extra {
                i.raw[0x80..0x82].copy_from_slice(&extra);
            }
            assert_eq!(compute(&i.raw, Ino(77), 5), by_pieces(&i, Ino(77), 5), "{size}");
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
}
