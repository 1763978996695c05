//! The blocks of a directory: by number in the file, checked in the role that they have.

use super::entry::{Entry, corrupt};
use super::inline_block::as_block;
use crate::error::{Error, Result};
use crate::map::{self, Mapping};
use crate::policy::{DIR_READAHEAD_BLOCKS, DIR_SIZE_TO_REMEMBER_SCANS};
use crate::records;
use crate::space::Pool;
use crate::txn::Op;
use crate::txn::block_kinds as kinds;
use quire_journal::Image;
use quire_layout::dir::{DirFormat, IndexNode, RootInfo};
use quire_layout::features::{compat, incompat};
use quire_layout::inline_data::is_inline;
use quire_layout::inode::{Inode, flags};
use quire_layout::{BlockNo, Corrupt, FileBlock, Ino};

/// Index pairs have 28 bits for a file block.
const MAX_BLOCKS: u32 = 1 << 28;
/// A directory without `large_dir` stays below 2 GiB.
const MAX_SIZE: u64 = 1 << 31;

/// What the functions here need to know about a directory besides its inode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dir {
    pub ino: Ino,
    pub format: DirFormat,
    /// Length in blocks; 0 once it was removed.
    pub blocks: u32,
    /// An htree.
    pub indexed: bool,
    /// The file system has `dir_index`.
    pub may_index: bool,
    /// On whose account new blocks are taken.
    pub pool: Pool,
}

impl Dir {
    pub(super) fn new(op: &Op<'_>, ino: Ino, inode: &Inode) -> Result<Self> {
        if !inode.is_dir() {
            return Err(Error::NotDir);
        }
        let sb = op.sb();
        let bs = sb.block_size();
        let format = DirFormat::of(sb, ino, inode);
        let may_index = sb.features().has_compat(compat::DIR_INDEX);
        if is_inline(inode) {
            return Ok(Dir { ino, format, blocks: 1, indexed: false, may_index, pool: Pool::User });
        }
        let blocks = u32::try_from(inode.size() / bs.bytes64()).ok().filter(|n| *n <= MAX_BLOCKS);
        let blocks = blocks.ok_or_else(|| corrupt("too long", ino))?;
        if !inode.size().is_multiple_of(bs.bytes64()) {
            return Err(corrupt("length is not a multiple of the block size", ino).into());
        }
        if inode.has(flags::INDEX) && !may_index && sb.features().metadata_csum() {
            return Err(corrupt("indexed on a file system without dir_index", ino).into());
        }
        let indexed = may_index && inode.has(flags::INDEX);
        Ok(Dir { ino, format, blocks, indexed, may_index, pool: Pool::User })
    }

    fn run(&self, op: &mut Op<'_>, inode: &Inode, fb: FileBlock, max: u32) -> Result<(BlockNo, u32)> {
        match map::lookup(op, self.ino, inode, fb, max)? {
            Mapping::Mapped { phys, len, unwritten: false } => Ok((phys, len)),
            _ => Err(corrupt("has a hole", self.ino).into()),
        }
    }

    /// The block of the image that holds block `n` of the directory.
    pub(super) fn phys(&self, op: &mut Op<'_>, inode: &Inode, fb: FileBlock) -> Result<BlockNo> {
        Ok(self.run(op, inode, fb, 1)?.0)
    }

    /// Checks a block of names that came from disk; the first one must begin with `.` and `..`.
    fn check_names(&self, fb: FileBlock, bytes: &[u8]) -> Result<(), Corrupt> {
        self.format.check_leaf(bytes).map_err(|c| c.of(self.ino.0))?;
        if fb == FileBlock(0) {
            self.format.dots(bytes, self.ino).map_err(|c| c.of(self.ino.0))?;
        }
        Ok(())
    }

    /// True if a linear directory may not be in memory all at once: a search goes on where an operation that missed has
    /// come to (D5, `super::scan`).
    pub(super) fn is_long(&self, op: &Op<'_>) -> bool {
        let bytes = u64::from(self.blocks) * op.sb().block_size().bytes64();
        // Half of the memory is for block images; half of that for this, if it is more than a few blocks.
        !self.indexed
            && self.blocks > DIR_READAHEAD_BLOCKS
            && bytes > op.context.options.cache_bytes / DIR_SIZE_TO_REMEMBER_SCANS
    }

