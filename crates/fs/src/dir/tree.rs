//! The way from an htree's root to a leaf, and from a leaf to the next.

use super::blocks::Dir;
use super::entry::{Entry, corrupt};
use crate::error::Result;
use crate::txn::Op;
use quire_journal::Image;
use quire_layout::dir::{Hasher, IndexNode, RootInfo};
use quire_layout::inode::Inode;
use quire_layout::{BlockNo, Corrupt, FileBlock, Structure};

/// Leaves that a miss of a listing reads at once.
const READAHEAD: usize = 32;

/// One index block on the way, and the pair that was taken.
#[derive(Clone)]
pub(super) struct Frame {
    pub block: BlockNo,
    pub image: Image,
    pub node: IndexNode,
    pub at: usize,
}

impl Frame {
    fn child(&self) -> FileBlock {
        self.node.child(&self.image, self.at)
    }
}

/// A way from the root to a leaf. Frames are images as they were read: after a change, find the way again.
pub(super) struct Path {
    pub info: RootInfo,
    pub hasher: Hasher,
    /// Root first, at most three.
    pub frames: Vec<Frame>,
    /// Leaves that this path has been at; more than the directory has blocks is a cycle.
    visited: u32,
}

impl Path {
    /// The way to the first leaf that may hold what `target` says, when the directory's hasher is known.
    pub(super) fn to(op: &mut Op<'_>, dir: &Dir, inode: &Inode, target: impl FnOnce(&Hasher) -> u32) -> Result<Self> {
        let (block, image, info, node) = dir.root(op, inode)?;
        let hasher = Hasher::for_root(info.hash_version, op.sb()).map_err(|c| c.at(block).of(dir.ino.0))?;
        let hash = target(&hasher);
        let at = node.search(&image, hash);
        let mut path = Path { info, hasher, frames: vec![Frame { block, image, node, at }], visited: 0 };
        path.descend(op, dir, inode, Some(hash))?;
        Ok(path)
    }

    fn last(&self) -> &Frame {
        self.frames.last().expect("the root is always there")
    }

    fn bad(&self, dir: &Dir, why: &'static str) -> Corrupt {
        Corrupt::new(Structure::HtreeNode, why).of(dir.ino.0).at(self.last().block)
    }

    /// From the last frame down to the level above the leaves: by hash, or leftmost.
    fn descend(&mut self, op: &mut Op<'_>, dir: &Dir, inode: &Inode, hash: Option<u32>) -> Result<()> {
        while self.frames.len() <= usize::from(self.info.levels) {
            let fb = self.child(dir)?;
            let (block, image, node) = dir.node(op, inode, fb)?;
            if self.frames.iter().any(|f| f.block == block) {
                return Err(self.bad(dir, "cycle").into());
            }
            self.check_range(dir, block, &image, node)?;
            let at = hash.map_or(0, |h| node.search(&image, h));
            self.frames.push(Frame { block, image, node, at });
        }
        self.visited += 1;
        if self.visited > dir.blocks {
            return Err(self.bad(dir, "more leaves than blocks").into());
        }
        Ok(())
    }

    /// A node's hashes lie between those of the pair that leads to it and of the next one. So hashes only go up from
    /// leaf to leaf, and a listing goes on.
    fn check_range(&self, dir: &Dir, block: BlockNo, image: &[u8], node: IndexNode) -> Result<()> {
        let first = node.hash(image, 1.min(node.count() - 1));
        let last = node.hash(image, node.count() - 1);
        let below = node.count() > 1 && first < self.first_hash();
        if below || self.next_hash().is_some_and(|next| last > next) {
            let why = "hashes outside of those of the node above";
            return Err(Corrupt::new(Structure::HtreeNode, why).of(dir.ino.0).at(block).into());
        }
        Ok(())
    }

    /// The file block that the last frame points to.
    fn child(&self, dir: &Dir) -> Result<FileBlock> {
        let fb = self.last().child();
        // Block 0 is the root.
        if fb.0 == 0 || fb.0 >= dir.blocks { Err(self.bad(dir, "points out of the directory").into()) } else { Ok(fb) }
    }

    /// The leaf this path leads to.
    pub(super) fn leaf(&self, op: &mut Op<'_>, dir: &Dir, inode: &Inode) -> Result<(BlockNo, Image)> {
        let (block, image) = dir.leaf(op, inode, self.child(dir)?)?;
        if self.frames.iter().any(|f| f.block == block) {
            return Err(self.bad(dir, "cycle").into());
        }
        Ok((block, image))
    }

    /// As [`Path::leaf`]; if it must be read, so are the leaves after it.
    pub(super) fn leaf_ahead(&self, op: &mut Op<'_>, dir: &Dir, inode: &Inode) -> Result<(BlockNo, Image)> {
        let first = dir.phys(op, inode, self.child(dir)?)?;
        if op.block_in_memory(first).is_none() {
            let f = self.last();
            let mut blocks = vec![first];
            for i in f.at + 1..f.node.count().min(f.at + READAHEAD) {
                let fb = f.node.child(&f.image, i);
                if fb.0 < dir.blocks {
                    blocks.push(dir.phys(op, inode, fb)?);
                }
            }
            op.want(blocks)?;
        }
        self.leaf(op, dir, inode)
    }

    /// The first hash of this leaf, with the continuation bit.
    pub(super) fn first_hash(&self) -> u32 {
        let f = self.frames.iter().rev().find(|f| f.at > 0);
        f.map_or(0, |f| f.node.hash(&f.image, f.at))
    }

    /// The first hash of the next leaf, with the continuation bit; `None` at the last leaf.
    pub(super) fn next_hash(&self) -> Option<u32> {
        let f = self.frames.iter().rev().find(|f| f.at + 1 < f.node.count())?;
        Some(f.node.hash(&f.image, f.at + 1))
    }

    /// Moves to the next leaf; `false` at the last one.
    pub(super) fn advance(&mut self, op: &mut Op<'_>, dir: &Dir, inode: &Inode) -> Result<bool> {
        let Some(level) = self.frames.iter().rposition(|f| f.at + 1 < f.node.count()) else { return Ok(false) };
        self.frames.truncate(level + 1);
        self.frames[level].at += 1;
        self.descend(op, dir, inode, None)?;
        Ok(true)
    }
}

/// The entry of a name in an htree.
pub(super) fn find(op: &mut Op<'_>, dir: &Dir, inode: &Inode, name: &[u8]) -> Result<Option<Entry>> {
    let mut major = 0;
    let mut path = Path::to(op, dir, inode, |h| {
        major = h.hash(name).major;
        major
    })?;
    loop {
        let (block, image) = path.leaf(op, dir, inode)?;
        if let Some(e) = dir.format.find(&image, name).map_err(|c| c.at(block).of(dir.ino.0))? {
            return Ok(Some(Entry { ino: e.ino, file_type: e.file_type, block, offset: e.offset }));
        }
        // Names of one hash may go on in the next leaf.
        if path.next_hash() != Some(major | 1) || !path.advance(op, dir, inode)? {
            return Ok(None);
        }
    }
}

/// An index that does not lead anywhere new.
pub(super) fn stuck(dir: &Dir) -> Corrupt {
    corrupt("index cannot make room", dir.ino)
}
