//! Forges dirty logs of every format, at any place of the log.

use super::judge::{Dirty, journal_runs, path, superblock, tool};
use quire_device::sync::{Mutex, lock};
use quire_journal::LogMap;
use quire_layout::bytes::{be16, put_be16, put_be32};
use quire_layout::checksum::crc32c;
use quire_layout::features;
use quire_layout::jbd2::checksum::crc32_be;
use quire_layout::jbd2::superblock::{compat, incompat};
use quire_layout::jbd2::{
    Checksums, DescriptorBuilder, JournalFeatures, JournalSuperblock, LogFormat, RevokeBuilder, encode_commit, escape,
    needs_escape,
};
use quire_layout::{BlockNo, BlockSize, LogBlock, Tid};
use quire_testkit::Rng;
use std::collections::HashMap;

/// What kind of log is forged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) block_size: &'static str,
    pub(crate) checksums: Checksums,
    pub(crate) wide: bool,
    pub(crate) async_commit: bool,
    /// Only the last descriptor of a transaction has a last tag.
    pub(crate) one_last_tag: bool,
    pub(crate) version_1: bool,
}

impl Kind {
    pub(crate) fn plain(block_size: &'static str, checksums: Checksums, wide: bool) -> Self {
        Kind { block_size, checksums, wide, async_commit: false, one_last_tag: false, version_1: false }
    }

    /// Any kind.
    pub(crate) fn any(rng: &mut Rng) -> Self {
        let checksums = [Checksums::None, Checksums::V1, Checksums::V2, Checksums::V3];
        let checksums = checksums[usize::try_from(rng.below(4)).unwrap()];
        let wide = rng.one_in(2);
        Kind {
            block_size: ["1024", "2048", "4096"][usize::try_from(rng.below(3)).unwrap()],
            checksums,
            wide,
            async_commit: checksums != Checksums::None && rng.one_in(4),
            one_last_tag: rng.one_in(3),
            version_1: checksums == Checksums::None && !wide && rng.one_in(3),
        }
    }

    fn features(&self) -> JournalFeatures {
        let bit = |on: bool, bit: u32| if on { bit } else { 0 };
        JournalFeatures {
            compat: bit(self.checksums == Checksums::V1, compat::CHECKSUM),
            incompat: incompat::REVOKE
                | bit(self.wide, incompat::BIT64)
                | bit(self.async_commit, incompat::ASYNC_COMMIT)
                | bit(self.checksums == Checksums::V2, incompat::CSUM_V2)
                | bit(self.checksums == Checksums::V3, incompat::CSUM_V3),
            ro_compat: 0,
        }
    }
}

/// What a log block was forged as.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    Descriptor,
    Image(BlockNo),
    Revoke,
    Commit,
}

/// An image whose log is being forged.
pub(crate) struct Forge {
    image: Vec<u8>,
    bs: BlockSize,
    map: LogMap,
    sb: JournalSuperblock,
    kind: Kind,
    pub(crate) format: LogFormat,
    at: LogBlock,
    pub(crate) tid: Tid,
    time: u64,
    crc: u32,
    /// Everything written, in log order.
    pub(crate) written: Vec<(LogBlock, Tid, What)>,
}

/// A fresh file system of 12 MiB, made once for each block size.
fn fresh(block_size: &'static str) -> Vec<u8> {
    static MADE: Mutex<Option<HashMap<&str, Vec<u8>>>> = Mutex::new(None);
    let make = || {
        let file = tempfile::NamedTempFile::new().unwrap();
        let size = if block_size == "4096" { "size=4" } else { "size=2" };
        let args = ["-q", "-F", "-t", "ext4", "-b", block_size, "-J", size, path(&file), "12M"];
        let (code, said) = tool("mke2fs", &args);
        assert_eq!(code, Some(0), "{said}");
        std::fs::read(file.path()).unwrap()
    };
    lock(&MADE).get_or_insert_default().entry(block_size).or_insert_with(make).clone()
}

/// Home blocks that transactions write: few, so that they meet again.
const POOL: u64 = 60;

impl Forge {
    /// A fresh file system whose log begins at `start` (counted from its first block) with `tid`.
    pub(crate) fn new(kind: Kind, start: u32, tid: Tid) -> Self {
        let image = fresh(kind.block_size);
        let map = LogMap::new(journal_runs(&image)).unwrap();
        let bs = superblock(&image).block_size();
        let raw = &image[usize::try_from(bs.offset(map.home(LogBlock(0)))).unwrap()..];
        let mut sb = JournalSuperblock::decode(raw).unwrap();
        if !kind.version_1 {
            sb.set_features(kind.features());
        }
        sb.set_sequence(tid);
        let at = LogBlock(sb.first().0 + start % (sb.end().0 - sb.first().0));
        sb.set_start(Some(at));
        sb.seal();
        let format = sb.log_format().unwrap();
        let (time, crc, written) = (1_600_000_000, !0, Vec::new());
        let mut f = Forge { image, bs, map, sb, kind, format, at, tid, time, crc, written };
        f.put_superblocks();
        f
    }

    fn put_superblocks(&mut self) {
        let at = self.offset(LogBlock(0));
        self.image[at..at + 1024].copy_from_slice(self.sb.bytes());
        if self.kind.version_1 {
            put_be32(&mut self.image, at + 4, 3);
            self.image[at + 0x24..at + 1024].fill(0);
        }
        let mut sb = superblock(&self.image);
        let mut f = sb.features();
        f.incompat |= features::incompat::RECOVER;
        sb.set_features(f);
        sb.seal();
        self.image[1024..2048].copy_from_slice(sb.bytes());
    }

