//! The nodes of an htree: the root in a directory's first block, inner nodes below it.
//!
//! ```text
//! root   +0 .(12 bytes) +12 ..(rec_len to the end of the block) +24 0u32 hash_version u8 info_length=8 u8 levels u8 flags u8
//!        +32 limit u16 count u16 block u32 | (hash u32, block u32) * (count - 1)
//! node   +0 0u32 rec_len=block u16 0u16
//!        +8  limit u16 count u16 block u32 | (hash u32, block u32) * (count - 1)
//! tail   after `limit` pairs, with metadata_csum: 0u32 crc32c u32
//! ```
//! Pair 0 has no hash: it stands for everything below pair 1. A pair's block holds the hashes from its own up to the
//! next pair's. The lowest bit of a pair's hash says that names of this very hash begin in the block before. The
//! checksum covers the block up to pair `count`, then the tail with a checksum of 0.

use super::entry::{DirFormat, FileType};
use super::hash::HashVersion;
use crate::bytes::{le16, le32, put_le16, put_le32};
use crate::checksum::{crc32c, crc32c_le32};
use crate::error::{Corrupt, Structure};
use crate::units::{FileBlock, Ino};

const ROOT_INFO: usize = 24;
const ROOT_PAIRS: usize = 32;
const NODE_PAIRS: usize = 8;
const INFO_LENGTH: u8 = 8;
const TAIL: usize = 8;
/// The upper four bits of a pair's block number are reserved.
const BLOCK_MASK: u32 = 0x0FFF_FFFF;

fn bad(why: &'static str) -> Corrupt {
    Corrupt::new(Structure::HtreeNode, why)
}

/// What an htree's root says about the whole tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RootInfo {
    /// [`super::Hasher::for_root`] knows them.
    pub hash_version: u8,
    /// Levels of inner nodes between root and leaves.
    pub levels: u8,
}

/// Where the pairs of a node are, and how many. Reads and changes the block that it was decoded from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexNode {
    pairs: usize,
    limit: usize,
    count: usize,
}

impl DirFormat {
    fn limit_from(&self, pairs: usize) -> usize {
        (self.block_size.bytes() - pairs - if self.csum_seed.is_some() { TAIL } else { 0 }) / 8
    }

    fn index(&self, block: &[u8], pairs: usize) -> Result<IndexNode, Corrupt> {
        let limit = usize::from(le16(block, pairs));
        let count = usize::from(le16(block, pairs + 2));
        if limit != self.limit_from(pairs) {
            return Err(bad("limit does not fit the block"));
        }
        if count == 0 || count > limit {
            return Err(bad("count out of range"));
        }
        Ok(IndexNode { pairs, limit, count })
    }

    /// Decodes the root of directory `own`. Cheap: order and checksum are [`DirFormat::check_root`]'s.
    ///
    /// # Errors
    /// Corrupt: not a root, or one that breaks the rules.
    pub fn root(&self, block: &[u8], own: Ino) -> Result<(RootInfo, IndexNode), Corrupt> {
        if block.len() != self.block_size.bytes() {
            return Err(bad("not a whole block"));
        }
        let dotdot = self.dots(block, own)?;
        if dotdot.offset != 12 || dotdot.rec_len != block.len() - 12 {
            return Err(bad("root has no room for its index"));
        }
        if le32(block, ROOT_INFO) != 0 || block[ROOT_INFO + 5] != INFO_LENGTH {
            return Err(bad("root information has another layout"));
        }
        if block[ROOT_INFO + 7] & 1 != 0 {
            return Err(bad("unknown flags"));
        }
        let info = RootInfo { hash_version: block[ROOT_INFO + 4], levels: block[ROOT_INFO + 6] };
        if info.levels >= self.max_levels {
            return Err(bad("too deep"));
        }
        Ok((info, self.index(block, ROOT_PAIRS)?))
    }

    /// Decodes an inner node. Cheap: order and checksum are [`DirFormat::check_node`]'s.
    ///
    /// # Errors
    /// Corrupt: not a node, or one that breaks the rules.
    pub fn node(&self, block: &[u8]) -> Result<IndexNode, Corrupt> {
        if block.len() != self.block_size.bytes() {
            return Err(bad("not a whole block"));
        }
        if le32(block, 0) != 0 || self.get_rec_len(block, 0) != block.len() {
            return Err(bad("not a node"));
        }
        self.index(block, NODE_PAIRS)
    }

    /// Checks a root that came from disk.
    ///
    /// # Errors
    /// Corrupt.
    pub fn check_root(&self, block: &[u8], own: Ino) -> Result<(), Corrupt> {
        let (_, node) = self.root(block, own)?;
        self.check_index(block, node)
    }

    /// Checks a node that came from disk.
    ///
    /// # Errors
    /// Corrupt.
    pub fn check_node(&self, block: &[u8]) -> Result<(), Corrupt> {
        self.check_index(block, self.node(block)?)
    }

    fn check_index(&self, block: &[u8], node: IndexNode) -> Result<(), Corrupt> {
        if let Some(seed) = self.csum_seed
            && le32(block, node.tail() + 4) != node.checksum(block, seed)
        {
            return Err(bad("checksum does not match"));
        }
        if (2..node.count).any(|i| node.hash(block, i - 1) > node.hash(block, i)) {
            return Err(bad("hashes out of order"));
        }
        Ok(())
    }

    /// To be called after every change of an index block: stores the count and the checksum.
    fn seal_index(&self, block: &mut [u8], node: IndexNode) {
        put_le16(block, node.pairs, u16::try_from(node.limit).expect("at most 8192"));
        put_le16(block, node.pairs + 2, u16::try_from(node.count).expect("at most the limit"));
        if let Some(seed) = self.csum_seed {
            put_le32(block, node.tail(), 0);
            let sum = node.checksum(block, seed);
            put_le32(block, node.tail() + 4, sum);
        }
    }

