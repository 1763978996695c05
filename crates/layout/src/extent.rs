//! An extent tree node: the 60 bytes of `i_block` (the root, four entries), or a whole block.
//!
//! ```text
//! 0x00 magic F30A  entries  max  depth  generation(32)          header, 12 bytes
//! 0x0C leaf:  first_block(32) len(16) start_hi(16) start_lo(32) len > 32768: unwritten, len - 32768 blocks
//!      index: first_block(32) child_lo(32) child_hi(16) unused(16)
//! ...  after `max` entries, in a block only: checksum(32) = crc32c(inode's seed, all before it)
//! ```
//! Guarantees: [`check_block`] and [`check_root`] accept only nodes on which every accessor of [`Node`] is in bounds,
//! entries are sorted, and extents do not overlap.
//! Source: kernel documentation, "ext4: extent tree".

use crate::bytes::{hi32, le16, le32, lo16, lo32, put_le16, put_le32};
use crate::checksum::crc32c;
use crate::error::{Corrupt, Structure};
use crate::units::{BlockNo, FileBlock};

pub const MAGIC: u16 = 0xF30A;
/// Bytes of the header and of each entry.
pub const ENTRY: usize = 12;
/// Levels of index nodes above the leaves.
pub const MAX_DEPTH: u16 = 5;
/// Blocks in the longest written extent.
pub const MAX_WRITTEN: u32 = 32768;
/// Blocks in the longest unwritten extent.
pub const MAX_UNWRITTEN: u32 = 32767;
/// Entries in the inode's own node.
pub const ROOT_MAX: u16 = 4;
/// File blocks that can be mapped: 0 to 2^32 - 2.
pub const FILE_BLOCKS: u64 = u32::MAX as u64;

/// One run of file blocks on one run of disk blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extent {
    pub at: FileBlock,
    /// Blocks, at least one.
    pub len: u32,
    pub phys: BlockNo,
    /// Allocated, but reads as zeros.
    pub unwritten: bool,
}

/// One child of an index node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Index {
    /// First file block of the child.
    pub at: FileBlock,
    pub child: BlockNo,
}

impl Extent {
    fn decode(b: &[u8]) -> Self {
        let raw = u32::from(le16(b, 4));
        let unwritten = raw > MAX_WRITTEN;
        Extent {
            at: FileBlock(le32(b, 0)),
            len: if unwritten { raw - MAX_WRITTEN } else { raw },
            phys: BlockNo(u64::from(le32(b, 8)) | u64::from(le16(b, 6)) << 32),
            unwritten,
        }
    }

    /// The entry's bytes.
    ///
    /// # Panics
    /// If the length is 0 or above [`Extent::max_len`], or the block number has more than 48 bits: our own bug.
    #[must_use]
    pub fn encode(&self) -> [u8; ENTRY] {
        assert!(self.len > 0 && self.len <= Self::max_len(self.unwritten), "extent of {} blocks", self.len);
        assert!(self.phys.0 >> 48 == 0, "{} has more than 48 bits", self.phys);
        let mut b = [0; ENTRY];
        put_le32(&mut b, 0, self.at.0);
        put_le16(&mut b, 4, lo16(if self.unwritten { self.len + MAX_WRITTEN } else { self.len }));
        put_le16(&mut b, 6, lo16(hi32(self.phys.0)));
        put_le32(&mut b, 8, lo32(self.phys.0));
        b
    }

    /// Blocks that one entry can hold.
    #[must_use]
    pub fn max_len(unwritten: bool) -> u32 {
        if unwritten { MAX_UNWRITTEN } else { MAX_WRITTEN }
    }

    /// The file block after the last.
    #[must_use]
    pub fn end(&self) -> FileBlock {
        self.at.plus(self.len)
    }

    /// The part from file block `from` to before `to`, or `None` if nothing of it is there.
    #[must_use]
    pub fn part(&self, from: FileBlock, to: FileBlock) -> Option<Extent> {
        let (from, to) = (from.max(self.at), to.min(self.end()));
        (from < to).then(|| Extent {
            at: from,
            len: to.0 - from.0,
            phys: self.phys.plus(u64::from(from.0 - self.at.0)),
            unwritten: self.unwritten,
        })
    }

