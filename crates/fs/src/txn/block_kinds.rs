//! The structures that a metadata block is verified as (`Op::block`, E8).

use quire_journal::As;

/// A block whose parts are checked one by one, such as an inode table, or that has no checks: a long symbolic link.
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
