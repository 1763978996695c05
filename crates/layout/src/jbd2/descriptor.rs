//! The descriptor block: for each image that follows in the log, a tag with its home.
//!
//! ```text
//! 0x0 header | 0xC tag, 16 bytes of UUID, tag, tag, ...                                   [| checksum, 4 bytes: v2, v3]
//!
//! tag, v3 (16):       0x0 block low   0x4 flags (32)                   0x8 block high   0xC checksum (32)
//! tag, others:        0x0 block low   0x4 checksum (16)  0x6 flags (16)  0x8 block high, only 64bit
//!                     8 or 12 bytes; in v2 two more, unused: 10 or 14
//! flags: 1 escaped, 2 no UUID follows (the journal's own), 4 deleted (unused), 8 last tag of the block
//! ```
//!
//! Some writers mark only the last tag of the whole transaction: a block also ends where no further tag fits.

use super::HEADER;
use super::format::{BlockKind, Checksums, Header, LogFormat, TagChecksum};
use crate::bytes::{be16, be32, hi32, lo32, put_be16, put_be32, try_be16, try_be32};
use crate::units::{BlockNo, Tid};
use std::ops::DerefMut;

const ESCAPE: u16 = 1;
const SAME_UUID: u16 = 2;
const LAST_TAG: u16 = 8;

/// What a tag says about one image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tag {
    /// Where the image belongs.
    pub block: BlockNo,
    /// The image began with the log's magic, which was zeroed in the log.
    pub escaped: bool,
    pub checksum: TagChecksum,
    /// All flag bits as they are on disk.
    pub flags: u16,
}

/// The tags of a descriptor block, in order; the n-th belongs to the n-th log block after it.
#[derive(Clone, Debug)]
pub struct Tags<'a> {
    block: &'a [u8],
    format: LogFormat,
    at: usize,
    done: bool,
}

impl<'a> Tags<'a> {
    /// Over the tags of `block`, whose header the caller has looked at. A short block has fewer tags.
    #[must_use]
    pub fn new(format: &LogFormat, block: &'a [u8]) -> Self {
        let end = format.usable().min(block.len());
        Tags { block: &block[..end], format: *format, at: HEADER, done: false }
    }
}

impl Iterator for Tags<'_> {
    type Item = Tag;

    fn next(&mut self) -> Option<Tag> {
        let size = self.format.tag_bytes();
        if self.done || self.at.checked_add(size)? > self.block.len() {
            return None;
        }
        let t = &self.block[self.at..self.at + size];
        // In a v3 tag these are the low half of the 32 flag bits.
        let flags = be16(t, 6);
        let high = if self.format.wide { be32(t, 8) } else { 0 };
        let checksum = match self.format.checksums {
            Checksums::None | Checksums::V1 => TagChecksum::None,
            Checksums::V2 => TagChecksum::V2(try_be16(t, 4)?),
            Checksums::V3 => TagChecksum::V3(try_be32(t, 12)?),
        };
        self.at += size + if flags & SAME_UUID == 0 { 16 } else { 0 };
        self.done = flags & LAST_TAG != 0;
        let block = BlockNo(u64::from(high) << 32 | u64::from(be32(t, 0)));
        Some(Tag { block, escaped: flags & ESCAPE != 0, checksum, flags })
    }
}

/// Builds a descriptor block in a buffer of one block (`Vec<u8>`, a device buffer, `&mut [u8]`).
pub struct DescriptorBuilder<B> {
    block: B,
    format: LogFormat,
    at: usize,
    /// Where the flags of the last tag are.
    last_flags: Option<usize>,
    tags: usize,
}

impl<B: DerefMut<Target = [u8]>> DescriptorBuilder<B> {
    /// Starts a descriptor of transaction `tid`; `block` is overwritten.
    ///
    /// # Panics
    /// If `block` is not one block.
    #[must_use]
    pub fn new(format: &LogFormat, tid: Tid, mut block: B) -> Self {
        assert_eq!(block.len(), format.block_size.bytes(), "a descriptor is one block");
        block.fill(0);
        Header { kind: BlockKind::Descriptor, tid }.encode(&mut block);
        DescriptorBuilder { block, format: *format, at: HEADER, last_flags: None, tags: 0 }
    }

