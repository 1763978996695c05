//! How this log's blocks are laid out, and the header that they share.

use super::checksum::LogSeed;
use super::{HEADER, MAGIC};
use crate::bytes::{lo16, put_be32, try_be32};
use crate::units::{BlockSize, Tid};

/// Bytes of a revoke block before the first record.
pub const REVOKE_HEAD: usize = 16;

/// What protects the log's blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checksums {
    /// Nothing.
    None,
    /// `COMPAT_CHECKSUM`: the commit block holds a crc32 over descriptors and images.
    V1,
    /// `CSUM_V2`: 16 bits for each image; descriptors, revokes, commits and the superblock have their own.
    V2,
    /// `CSUM_V3`: as v2, with 32 bits for each image and tags of 16 bytes.
    V3,
}

/// The checksum of an image in its tag.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TagChecksum {
    None,
    V2(u16),
    V3(u32),
}

/// The layout of a log's blocks, as the features of its superblock set it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogFormat {
    pub block_size: BlockSize,
    pub checksums: Checksums,
    /// `64BIT`: block numbers take eight bytes.
    pub wide: bool,
    /// `ASYNC_COMMIT`: commit blocks were written without waiting for the images.
    pub async_commit: bool,
    /// The journal's UUID, the start of every v2 and v3 checksum.
    pub seed: LogSeed,
    pub uuid: [u8; 16],
}

impl LogFormat {
    /// True for v2 and v3: blocks carry checksums of their own.
    #[must_use]
    pub fn sealed(&self) -> bool {
        matches!(self.checksums, Checksums::V2 | Checksums::V3)
    }

    /// Bytes of a tag in a descriptor, without the UUID that may follow.
    #[must_use]
    pub fn tag_bytes(&self) -> usize {
        match (self.checksums, self.wide) {
            (Checksums::V3, _) => 16,
            (Checksums::V2, true) => 14,
            (Checksums::V2, false) => 10,
            (_, true) => 12,
            (_, false) => 8,
        }
    }

    /// Bytes of a block number in a revoke block.
    #[must_use]
    pub fn revoke_bytes(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// Bytes at the start of a descriptor or revoke block that tags or records may use.
    #[must_use]
    pub fn usable(&self) -> usize {
        self.block_size.bytes() - if self.sealed() { 4 } else { 0 }
    }

    /// Images that one full descriptor of ours describes: one UUID, after the first tag.
    #[must_use]
    pub fn tags_per_block(&self) -> usize {
        (self.usable() - HEADER - 16) / self.tag_bytes()
    }

    /// Block numbers that one revoke block holds.
    #[must_use]
    pub fn revokes_per_block(&self) -> usize {
        (self.usable() - REVOKE_HEAD) / self.revoke_bytes()
    }
}

/// `h_blocktype`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BlockKind {
    Descriptor,
    Commit,
    SuperblockV1,
    SuperblockV2,
    Revoke,
    /// A type that ends a scan.
    Other(u32),
}

impl BlockKind {
    #[must_use]
    pub fn code(self) -> u32 {
        match self {
            BlockKind::Descriptor => 1,
            BlockKind::Commit => 2,
            BlockKind::SuperblockV1 => 3,
            BlockKind::SuperblockV2 => 4,
            BlockKind::Revoke => 5,
            BlockKind::Other(n) => n,
        }
    }

    #[must_use]
    pub fn from_code(n: u32) -> Self {
        match n {
            1 => BlockKind::Descriptor,
            2 => BlockKind::Commit,
            3 => BlockKind::SuperblockV1,
            4 => BlockKind::SuperblockV2,
            5 => BlockKind::Revoke,
            n => BlockKind::Other(n),
        }
    }
}

/// The first 12 bytes of a log block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    pub kind: BlockKind,
    pub tid: Tid,
}

impl Header {
    /// `None` where the magic is missing: an image, or the end of the log.
    #[must_use]
    pub fn decode(block: &[u8]) -> Option<Header> {
        if try_be32(block, 0)? != MAGIC {
            return None;
        }
        Some(Header { kind: BlockKind::from_code(try_be32(block, 4)?), tid: Tid(try_be32(block, 8)?) })
    }

    /// Writes the header at the start of `block`.
    pub fn encode(self, block: &mut [u8]) {
        put_be32(block, 0, MAGIC);
        put_be32(block, 4, self.kind.code());
        put_be32(block, 8, self.tid.0);
    }
}

impl LogFormat {
    /// True if the tail checksum of a descriptor or revoke block is right, or the format has none.
    #[must_use]
    pub fn tail_matches(&self, block: &[u8]) -> bool {
        !self.sealed() || (block.len() == self.block_size.bytes() && self.seed.check(block, block.len() - 4))
    }

    /// The checksum that the tag of an image carries, over the image as logged (escaped).
    #[must_use]
    pub fn tag_checksum(&self, tid: Tid, logged: &[u8]) -> TagChecksum {
        match self.checksums {
            Checksums::None | Checksums::V1 => TagChecksum::None,
            Checksums::V2 => TagChecksum::V2(lo16(self.seed.image(tid, logged))),
            Checksums::V3 => TagChecksum::V3(self.seed.image(tid, logged)),
        }
    }
}

#[cfg(test)]
pub(crate) mod fixtures {
    //! Logs that `debugfs jw` and the kernel wrote, 1 KiB blocks: superblock, descriptor of two images (the first
    //! escaped), the images, commit, revoke, commit, descriptor, image, revoke, commit.
    use super::super::JournalSuperblock;
    use super::LogFormat;

    pub(crate) const NONE: &[u8] = include_bytes!("testdata/none.log");
    pub(crate) const V2: &[u8] = include_bytes!("testdata/v2.log");
    pub(crate) const V3: &[u8] = include_bytes!("testdata/v3.log");
    /// The kernel's, `data=journal`: superblock, descriptor of 19, its images, commit.
    pub(crate) const KERNEL: &[u8] = include_bytes!("testdata/kernel.log");

    pub(crate) fn block(log: &[u8], n: usize) -> &[u8] {
        &log[n * 1024..(n + 1) * 1024]
    }

    pub(crate) fn format(log: &[u8]) -> LogFormat {
        JournalSuperblock::decode(&log[..1024]).unwrap().log_format().unwrap()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_follow_the_features() {
        let f = |checksums, wide| {
            let seed = LogSeed::default();
            LogFormat { block_size: BlockSize::K4, checksums, wide, async_commit: false, seed, uuid: [0; 16] }
        };
        assert_eq!(f(Checksums::None, false).tag_bytes(), 8);
        assert_eq!(f(Checksums::V1, true).tag_bytes(), 12);
        assert_eq!(f(Checksums::V2, false).tag_bytes(), 10);
        assert_eq!(f(Checksums::V2, true).tag_bytes(), 14);
        assert_eq!(f(Checksums::V3, false).tag_bytes(), 16);
        assert_eq!(f(Checksums::V3, true).tags_per_block(), (4096 - 4 - 12 - 16) / 16);
        assert_eq!(f(Checksums::None, false).revokes_per_block(), (4096 - 16) / 4);
    }

    #[test]
    fn a_header_needs_its_magic_and_its_bytes() {
        let mut b = [0u8; 12];
        assert_eq!(Header::decode(&b), None);
        let h = Header { kind: BlockKind::Revoke, tid: Tid(0x0102_0304) };
        h.encode(&mut b);
        assert_eq!(b, [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 5, 1, 2, 3, 4]);
        assert_eq!(Header::decode(&b), Some(h));
        assert_eq!(Header::decode(&b[..11]), None);
    }
}
