//! What a file system becomes when it grows, decided before anything changes.
//!
//! ```text
//! last group is short ──> it is filled ──> groups are added, at most a flex group at a time
//!
//! first group of a step: [ copy of superblock, descriptors, reserve | block bitmaps | inode bitmaps | tables | free ]
//! further groups:        [ copy of superblock, descriptors, reserve, where a copy is kept                    | free ]
//! ```
//! *Guarantees*: a growth that cannot be done whole is refused here, before anything changes (G2). The groups and
//! counts are those that resize2fs would give (G3). Pure functions of the superblock.

use super::orlov::unit_size;
use crate::error::{Error, Result};
use crate::tables::GroupHint;
use quire_device::Buf;
use quire_layout::features::{compat, incompat, ro_compat};
use quire_layout::group_desc::{GroupDesc, flags};
use quire_layout::superblock::{Growth, Superblock, state};
use quire_layout::{BlockNo, GroupNo, Unsupported};
use quire_layout::{bitmap, descriptors};

/// Free blocks that a last group must have to be worth its metadata, as `mke2fs` and `resize2fs` have it.
const LEAST_FREE_IN_LAST_GROUP: u64 = 50;

/// Blocks of a transaction beside those that are reserved for descriptors.
const OTHER_BLOCKS: usize = 16;

/// A group that is added.
pub(crate) struct NewGroup {
    pub number: GroupNo,
    pub desc: GroupDesc,
    /// `None`: it is computed when it is needed.
    pub block_bitmap: Option<Buf>,
    pub inode_bitmap: Option<Buf>,
}

/// One transaction of a growth.
pub(crate) enum GrowthStep {
    /// The last group gets blocks.
    Fill { group: GroupNo, growth: Growth },
    /// Groups are added. `descriptors`: blocks of descriptors that come into use, the first of them by its index.
    Add { groups: Vec<NewGroup>, own: Vec<(BlockNo, u32)>, growth: Growth, first_index: u32 },
}

impl GrowthStep {
    pub(crate) fn growth(&self) -> &Growth {
        match self {
            GrowthStep::Fill { growth, .. } | GrowthStep::Add { growth, .. } => growth,
        }
    }

    /// The allocator's view of the groups.
    pub(crate) fn hints(groups: &[NewGroup]) -> Vec<GroupHint> {
        groups.iter().map(|g| GroupHint::of(&g.desc)).collect()
    }
}

/// How many blocks the file system gets, of those that were asked for.
///
/// # Errors
/// It would not grow; unsupported, with the reason; not permitted, after errors.
pub(crate) fn target(sb: &Superblock, asked: u64, limit: usize) -> Result<u64> {
    if asked <= sb.blocks_count() {
        return Err(Error::Invalid("a mounted volume can only grow"));
    }
    if sb.state() & state::ERROR != 0 {
        return Err(Error::NotPermitted("the file system has errors: run e2fsck before it grows"));
    }
    check_features(sb)?;
    let unsupported = |what: String| Err(Unsupported::new(what).into());
    let per_group = u64::from(sb.blocks_per_group());
    let most = descriptors::most_groups(sb).saturating_mul(per_group).saturating_add(sb.first_data_block().0);
    if asked > most {
        let bytes = most << sb.block_size().bits();
        let why = "its reserved blocks for group descriptors allow";
        return unsupported(format!("growing to more than {most} blocks ({bytes} bytes), which is what {why}"));
    }
    let has_pointers = sb.features().has_compat(compat::RESIZE_INODE);
    if asked > u64::from(u32::MAX) && (has_pointers || !sb.features().has_incompat(incompat::BIT64)) {
        return unsupported("growing to 2^32 blocks or more with resize_inode, or without 64bit".to_owned());
    }
    let Ok(after) = (Growth { blocks: asked, ..Growth::default() }).of(sb) else {
        return unsupported("growing to more inodes than 32 bits can count".to_owned());
    };
    let copies = (sb.group_count()..after.group_count()).map(GroupNo).filter(|g| after.has_backup(*g)).count();
    if has_pointers && copies > 0 && usize::from(sb.reserved_gdt_blocks()) + OTHER_BLOCKS > limit {
        return unsupported(format!("growing with a journal whose transactions hold {limit} blocks"));
    }
    let all_copies = (1..after.group_count()).filter(|g| after.has_backup(GroupNo(*g))).count();
    if has_pointers && all_copies > sb.block_size().bytes() / 4 {
        return unsupported("growing to so many copies of the superblock (sparse_super is off)".to_owned());
    }
    let asked = without_small_group(sb, &after);
    if asked <= sb.blocks_count() {
        return Err(Error::Invalid("the new blocks are too few to make a group of them"));
    }
    Ok(asked)
}

fn check_features(sb: &Superblock) -> Result<()> {
    let f = sb.features();
    for (has, name) in [
        (f.has_compat(compat::SPARSE_SUPER2), "sparse_super2"),
        (f.has_ro_compat(ro_compat::BIGALLOC), "bigalloc"),
        (f.has_compat(compat::RESIZE_INODE) && f.has_incompat(incompat::META_BG), "both resize_inode and meta_bg"),
        (!f.has_compat(compat::RESIZE_INODE) && sb.reserved_gdt_blocks() > 0, "reserved blocks without resize_inode"),
    ] {
        if has {
            return Err(Unsupported::new(format!("growing a mounted file system with {name}")).into());
        }
    }
    Ok(())
}

/// Blocks of a group that hold the file system itself, if its bitmaps and table lie in it.
fn overhead(sb: &Superblock, g: GroupNo) -> u64 {
    u64::from(sb.base_metadata(g).1) + 2 + u64::from(sb.inode_table_blocks())
}

