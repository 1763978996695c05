//! How many blocks an extent tree may take when it gets more entries, without a look at it.

use quire_layout::BlockSize;
use quire_layout::extent::{ENTRY, MAX_DEPTH, Node, ROOT_MAX};
use quire_layout::inode::Inode;

/// Blocks of the tree that inserting so many extents takes at most, wherever they go (F13). An indirect map has no
/// tree. The inode's own node has been checked ([`super::lookup`]).
///
/// Nodes of one level are split at most
/// - once for each that is there and gets an entry, because all may be full, and once more at the end of the level;
/// - once for each quarter of a node that the level gets. A node split in the middle takes half of its entries before
///   it is full again. One split at its end takes one entry, and its new neighbour all but one.
///
/// Each split is an entry for the level above. The inode's own node, when it is full, moves to a block, and the tree
/// has a level more.
#[must_use]
pub(crate) fn tree_blocks(bs: BlockSize, inode: &Inode, entries: u64) -> u64 {
    if entries == 0 || !inode.uses_extents() {
        return 0;
    }
    let root = Node::new(inode.block_area());
    let (own, depth) = (root.entries() as u64, root.depth().min(MAX_DEPTH));
    let per_block = ((bs.bytes() - ENTRY) / ENTRY) as u64;
    let for_quarters = |n: u64| n.saturating_mul(4) / per_block;
    let (mut new, mut blocks) = (entries, 0u64);
    for level in (0..u32::from(depth)).rev() {
        let nodes = own.saturating_mul(per_block.saturating_pow(level));
        new = new.min(nodes.saturating_add(1)).saturating_add(for_quarters(new));
        blocks = blocks.saturating_add(new);
    }
    let mut in_root = own;
    while in_root + new > u64::from(ROOT_MAX) {
        new = 1 + for_quarters(new);
        blocks = blocks.saturating_add(new);
        in_root = 0;
    }
    blocks
}
