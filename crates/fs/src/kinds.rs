//! What a block of metadata is checked to be: [`crate::op::Op::block`].

use quire_journal::As;

/// Without a structure of its own, or one whose parts are checked one by one: inode tables, long symbolic links.
pub(crate) const PARTS: As = As(0);
pub(crate) const BLOCK_BITMAP: As = As(1);
pub(crate) const INODE_BITMAP: As = As(2);
pub(crate) const EXTENT_NODE: As = As(3);
pub(crate) const INDIRECT_BLOCK: As = As(4);
pub(crate) const DIR_LEAF: As = As(5);
pub(crate) const HTREE_ROOT: As = As(6);
pub(crate) const HTREE_NODE: As = As(7);
pub(crate) const XATTRS: As = As(8);
pub(crate) const ORPHANS: As = As(9);