    /// True if `next` goes on where this ends, in the file, on disk and in kind, and one entry can hold both.
    #[must_use]
    pub fn joins(&self, next: &Extent) -> bool {
        self.end() == next.at
            && self.phys.plus(u64::from(self.len)) == next.phys
            && self.unwritten == next.unwritten
            && self.len + next.len <= Self::max_len(self.unwritten)
    }
}

impl Index {
    fn decode(b: &[u8]) -> Self {
        Index { at: FileBlock(le32(b, 0)), child: BlockNo(u64::from(le32(b, 4)) | u64::from(le16(b, 8)) << 32) }
    }

    /// The entry's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; ENTRY] {
        let mut b = [0; ENTRY];
        put_le32(&mut b, 0, self.at.0);
        put_le32(&mut b, 4, lo32(self.child.0));
        put_le16(&mut b, 8, lo16(hi32(self.child.0)));
        b
    }
}

/// A node that has been checked, for reading.
#[derive(Clone, Copy)]
pub struct Node<'a>(&'a [u8]);

impl<'a> Node<'a> {
    /// The caller has checked these bytes with [`check_block`] or [`check_root`].
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Node(bytes)
    }

    #[must_use]
    pub fn entries(&self) -> usize {
        usize::from(le16(self.0, 2))
    }

    #[must_use]
    pub fn max(&self) -> usize {
        usize::from(le16(self.0, 4))
    }

    /// Levels below this node; 0 in a leaf.
    #[must_use]
    pub fn depth(&self) -> u16 {
        le16(self.0, 6)
    }

    #[must_use]
    pub fn is_full(&self) -> bool {
        self.entries() >= self.max()
    }

    /// The bytes of entry `i`.
    #[must_use]
    pub fn raw(&self, i: usize) -> [u8; ENTRY] {
        self.0[ENTRY * (i + 1)..ENTRY * (i + 2)].try_into().expect("12 bytes")
    }

    /// First file block of entry `i`.
    #[must_use]
    pub fn key(&self, i: usize) -> FileBlock {
        FileBlock(le32(self.0, ENTRY * (i + 1)))
    }

    /// Entry `i` of a leaf.
    #[must_use]
    pub fn extent(&self, i: usize) -> Extent {
        Extent::decode(&self.raw(i))
    }

    /// Entry `i` of an index node.
    #[must_use]
    pub fn index(&self, i: usize) -> Index {
        Index::decode(&self.raw(i))
    }

    /// The last entry that starts at or before `at`.
    #[must_use]
    pub fn search(&self, at: FileBlock) -> Option<usize> {
        let (mut lo, mut hi) = (0, self.entries());
        while lo < hi {
            let mid = usize::midpoint(lo, hi);
            if self.key(mid) <= at { lo = mid + 1 } else { hi = mid }
        }
        lo.checked_sub(1)
    }
}

/// A node that has been checked or made here, for change.
pub struct NodeMut<'a>(&'a mut [u8]);

impl<'a> NodeMut<'a> {
    #[must_use]
    pub fn new(bytes: &'a mut [u8]) -> Self {
        NodeMut(bytes)
    }

    /// Makes an empty node of the bytes: as many entries as fit.
    pub fn init(bytes: &'a mut [u8], depth: u16) -> Self {
        let max = u16::try_from((bytes.len() - ENTRY) / ENTRY).expect("blocks have at most 64 KiB");
        put_le16(bytes, 0, MAGIC);
        put_le16(bytes, 2, 0);
        put_le16(bytes, 4, max);
        put_le16(bytes, 6, depth);
        put_le32(bytes, 8, 0);
        NodeMut(bytes)
    }

