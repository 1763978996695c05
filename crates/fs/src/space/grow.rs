//! The operations of a growth: each is one transaction that leaves a whole file system.
//!
//! ```text
//! fill:  bitmap and count of the last group, superblock                       the new blocks are claimed
//! add:   (bitmaps and tables of the new groups are written in place before)   descriptors, resize inode, superblock
//! copies: superblocks and descriptors of the backup groups
//! ```
//! *Guarantees*: no transaction holds a block behind the end of the file system that the superblock at home tells of,
//! so that a device that was cut to that size can be replayed. *Relies on* the caller, who brings the superblock home
//! after each step before the new blocks are used ([`filled`], [`added`]).

use super::claim::{Claim, claim_free, drop_claim};
use super::growth_plan::{GrowthStep, NewGroup};
use super::{group, resize_inode};
use crate::error::Result;
use crate::records;
use crate::tables::{NewSpace, Run};
use crate::txn::block_kinds as kinds;
use crate::txn::{Bitmap, Op};
use quire_device::Buf;
use quire_device::sync::Arc;
use quire_layout::superblock::{Growth, Superblock, backup_of};
use quire_layout::{BlockNo, GroupNo, bitmap, descriptors};

/// Gives the last group more blocks. They stay claimed.
///
/// # Errors
/// Corrupt; miss; read-only or aborted.
pub(crate) fn fill(op: &mut Op<'_>, g: GroupNo, growth: &Growth) -> Result<Claim> {
    let sb = op.sb();
    let (start, old) = (sb.group_start(g), sb.blocks_in(g));
    let larger = grow_superblock(op, growth)?;
    let new = larger.blocks_in(g);
    let mut d = records::group(op, g)?;
    group::init_blocks(op, g, &mut d)?;
    drop(group::block_bitmap(op, g, &d)?);
    bitmap::clear(op.block_mut(d.block_bitmap())?, old, new);
    records::seal_bitmap_at_end(op, g, Bitmap::Blocks);
    let free = d.free_blocks() + (new - old);
    d.set_free_blocks(free);
    records::put_group(op, g, d)?;
    let x = op.deferred.space.group(g);
    x.free += i64::from(new - old);
    x.longest = Some(free);
    op.deferred.growth = Some(NewSpace { sb: Arc::new(larger), groups: Vec::new(), own: Vec::new() });
    Ok(claim_free(op, Run::new(start.plus(u64::from(old)), new - old)))
}

/// The superblock at home tells of the new blocks of the last group: they can be used.
pub(crate) fn filled(op: &mut Op<'_>, claim: &Claim) {
    drop_claim(op, claim);
}

/// What has to be written in place before [`add`]: blocks that are behind the end of the file system.
pub(crate) fn new_blocks(sb: &Superblock, after: &Superblock, groups: &[NewGroup]) -> Vec<(BlockNo, Buf)> {
    let mut out = Vec::new();
    for g in groups {
        out.extend(g.block_bitmap.iter().map(|b| (g.desc.block_bitmap(), b.clone())));
        out.extend(g.inode_bitmap.iter().map(|b| (g.desc.inode_bitmap(), b.clone())));
        let (b, _) = after.descriptor_at(g.number);
        if b.0 >= sb.blocks_count() && out.iter().all(|(at, _)| *at != b) {
            out.push((b, Buf::zeroed(after.block_size().bytes())));
        }
    }
    out
}

/// Puts the descriptors of new groups into those of `blocks` that hold them.
pub(crate) fn put_new_descriptors(op: &Op<'_>, after: &Superblock, groups: &[NewGroup], blocks: &mut [(BlockNo, Buf)]) {
    for g in groups {
        let (b, at) = after.descriptor_at(g.number);
        if let Some((_, image)) = blocks.iter_mut().find(|(to, _)| *to == b) {
            let bytes = g.desc.clone().encode(op.context.desc_sums, g.number);
            image[at..at + bytes.len()].copy_from_slice(&bytes);
        }
    }
}

/// Adds groups: their descriptors, and what the superblock tells. The allocator does not know them before [`added`].
///
/// # Errors
/// Corrupt; miss; read-only or aborted.
pub(crate) fn add(op: &mut Op<'_>, groups: &[NewGroup], growth: &Growth, first_index: u32) -> Result<()> {
    let end = op.sb().blocks_count();
    let after = growth.of(op.sb())?;
    grow_superblock(op, growth)?;
    resize_inode::grow(op, &after, first_index..first_index + u32::from(growth.descriptor_blocks))?;
    for g in groups {
        let (b, at) = after.descriptor_at(g.number);
        if b.0 >= end {
            continue;
        }
        if at == 0 && growth.descriptor_blocks > 0 {
            op.block_new(b, kinds::PARTS)?;
        }
        op.block_of_parts(b)?;
        let bytes = g.desc.clone().encode(op.context.desc_sums, g.number);
        op.block_mut(b)?[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    Ok(())
}

/// The superblock at home tells of the new groups: they can be used.
///
/// # Errors
/// Corrupt: as [`add`].
pub(crate) fn added(op: &mut Op<'_>, groups: &[NewGroup], own: &[(BlockNo, u32)], growth: &Growth) -> Result<()> {
    let sb = Arc::new(growth.of(op.sb())?);
    op.deferred.growth = Some(NewSpace { sb, groups: GrowthStep::hints(groups), own: own.to_vec() });
    Ok(())
}

/// Changes the superblock on disk; returns the one for memory, without its counts.
fn grow_superblock(op: &mut Op<'_>, growth: &Growth) -> Result<Superblock> {
    let larger = growth.of(&records::superblock(op)?)?;
    *records::superblock_mut(op)? = larger;
    Ok(growth.of(op.sb())?)
}

/// A block that a backup group keeps a copy in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BackupCopy {
    Superblock { to: BlockNo, group: GroupNo },
    Descriptors { from: BlockNo, to: BlockNo },
}

/// The copies to renew after a growth from `before` to `after`: all superblocks, and the blocks of descriptors that
/// have changed or have a new copy.
pub(crate) fn backup_copies(before: &Superblock, after: &Superblock) -> Vec<BackupCopy> {
    let kept = (1..after.group_count()).map(GroupNo).filter(|g| after.has_backup(*g));
    let mut out: Vec<_> = kept.map(|g| BackupCopy::Superblock { to: after.group_start(g), group: g }).collect();
    let per = after.descriptors_per_block();
    for index in 0..after.descriptor_blocks() {
        let (from, _) = after.descriptor_at(GroupNo(index * per));
        let changed = (index + 1) * per >= before.group_count();
        let copies = descriptors::copies(after, index).into_iter();
        let copies = copies.filter(|to| changed || to.0 >= before.blocks_count());
        out.extend(copies.map(|to| BackupCopy::Descriptors { from, to }));
    }
    out
}

/// Renews some copies.
///
/// # Errors
/// Miss; read-only or aborted.
pub(crate) fn renew(op: &mut Op<'_>, copies: &[BackupCopy]) -> Result<()> {
    let sb = records::superblock(op)?;
    for copy in copies {
        match copy {
            BackupCopy::Superblock { to, group } => {
                let backup = backup_of(&sb, *group);
                op.block_new(*to, kinds::PARTS)?[..backup.bytes().len()].copy_from_slice(backup.bytes());
            }
            BackupCopy::Descriptors { from, to } => {
                let image = op.block_of_parts(*from)?;
                let bytes = op.clip(&image);
                op.block_new(*to, kinds::PARTS)?.copy_from_slice(bytes);
            }
        }
    }
    Ok(())
}
