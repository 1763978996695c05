//! Where the copies of the group descriptors lie, and how many groups they can tell of.

use crate::features::{compat, incompat};
use crate::superblock::Superblock;
use crate::units::{BlockNo, GroupNo};

/// The copies of descriptor block `index` in groups that exist.
#[must_use]
pub fn copies(sb: &Superblock, index: u32) -> Vec<BlockNo> {
    let groups = sb.group_count();
    if sb.features().has_incompat(incompat::META_BG) && index >= sb.first_meta_bg() {
        let per = sb.descriptors_per_block();
        let first = index.saturating_mul(per);
        let in_groups = [first.saturating_add(1), first.saturating_add(per - 1)];
        let exist = in_groups.into_iter().filter(|g| *g < groups).map(GroupNo);
        return exist.map(|g| sb.group_start(g).plus(u64::from(sb.has_backup(g)))).collect();
    }
    let copies = (1..groups).map(GroupNo).filter(|g| sb.has_backup(*g));
    copies.map(|g| sb.group_start(g).plus(1 + u64::from(index))).collect()
}

/// Groups that the descriptors can tell of at most, in the blocks that they have and those reserved for them.
#[must_use]
pub fn most_groups(sb: &Superblock) -> u64 {
    let f = sb.features();
    if f.has_incompat(incompat::META_BG) {
        return u64::from(u32::MAX);
    }
    let more = if f.has_compat(compat::RESIZE_INODE) { u32::from(sb.reserved_gdt_blocks()) } else { 0 };
    (u64::from(sb.descriptor_blocks()) + u64::from(more)) * u64::from(sb.descriptors_per_block())
}