/// The blocks of `after`, without those of a new last group that would have hardly room for its own metadata.
fn without_small_group(sb: &Superblock, after: &Superblock) -> u64 {
    let last = GroupNo(after.group_count() - 1);
    let len = u64::from(after.blocks_in(last));
    let is_small = last.0 >= sb.group_count() && len < overhead(after, last) + LEAST_FREE_IN_LAST_GROUP;
    if is_small { after.group_start(last).0 } else { after.blocks_count() }
}

/// The steps of a growth to `target` blocks. `lazy`: what was never used needs no content.
///
/// # Errors
/// Unsupported: the tables of a group do not fit into it.
pub(crate) fn steps(sb: &Superblock, target: u64, lazy: bool) -> Result<Vec<GrowthStep>> {
    let reserved = |blocks: u64| {
        let of_all = u128::from(sb.reserved_blocks()) * u128::from(blocks) / u128::from(sb.blocks_count());
        u64::try_from(of_all).expect("no more than the blocks")
    };
    let mut steps = Vec::new();
    let mut now = sb.clone();
    while now.blocks_count() < target {
        let last = GroupNo(now.group_count() - 1);
        let room = u64::from(sb.blocks_per_group() - now.blocks_in(last));
        let step = if room > 0 {
            let more = room.min(target - now.blocks_count());
            let blocks = now.blocks_count() + more;
            let growth = Growth { blocks, free_blocks: more, reserved_blocks: reserved(blocks), ..Growth::default() };
            GrowthStep::Fill { group: last, growth }
        } else {
            addition(&now, target, lazy, reserved)?
        };
        now = step.growth().of(&now)?;
        steps.push(step);
    }
    Ok(steps)
}

/// Adds as many groups as a step may, whose tables the first of them can hold.
fn addition(now: &Superblock, target: u64, lazy: bool, reserved: impl Fn(u64) -> u64) -> Result<GrowthStep> {
    let first = now.group_count();
    let all = Growth { blocks: target, ..Growth::default() }.of(now)?;
    let unit = unit_size(now);
    let most = (unit - first % unit).min(all.group_count() - first);
    let index = |groups: u32| groups.div_ceil(now.descriptors_per_block());
    let is_meta = now.features().has_incompat(incompat::META_BG);
    for n in (1..=most).rev() {
        let end = GroupNo(first + n);
        let blocks = all.group_start(end).0.min(target);
        let taken = if is_meta { 0 } else { index(end.0) - index(first) };
        let descriptor_blocks = u16::try_from(taken).map_err(|_| Unsupported::new("growing by so much at once"))?;
        let growth = Growth { blocks, descriptor_blocks, reserved_blocks: reserved(blocks), ..Growth::default() };
        let after = growth.of(now)?;
        let tables = n * (2 + now.inode_table_blocks());
        if after.base_metadata(GroupNo(first)).1 + tables > after.blocks_in(GroupNo(first)) {
            continue;
        }
        return Ok(laid_out(&after, GroupNo(first), n, lazy, target, growth, index(first)));
    }
    Err(Unsupported::new("growing: a group's inode table does not fit into it").into())
}

/// `n` groups from `first` on, with what they hold.
fn laid_out(
    after: &Superblock,
    first: GroupNo,
    n: u32,
    lazy: bool,
    target: u64,
    growth: Growth,
    first_index: u32,
) -> GrowthStep {
    let is_last = |g: GroupNo| after.group_start(GroupNo(g.0 + 1)).0 >= target;
    let (start, base) = after.base_metadata(first);
    let at = start.plus(u64::from(base));
    let (table, inodes) = (after.inode_table_blocks(), after.inodes_per_group());
    let tables = n * (2 + table);
    let mut own = vec![(at, tables)];
    let mut groups = Vec::new();
    for i in 0..n {
        let g = GroupNo(first.0 + i);
        let (start, base) = after.base_metadata(g);
        own.push((start, base));
        let used = base + if i == 0 { tables } else { 0 };
        let mut desc = GroupDesc::empty(after);
        desc.set_places(
            at.plus(u64::from(i)),
            at.plus(u64::from(n + i)),
            at.plus(2 * u64::from(n) + u64::from(i) * u64::from(table)),
        );
        desc.set_free_blocks(after.blocks_in(g) - used);
        desc.set_free_inodes(inodes);
        // The kernel computes such a bitmap from the group's own structures alone, and not where the group is short.
        let computed = lazy && i > 0 && !is_last(g);
        if lazy {
            desc.set_flags(flags::INODE_UNINIT | if computed { flags::BLOCK_UNINIT } else { 0 });
            desc.set_itable_unused(inodes);
        }
        let map = |used: u32, len: u32| {
            let mut b = Buf::zeroed(after.block_size().bytes());
            bitmap::set(&mut b, 0, used);
            bitmap::pad(&mut b, len);
            b
        };
        let block_bitmap = (!computed).then(|| map(used, after.blocks_in(g)));
        let inode_bitmap = (!lazy).then(|| map(0, inodes));
        if after.features().metadata_csum() {
            block_bitmap.iter().for_each(|b| desc.set_block_bitmap_csum(bitmap::block_bitmap_checksum(after, b)));
            inode_bitmap.iter().for_each(|b| desc.set_inode_bitmap_csum(bitmap::inode_bitmap_checksum(after, b)));
        }
        groups.push(NewGroup { number: g, desc, block_bitmap, inode_bitmap });
    }
    let overhead = own.iter().map(|(_, len)| u64::from(*len)).sum();
    let free_blocks = groups.iter().map(|g| u64::from(g.desc.free_blocks())).sum();
    GrowthStep::Add { groups, own, growth: Growth { overhead, free_blocks, ..growth }, first_index }
}