    #[must_use]
    pub fn view(&self) -> Node<'_> {
        Node(self.0)
    }

    fn set_entries(&mut self, n: usize) {
        put_le16(self.0, 2, u16::try_from(n).expect("at most `max`, which has 16 bits"));
    }

    pub fn set_depth(&mut self, depth: u16) {
        put_le16(self.0, 6, depth);
    }

    /// Puts an entry before entry `i`. The node is not full.
    pub fn insert(&mut self, i: usize, entry: &[u8; ENTRY]) {
        let n = self.view().entries();
        assert!(n < self.view().max() && i <= n, "no room in this node");
        self.0.copy_within(ENTRY * (i + 1)..ENTRY * (n + 1), ENTRY * (i + 2));
        self.set(i, entry);
        self.set_entries(n + 1);
    }

    pub fn remove(&mut self, i: usize) {
        let n = self.view().entries();
        assert!(i < n, "no such entry");
        self.0.copy_within(ENTRY * (i + 2)..ENTRY * (n + 1), ENTRY * (i + 1));
        self.0[ENTRY * n..ENTRY * (n + 1)].fill(0);
        self.set_entries(n - 1);
    }

    pub fn set(&mut self, i: usize, entry: &[u8; ENTRY]) {
        self.0[ENTRY * (i + 1)..ENTRY * (i + 2)].copy_from_slice(entry);
    }

    pub fn set_key(&mut self, i: usize, at: FileBlock) {
        put_le32(self.0, ENTRY * (i + 1), at.0);
    }

    /// Takes off entry `from` and all after it, and returns their bytes.
    pub fn take_tail(&mut self, from: usize) -> Vec<[u8; ENTRY]> {
        let n = self.view().entries();
        let out = (from..n).map(|i| self.view().raw(i)).collect();
        self.0[ENTRY * (from + 1)..ENTRY * (n + 1)].fill(0);
        self.set_entries(from);
        out
    }

    /// Appends entries that fit.
    pub fn append(&mut self, entries: &[[u8; ENTRY]]) {
        let n = self.view().entries();
        assert!(n + entries.len() <= self.view().max(), "no room in this node");
        for (i, e) in entries.iter().enumerate() {
            self.set(n + i, e);
        }
        self.set_entries(n + entries.len());
    }

    /// Recomputes the checksum of a block (`None` without `metadata_csum`).
    pub fn seal(&mut self, seed: Option<u32>) {
        if let Some(seed) = seed {
            let tail = ENTRY * (self.view().max() + 1);
            let sum = crc32c(seed, &self.0[..tail]);
            put_le32(self.0, tail, sum);
        }
    }
}

/// Checks a node that is a block. `seed` is the inode's ([`crate::inode::Inode::checksum_seed`]), `None` without
/// `metadata_csum`; `legal` says whether a run of blocks may belong to a file.
///
/// # Errors
/// Corrupt: what is wrong, without the block.
pub fn check_block(b: &[u8], seed: Option<u32>, legal: impl Fn(BlockNo, u64) -> bool) -> Result<(), Corrupt> {
    if b.len() < 2 * ENTRY {
        return Err(bad("truncated"));
    }
    check_header(b)?;
    let tail = ENTRY * (Node(b).max() + 1);
    if let Some(seed) = seed
        && (tail + 4 > b.len() || le32(b, tail) != crc32c(seed, &b[..tail]))
    {
        return Err(bad("checksum does not match"));
    }
    if Node(b).entries() == 0 {
        return Err(bad("no entries"));
    }
    check_entries(Node(b), legal)
}

/// Checks the node in an inode.
///
/// # Errors
/// As [`check_block`].
pub fn check_root(b: &[u8; 60], legal: impl Fn(BlockNo, u64) -> bool) -> Result<(), Corrupt> {
    check_header(b)?;
    if Node(b).depth() > 0 && Node(b).entries() == 0 {
        return Err(bad("no entries"));
    }
    check_entries(Node(b), legal)
}

fn check_header(b: &[u8]) -> Result<(), Corrupt> {
    if le16(b, 0) != MAGIC {
        return Err(bad("no magic"));
    }
    let node = Node(b);
    if node.max() > (b.len() - ENTRY) / ENTRY {
        return Err(bad("more entries than there is room for"));
    }
    // Every writer uses all the room; a node that cannot be split is nobody's.
    if node.max() < usize::from(ROOT_MAX) {
        return Err(bad("its maximum of entries is too small"));
    }
    if node.entries() > node.max() {
        return Err(bad("more entries than its maximum"));
    }
    if node.depth() > MAX_DEPTH {
        return Err(bad("too deep"));
    }
    Ok(())
}

fn check_entries(node: Node<'_>, legal: impl Fn(BlockNo, u64) -> bool) -> Result<(), Corrupt> {
    let mut next = 0u64;
    for i in 0..node.entries() {
        let (at, len, phys) = if node.depth() == 0 {
            let e = node.extent(i);
            (e.at, e.len, e.phys)
        } else {
            let x = node.index(i);
            (x.at, 1, x.child)
        };
        if len == 0 {
            return Err(bad("empty extent"));
        }
        if u64::from(at.0) < next {
            return Err(bad("entries overlap or are not in order"));
        }
        next = u64::from(at.0) + u64::from(len);
        if next > FILE_BLOCKS {
            return Err(bad("extent ends past the largest file"));
        }
        if !legal(phys, u64::from(len)) {
            return Err(bad("points outside the file system or at its metadata"));
        }
    }
    Ok(())
}