    /// Tags so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tags
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tags == 0
    }

    /// True if no further tag fits: [`LogFormat::tags_per_block`] of them are in.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.tags == self.format.tags_per_block()
    }

    /// Adds the tag of the next image. `checksum` is [`LogFormat::tag_checksum`] of the image as logged.
    ///
    /// # Panics
    /// If the block is full, the checksum is not of this log's kind, or `home` needs 64 bits that the log lacks.
    pub fn push(&mut self, home: BlockNo, escaped: bool, checksum: TagChecksum) {
        assert!(!self.is_full(), "a full descriptor was checked for");
        assert!(self.format.wide || hi32(home.0) == 0, "{home} in a log of 32-bit numbers");
        let same_uuid = if self.is_empty() { 0 } else { SAME_UUID };
        let b = &mut self.block[self.at..];
        put_be32(b, 0, lo32(home.0));
        match (self.format.checksums, checksum) {
            (Checksums::None | Checksums::V1, TagChecksum::None) => {}
            (Checksums::V2, TagChecksum::V2(sum)) => put_be16(b, 4, sum),
            (Checksums::V3, TagChecksum::V3(sum)) => put_be32(b, 12, sum),
            _ => panic!("a tag checksum of another format"),
        }
        if self.format.wide {
            put_be32(b, 8, hi32(home.0));
        }
        put_be16(b, 6, same_uuid | if escaped { ESCAPE } else { 0 });
        self.last_flags = Some(self.at + 6);
        self.at += self.format.tag_bytes();
        if self.is_empty() {
            self.block[self.at..self.at + 16].copy_from_slice(&self.format.uuid);
            self.at += 16;
        }
        self.tags += 1;
    }

    /// Marks the last tag and seals the block.
    ///
    /// # Panics
    /// If there is no tag.
    #[must_use]
    pub fn seal(mut self) -> B {
        let at = self.last_flags.expect("a descriptor has a tag");
        let flags = be16(&self.block, at);
        put_be16(&mut self.block, at, flags | LAST_TAG);
        if self.format.sealed() {
            let tail = self.block.len() - 4;
            self.format.seed.seal(&mut self.block, tail);
        }
        self.block
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::fixtures::*;
    use super::*;

    #[test]
    fn tags_of_debugfs_and_the_kernel() {
        for log in [NONE, V2, V3] {
            let f = format(log);
            let tags: Vec<Tag> = Tags::new(&f, block(log, 1)).collect();
            assert_eq!(tags.len(), 2);
            assert_eq!((tags[0].block, tags[0].escaped), (BlockNo(15000), true));
            assert_eq!((tags[1].block, tags[1].escaped), (BlockNo(15001), false));
            for (i, t) in tags.iter().enumerate() {
                assert_eq!(t.checksum, f.tag_checksum(Tid(1), block(log, 2 + i)));
            }
        }
        let f = format(KERNEL);
        let tags: Vec<Tag> = Tags::new(&f, block(KERNEL, 1)).collect();
        assert_eq!(tags.len(), 19);
        assert_eq!(tags[18].block, BlockNo(9221));
        for (i, t) in tags.iter().enumerate() {
            assert_eq!(t.checksum, f.tag_checksum(Tid(2), block(KERNEL, 2 + i)), "tag {i}");
        }
    }

    #[test]
    fn built_blocks_are_the_kernels() {
        let mut f = format(KERNEL);
        f.uuid = [0; 16]; // the kernel leaves the UUID in tags zero
        let theirs = block(KERNEL, 1);
        let mut b = DescriptorBuilder::new(&f, Tid(2), vec![0xEE; 1024]);
        for t in Tags::new(&f, theirs) {
            b.push(t.block, t.escaped, t.checksum);
        }
        assert_eq!(b.len(), 19);
        assert_eq!(b.seal(), theirs);
    }

    #[test]
    fn a_full_block_gives_back_its_tags_in_every_format() {
        for base in [NONE, V2, V3] {
            for wide in [false, true] {
                let f = LogFormat { wide, ..format(base) };
                let mut b = DescriptorBuilder::new(&f, Tid(9), vec![0; 1024]);
                let mut homes = Vec::new();
                while !b.is_full() {
                    let home = BlockNo(b.len() as u64 + if wide { 7 << 32 } else { 7 });
                    b.push(home, b.len() % 2 == 1, f.tag_checksum(Tid(9), &home.0.to_le_bytes()));
                    homes.push(home);
                }
                let mut sealed = b.seal();
                assert!(f.tail_matches(&sealed));
                let back: Vec<_> = Tags::new(&f, &sealed).collect();
                assert_eq!(back.iter().map(|t| t.block).collect::<Vec<_>>(), homes);
                assert!(back.iter().enumerate().all(|(i, t)| t.escaped == (i % 2 == 1)));
                // As written by those who mark only the transaction's last tag: space ends the block.
                let at = f.tag_bytes() * (homes.len() - 1) + HEADER + 16 + 6;
                sealed[at + 1] &= !8;
                let more = Tags::new(&f, &sealed).count() - homes.len();
                assert!(more * f.tag_bytes() <= f.usable() - HEADER - 16 - homes.len() * f.tag_bytes());
            }
        }
    }

    #[test]
    fn hostile_bytes_end() {
        let f = format(V2);
        for n in 0..40 {
            assert!(Tags::new(&f, &vec![0xFF; n]).count() <= 4);
            assert!(Tags::new(&f, &vec![0; n]).count() <= 2);
        }
        assert!(Tags::new(&f, &[0; 1024]).count() < 1024 / 10);
    }
}