    /// Makes a block the root of a tree with one pair, for `child`.
    pub fn init_root(&self, block: &mut [u8], own: Ino, parent: Ino, version: HashVersion, child: FileBlock) {
        block.fill(0);
        self.put_entry(block, (0, 12), own, FileType::Directory, b".");
        self.put_entry(block, (12, block.len() - 12), parent, FileType::Directory, b"..");
        block[ROOT_INFO + 4] = version.number();
        block[ROOT_INFO + 5] = INFO_LENGTH;
        self.init_index(block, ROOT_PAIRS, child);
    }

    /// Makes a zeroed block an inner node with one pair, for `child`.
    pub fn init_node(&self, block: &mut [u8], child: FileBlock) {
        self.put_rec_len(block, 0, self.block_size.bytes());
        self.init_index(block, NODE_PAIRS, child);
    }

    fn init_index(&self, block: &mut [u8], pairs: usize, child: FileBlock) {
        put_le32(block, pairs + 4, child.0);
        self.seal_index(block, IndexNode { pairs, limit: self.limit_from(pairs), count: 1 });
    }

    /// Adds the pair (`hash`, `child`) after pair `i` of a node that has room.
    pub fn insert_pair(&self, block: &mut [u8], mut node: IndexNode, i: usize, hash: u32, child: FileBlock) {
        assert!(i < node.count && node.count < node.limit, "no room for a pair");
        let at = node.at(i + 1);
        block.copy_within(at..node.at(node.count), at + 8);
        put_le32(block, at, hash);
        put_le32(block, at + 4, child.0);
        node.count += 1;
        self.seal_index(block, node);
    }

    /// Moves the upper half of a node's pairs to `right`, a zeroed block; gives the hash that `right` begins with.
    ///
    /// # Panics
    /// If the node has fewer than two pairs.
    pub fn split_node(&self, left: &mut [u8], mut node: IndexNode, right: &mut [u8]) -> u32 {
        assert!(node.count >= 2, "nothing to split");
        let keep = node.count / 2;
        let hash = node.hash(left, keep);
        self.init_node(right, node.child(left, keep));
        let moved = &left[node.at(keep + 1)..node.at(node.count)];
        right[NODE_PAIRS + 8..NODE_PAIRS + 8 + moved.len()].copy_from_slice(moved);
        let limit = self.limit_from(NODE_PAIRS);
        self.seal_index(right, IndexNode { pairs: NODE_PAIRS, limit, count: node.count - keep });
        left[node.at(keep)..node.at(node.count)].fill(0);
        node.count = keep;
        self.seal_index(left, node);
        hash
    }

    /// Adds a level: the root's pairs move to `below`, a zeroed block that is file block `child`.
    ///
    /// # Panics
    /// If the tree has all its levels.
    pub fn deepen(&self, root: &mut [u8], node: IndexNode, below: &mut [u8], child: FileBlock) {
        assert!(root[ROOT_INFO + 6] + 1 < self.max_levels, "no level left");
        self.init_node(below, node.child(root, 0));
        let moved = &root[node.at(1)..node.at(node.count)];
        below[NODE_PAIRS + 8..NODE_PAIRS + 8 + moved.len()].copy_from_slice(moved);
        let limit = self.limit_from(NODE_PAIRS);
        self.seal_index(below, IndexNode { pairs: NODE_PAIRS, limit, count: node.count });
        root[node.at(0)..node.at(node.count)].fill(0);
        root[ROOT_INFO + 6] += 1;
        self.init_index(root, ROOT_PAIRS, child);
    }

    /// Lets `..` of an htree root name another directory.
    pub fn set_root_parent(&self, block: &mut [u8], node: IndexNode, parent: Ino) {
        self.put_target(block, 12, parent, FileType::Directory);
        self.seal_index(block, node);
    }

    /// True if a tree with these levels can get one more.
    #[must_use]
    pub fn can_deepen(&self, info: RootInfo) -> bool {
        info.levels + 1 < self.max_levels
    }
}

impl IndexNode {
    fn at(&self, i: usize) -> usize {
        self.pairs + 8 * i
    }

    fn tail(&self) -> usize {
        self.at(self.limit)
    }

    fn checksum(&self, block: &[u8], seed: u32) -> u32 {
        let sum = crc32c(seed, &block[..self.at(self.count)]);
        crc32c_le32(crc32c(sum, &block[self.tail()..self.tail() + 4]), 0)
    }

    /// Pairs in use, at least 1.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    #[must_use]
    pub fn is_full(&self) -> bool {
        self.count == self.limit
    }

    /// The first hash of pair `i`, with its continuation bit; 0 for the first pair.
    #[must_use]
    pub fn hash(&self, block: &[u8], i: usize) -> u32 {
        if i == 0 { 0 } else { le32(block, self.at(i)) }
    }

    /// The file block of pair `i`.
    #[must_use]
    pub fn child(&self, block: &[u8], i: usize) -> FileBlock {
        FileBlock(le32(block, self.at(i) + 4) & BLOCK_MASK)
    }

    /// The pair whose block is the first that may hold names of an (even) `hash`.
    #[must_use]
    pub fn search(&self, block: &[u8], hash: u32) -> usize {
        let (mut lo, mut hi) = (1, self.count);
        while lo < hi {
            let mid = lo + (hi - lo) / 2;
            if self.hash(block, mid) > hash {
                hi = mid;
            } else {
                lo = mid + 1;
            }
        }
        lo - 1
    }
}
