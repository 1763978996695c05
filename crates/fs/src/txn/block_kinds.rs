//! The structures that a metadata block is verified as (`Op::block`, E8).

use quire_journal::BlockKind;

/// A block whose parts are checked one by one, such as an inode table, or that has no checks: a long symbolic link.
pub(crate) const PARTS: BlockKind = BlockKind(0);
pub(crate) const BLOCK_BITMAP: BlockKind = BlockKind(1);
pub(crate) const INODE_BITMAP: BlockKind = BlockKind(2);
pub(crate) const EXTENT_NODE: BlockKind = BlockKind(3);
pub(crate) const INDIRECT_BLOCK: BlockKind = BlockKind(4);
pub(crate) const DIR_LEAF: BlockKind = BlockKind(5);
pub(crate) const HTREE_ROOT: BlockKind = BlockKind(6);
pub(crate) const HTREE_NODE: BlockKind = BlockKind(7);
pub(crate) const XATTRS: BlockKind = BlockKind(8);
pub(crate) const ORPHANS: BlockKind = BlockKind(9);