    /// Block `n` of a linear directory; the ones after it are read ahead. A directory in its inode has one, which is
    /// not on disk.
    pub(super) fn linear(&self, op: &mut Op<'_>, inode: &Inode, n: u32) -> Result<(BlockNo, Image)> {
        if is_inline(inode) {
            return Ok((BlockNo(0), as_block(op, self.ino, inode)?));
        }
        let fb = FileBlock(n);
        let (b, len) = self.run(op, inode, fb, DIR_READAHEAD_BLOCKS.min(self.blocks - n))?;
        if op.block_in_memory(b).is_none() {
            op.want((0..u64::from(len)).map(|i| b.plus(i)))?;
        }
        let image = op.block(b, kinds::DIR_LEAF, |bytes| self.check_names(fb, bytes))?;
        Ok((b, image))
    }

    /// A leaf of an htree.
    pub(super) fn leaf(&self, op: &mut Op<'_>, inode: &Inode, fb: FileBlock) -> Result<(BlockNo, Image)> {
        let b = self.phys(op, inode, fb)?;
        let image = op.block(b, kinds::DIR_LEAF, |bytes| self.check_names(fb, bytes))?;
        Ok((b, image))
    }

    /// The root of an htree.
    pub(super) fn root(&self, op: &mut Op<'_>, inode: &Inode) -> Result<(BlockNo, Image, RootInfo, IndexNode)> {
        let named = |c: Corrupt| c.of(self.ino.0);
        let b = self.phys(op, inode, FileBlock(0))?;
        let image = op.block(b, kinds::HTREE_ROOT, |bytes| self.format.check_root(bytes, self.ino).map_err(named))?;
        let (info, node) = self.format.root(&image, self.ino).map_err(|c| named(c).at(b))?;
        Ok((b, image, info, node))
    }

    /// An inner node of an htree.
    pub(super) fn node(&self, op: &mut Op<'_>, inode: &Inode, fb: FileBlock) -> Result<(BlockNo, Image, IndexNode)> {
        let named = |c: Corrupt| c.of(self.ino.0);
        let b = self.phys(op, inode, fb)?;
        let image = op.block(b, kinds::HTREE_NODE, |bytes| self.format.check_node(bytes).map_err(named))?;
        let node = self.format.node(&image).map_err(|c| named(c).at(b))?;
        Ok((b, image, node))
    }

    /// The entry of `.` or `..`.
    pub(super) fn dot(&self, op: &mut Op<'_>, inode: &Inode, name: &[u8]) -> Result<Entry> {
        let (block, image) = if self.indexed {
            let (b, image, ..) = self.root(op, inode)?;
            (b, image)
        } else {
            self.linear(op, inode, 0)?
        };
        let dotdot = self.format.dots(&image, self.ino).map_err(|c| c.at(block).of(self.ino.0))?;
        Ok(match name {
            b"." => Entry { ino: self.ino, file_type: dotdot.file_type, block, offset: 0 },
            _ => Entry { ino: dotdot.ino, file_type: dotdot.file_type, block, offset: dotdot.offset },
        })
    }

    /// A new block at the end of the directory, for the caller to fill (`Op::block_new`).
    pub(super) fn grow(&mut self, op: &mut Op<'_>, inode: &mut Inode) -> Result<(FileBlock, BlockNo)> {
        let bs = op.sb().block_size().bytes64();
        let size = (u64::from(self.blocks) + 1) * bs;
        let large = op.sb().features().has_incompat(incompat::LARGEDIR);
        if self.blocks >= MAX_BLOCKS - 1 || (!large && size >= MAX_SIZE) {
            return Err(Error::NoSpace);
        }
        let fb = FileBlock(self.blocks);
        let (b, _) = map::allocate(op, self.ino, inode, fb, 1, self.pool)?;
        self.blocks += 1;
        inode.set_size(size);
        records::put_inode(op, self.ino, inode)?;
        Ok((fb, b))
    }
}
