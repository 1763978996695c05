//! Blocks of the orphan file (feature `orphan_file`): slots of inode numbers that are unlinked but open, or being
//! truncated.
//!
//! ```text
//! 0x00 ino(32) ino(32) ... (0: free slot)      size - 8: magic 0B10CA04  checksum(32)
//! ```
//! The checksum is crc32c(seed of the orphan file's inode, physical block number(64), slots).
//! Source: kernel documentation, "ext4: orphan file".

use crate::bytes::{le32, put_le32};
use crate::checksum::crc32c;
use crate::error::{Corrupt, Structure};
use crate::units::{BlockNo, Ino};

pub const MAGIC: u32 = 0x0B10_CA04;
/// Bytes after the slots.
const TAIL: usize = 8;
/// The kernel refuses a larger orphan file.
pub const MAX_BYTES: u64 = 8 << 20;

/// Slots in a block.
#[must_use]
pub fn slots(block_size: usize) -> usize {
    (block_size - TAIL) / 4
}

fn checksum(b: &[u8], block: BlockNo, seed: u32) -> u32 {
    crc32c(crc32c(seed, &block.0.to_le_bytes()), &b[..b.len() - TAIL])
}

/// Checks magic and checksum (`seed`: the orphan file's inode's, with `metadata_csum`).
///
/// # Errors
/// Corrupt, with the block.
pub fn check(b: &[u8], block: BlockNo, seed: Option<u32>) -> Result<(), Corrupt> {
    let bad = |why| Corrupt::new(Structure::OrphanFile, why).at(block);
    if le32(b, b.len() - TAIL) != MAGIC {
        return Err(bad("no magic"));
    }
    if seed.is_some_and(|s| le32(b, b.len() - 4) != checksum(b, block, s)) {
        return Err(bad("checksum does not match"));
    }
    Ok(())
}

/// Recomputes the checksum.
pub fn seal(b: &mut [u8], block: BlockNo, seed: Option<u32>) {
    if let Some(s) = seed {
        let (at, sum) = (b.len() - 4, checksum(b, block, s));
        put_le32(b, at, sum);
    }
}

/// What slot `n` holds, or `Ino(0)`.
#[must_use]
pub fn slot(b: &[u8], n: usize) -> Ino {
    Ino(le32(&b[..b.len() - TAIL], 4 * n))
}

pub fn set_slot(b: &mut [u8], n: usize, ino: Ino) {
    let end = b.len() - TAIL;
    put_le32(&mut b[..end], 4 * n, ino.0);
}

/// The first free slot.
#[must_use]
pub fn free_slot(b: &[u8]) -> Option<usize> {
    (0..slots(b.len())).find(|n| slot(b, *n) == Ino(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_fill_and_the_checksum_names_the_place() {
        let mut b = vec![0; 1024];
        put_le32(&mut b, 1016, MAGIC);
        for n in 0..slots(1024) {
            assert_eq!(free_slot(&b), Some(n));
            set_slot(&mut b, n, Ino(12 + u32::try_from(n).unwrap()));
        }
        assert_eq!((slots(1024), free_slot(&b)), (254, None));
        seal(&mut b, BlockNo(5), Some(9));
        assert!(check(&b, BlockNo(5), Some(9)).is_ok());
        assert!(check(&b, BlockNo(6), Some(9)).is_err());
        b[0] ^= 1;
        assert!(check(&b, BlockNo(5), Some(9)).is_err());
        b[1016] ^= 1;
        assert!(check(&b, BlockNo(5), None).is_err());
    }
}