    fn offset(&self, n: LogBlock) -> usize {
        usize::try_from(self.bs.offset(self.map.home(n))).unwrap()
    }

    pub(crate) fn dirty(&self) -> Dirty {
        Dirty { image: self.image.clone(), external: None }
    }

    /// The bytes of a log block, to be changed.
    pub(crate) fn block_mut(&mut self, n: LogBlock) -> &mut [u8] {
        let at = self.offset(n);
        let len = self.bs.bytes();
        &mut self.image[at..at + len]
    }

    /// A block near the end of the image that belongs to nobody.
    pub(crate) fn free_block(&self, n: u64) -> BlockNo {
        BlockNo((self.image.len() as u64 >> self.bs.bits()) - POOL - 2 + n)
    }

    fn put(&mut self, bytes: &[u8], what: What) {
        let n = self.at;
        self.block_mut(n).copy_from_slice(bytes);
        self.written.push((n, self.tid, what));
        self.at = n.plus(1);
        if self.at >= self.sb.end() {
            self.at = self.sb.first();
        }
    }

    /// Writes a descriptor and its images.
    pub(crate) fn images(&mut self, images: &[(BlockNo, Vec<u8>)], last: bool) {
        let mut logged = Vec::new();
        let mut d = DescriptorBuilder::new(&self.format, self.tid, vec![0; self.bs.bytes()]);
        for (home, image) in images {
            let mut copy = image.clone();
            if needs_escape(image) {
                escape(&mut copy);
            }
            d.push(*home, needs_escape(image), self.format.tag_checksum(self.tid, &copy));
            logged.push((*home, copy));
        }
        let full = d.is_full();
        let mut block = d.seal();
        if self.kind.one_last_tag && !last && full {
            self.clear_last_tag(&mut block, images.len());
        }
        self.crc = crc32_be(self.crc, &block);
        self.put(&block, What::Descriptor);
        for (home, copy) in logged {
            self.crc = crc32_be(self.crc, &copy);
            self.put(&copy, What::Image(home));
        }
    }

    fn clear_last_tag(&self, block: &mut [u8], tags: usize) {
        let uuid = if tags > 1 { 16 } else { 0 };
        let at = 12 + uuid + self.format.tag_bytes() * (tags - 1) + 6;
        let flags = be16(block, at);
        assert_eq!(flags & 8, 8);
        put_be16(block, at, flags & !8);
        if self.format.sealed() {
            let tail = block.len() - 4;
            put_be32(block, tail, 0);
            let sum = crc32c(self.format.seed.0, block);
            put_be32(block, tail, sum);
        }
    }

    pub(crate) fn revokes(&mut self, homes: &[BlockNo]) {
        let mut r = RevokeBuilder::new(&self.format, self.tid, vec![0; self.bs.bytes()]);
        homes.iter().for_each(|h| r.push(*h));
        self.put(&r.seal(), What::Revoke);
    }

    /// Ends the transaction. `seconds` after the one before.
    pub(crate) fn commit(&mut self, seconds: u64) {
        self.time += seconds;
        let mut block = vec![0; self.bs.bytes()];
        encode_commit(&self.format, &mut block, self.tid, self.time, 5, self.crc);
        self.crc = !0;
        self.put(&block, What::Commit);
        self.tid = Tid(self.tid.0.wrapping_add(1));
    }

    /// Goes back in time: what is written from here on is left from an earlier round of the log.
    pub(crate) fn make_stale(&mut self) {
        self.time -= 1_000_000;
    }

    fn random_image(&self, rng: &mut Rng) -> Vec<u8> {
        let mut b = vec![0; self.bs.bytes()];
        rng.fill(&mut b);
        if rng.one_in(4) {
            b[..4].copy_from_slice(&0xC03B_3998u32.to_be_bytes());
            // Looks like a commit of this very transaction.
            if rng.one_in(2) {
                put_be32(&mut b, 4, 2);
                put_be32(&mut b, 8, self.tid.0);
            }
        }
        b
    }

    /// A whole random transaction.
    pub(crate) fn random_transaction(&mut self, rng: &mut Rng) {
        if rng.one_in(8) {
            return self.commit(1); // empty ones exist
        }
        for part in (0..=rng.below(3)).rev() {
            let full = self.format.tags_per_block();
            let fits = self.used() + full + 400 < 1020;
            let tags = if part > 0 && fits && rng.one_in(3) { full as u64 } else { 1 + rng.below(12) };
            let images: Vec<_> =
                (0..tags).map(|_| (self.free_block(rng.below(POOL)), self.random_image(rng))).collect();
            if rng.one_in(4) {
                self.random_revoke(rng);
            }
            self.images(&images, part == 0);
        }
        if rng.one_in(4) {
            self.random_revoke(rng);
        }
        self.commit(rng.below(3));
    }

    fn random_revoke(&mut self, rng: &mut Rng) {
        let homes: Vec<_> = (0..rng.below(10)).map(|_| self.free_block(rng.below(POOL))).collect();
        self.revokes(&homes);
    }

    /// Log blocks in use.
    pub(crate) fn used(&self) -> usize {
        self.written.len()
    }
}