fn bad(why: &'static str) -> Corrupt {
    Corrupt::new(Structure::ExtentNode, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(extents: &[Extent], seed: u32) -> Vec<u8> {
        let mut b = vec![0; 1024];
        let mut n = NodeMut::init(&mut b, 0);
        n.append(&extents.iter().map(Extent::encode).collect::<Vec<_>>());
        n.seal(Some(seed));
        b
    }

    fn extent(at: u32, len: u32, phys: u64, unwritten: bool) -> Extent {
        Extent { at: FileBlock(at), len, phys: BlockNo(phys), unwritten }
    }

    #[test]
    fn lengths_and_block_numbers_round_trip() {
        for e in [
            extent(0, 1, 1, false),
            extent(7, MAX_WRITTEN, 0xFFFF_FFFF_FFFF, false),
            extent(u32::MAX - 2, 1, 1 << 32, true),
            extent(9, MAX_UNWRITTEN, 5, true),
        ] {
            assert_eq!(Extent::decode(&e.encode()), e);
        }
    }

    #[test]
    fn a_node_with_any_rule_broken_is_refused() {
        let good = [extent(0, 4, 100, false), extent(4, 2, 200, true), extent(10, 1, 50, false)];
        let legal = |b: BlockNo, n: u64| b.0 >= 50 && b.0 + n <= 1000;
        let why = |b: &[u8]| check_block(b, None, legal).unwrap_err().why;
        let b = leaf(&good, 7);
        assert_eq!(check_block(&b, Some(7), legal), Ok(()));
        assert_eq!(check_block(&b, Some(8), legal).unwrap_err().why, "checksum does not match");
        let with = |at: usize, v: u16| {
            let mut c = b.clone();
            put_le16(&mut c, at, v);
            c
        };
        assert_eq!(why(&with(0, 0xF30B)), "no magic");
        assert_eq!(why(&with(2, 0)), "no entries");
        assert_eq!(why(&with(2, 85)), "more entries than its maximum");
        assert_eq!(why(&with(4, 85)), "more entries than there is room for");
        assert_eq!(why(&with(4, 3)), "its maximum of entries is too small");
        assert_eq!(why(&with(6, 6)), "too deep");
        assert_eq!(why(&leaf(&[good[1], good[0]], 7)), "entries overlap or are not in order");
        assert_eq!(why(&leaf(&[extent(0, 5, 100, false), good[1]], 7)), "entries overlap or are not in order");
        assert_eq!(why(&leaf(&[extent(0, 5, 49, false)], 7)), "points outside the file system or at its metadata");
        assert_eq!(why(&leaf(&[extent(0, 5, 996, false)], 7)), "points outside the file system or at its metadata");
        assert_eq!(why(&leaf(&[extent(u32::MAX - 1, 2, 100, false)], 7)), "extent ends past the largest file");
        assert_eq!(why(&with(16, 0)), "empty extent");
    }

    #[test]
    fn search_finds_the_last_entry_at_or_before() {
        let b = leaf(&[extent(5, 1, 1, false), extent(10, 1, 1, false), extent(20, 1, 1, false)], 0);
        let n = Node::new(&b);
        let found: Vec<_> = [4, 5, 9, 10, 19, 20, 99].iter().map(|at| n.search(FileBlock(*at))).collect();
        assert_eq!(found, [None, Some(0), Some(0), Some(1), Some(1), Some(2), Some(2)]);
    }

    #[test]
    fn entries_move_between_nodes() {
        let mut b = leaf(&[extent(5, 1, 1, false), extent(10, 1, 2, false), extent(20, 1, 3, false)], 0);
        let mut n = NodeMut::new(&mut b);
        n.insert(1, &extent(7, 1, 9, true).encode());
        n.remove(0);
        let tail = n.take_tail(1);
        assert_eq!(n.view().entries(), 1);
        assert_eq!(n.view().extent(0), extent(7, 1, 9, true));
        let mut c = vec![0; 1024];
        let mut m = NodeMut::init(&mut c, 0);
        m.append(&tail);
        assert_eq!((m.view().key(0), m.view().key(1)), (FileBlock(10), FileBlock(20)));
    }
}
