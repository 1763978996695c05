//! The commit block: the transaction is whole.
//!
//! ```text
//! 0x0 header | 0xC checksum type (v1: 1 = crc32)  0xD its size (v1: 4)  0xE unused
//! 0x10 checksum: v1 over descriptors and images; v2, v3 over this block | 0x14 unused .. 0x30 seconds (64)  0x38 nanoseconds
//! ```

use super::format::{BlockKind, Checksums, Header, LogFormat};
use crate::bytes::{be32, be64, put_be32, put_be64};
use crate::error::{Corrupt, Structure};
use crate::units::Tid;

/// Bytes of the commit record; the rest of the block is zero.
pub const SIZE: usize = 0x3C;
const CHECKSUM_AT: usize = 0x10;
const CRC32: u8 = 1;

/// A decoded commit block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Commit {
    pub tid: Tid,
    /// When, in seconds since 1970, and nanoseconds.
    pub seconds: u64,
    pub nanoseconds: u32,
    /// `h_chksum_type`, `h_chksum_size`, `h_chksum[0]`.
    pub checksum_type: u8,
    pub checksum_size: u8,
    pub checksum: u32,
}

impl Commit {
    /// Decodes a commit block without looking at its checksum.
    ///
    /// # Errors
    /// Corrupt: not a commit block.
    pub fn decode(block: &[u8]) -> Result<Self, Corrupt> {
        let bad = |why| Corrupt::new(Structure::JournalBlock, why);
        let header = Header::decode(block).filter(|h| h.kind == BlockKind::Commit);
        let header = header.ok_or_else(|| bad("not a commit block"))?;
        let b = block.get(..SIZE).ok_or_else(|| bad("truncated"))?;
        Ok(Commit {
            tid: header.tid,
            seconds: be64(b, 0x30),
            nanoseconds: be32(b, 0x38),
            checksum_type: b[0xC],
            checksum_size: b[0xD],
            checksum: be32(b, CHECKSUM_AT),
        })
    }

    /// True if a v1 commit holds `crc` (over its transaction), or holds none at all.
    #[must_use]
    pub fn v1_matches(&self, crc: u32) -> bool {
        match (self.checksum_type, self.checksum_size, self.checksum) {
            (CRC32, 4, sum) => sum == crc,
            (0, 0, 0) => true,
            _ => false,
        }
    }
}

impl LogFormat {
    /// True if the checksum of a v2 or v3 commit block is right, or the format keeps none in it. Of a commit
    /// block torn after its first sector the record alone is valid; as in the kernel it counts.
    #[must_use]
    pub fn commit_matches(&self, block: &[u8]) -> bool {
        if !self.sealed() {
            return true;
        }
        if block.len() != self.block_size.bytes() {
            return false;
        }
        if self.seed.check(block, CHECKSUM_AT) {
            return true;
        }
        let mut torn = vec![0; block.len()];
        torn[..SIZE].copy_from_slice(&block[..SIZE]);
        self.seed.check(&torn, CHECKSUM_AT)
    }
}

/// Writes a commit block over `block`. `v1` is the crc32 of the transaction, for a log with v1 checksums.
///
/// # Panics
/// If `block` is not one block.
pub fn encode_commit(format: &LogFormat, block: &mut [u8], tid: Tid, seconds: u64, nanoseconds: u32, v1: u32) {
    assert_eq!(block.len(), format.block_size.bytes(), "a commit is one block");
    block.fill(0);
    Header { kind: BlockKind::Commit, tid }.encode(block);
    put_be64(block, 0x30, seconds);
    put_be32(block, 0x38, nanoseconds);
    match format.checksums {
        Checksums::None => {}
        Checksums::V1 => {
            block[0xC] = CRC32;
            block[0xD] = 4;
            put_be32(block, CHECKSUM_AT, v1);
        }
        Checksums::V2 | Checksums::V3 => format.seed.seal(block, CHECKSUM_AT),
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::fixtures::*;
    use super::*;

    #[test]
    fn built_blocks_are_theirs() {
        for (log, n) in [(NONE, 4), (NONE, 6), (V2, 4), (V3, 4), (V3, 10), (KERNEL, 21)] {
            let f = format(log);
            let theirs = block(log, n);
            assert!(f.commit_matches(theirs));
            let c = Commit::decode(theirs).unwrap();
            let mut ours = vec![0xEE; 1024];
            encode_commit(&f, &mut ours, c.tid, c.seconds, c.nanoseconds, 0);
            assert_eq!(ours, theirs);
        }
    }

    #[test]
    fn a_changed_record_is_seen_a_torn_tail_is_not() {
        let f = format(V3);
        let mut b = block(V3, 4).to_vec();
        b[0x37] ^= 1;
        assert!(!f.commit_matches(&b));
        let mut b = block(V3, 4).to_vec();
        b[512..].fill(0xAA);
        assert!(f.commit_matches(&b));
        assert!(!f.commit_matches(&b[..100]));
    }

    #[test]
    fn v1_sums() {
        let f = LogFormat { checksums: Checksums::V1, ..format(NONE) };
        let mut b = vec![0; 1024];
        encode_commit(&f, &mut b, Tid(3), 1, 2, 0xABCD);
        let c = Commit::decode(&b).unwrap();
        assert!(c.v1_matches(0xABCD) && !c.v1_matches(0xABCE));
        assert!(Commit::decode(block(NONE, 4)).unwrap().v1_matches(5), "a commit without a checksum is taken");
        assert!(Commit::decode(block(NONE, 5)).is_err() && Commit::decode(&b[..20]).is_err());
    }
}
