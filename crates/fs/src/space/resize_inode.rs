//! The resize inode: a file that holds the blocks reserved for group descriptors, so that nobody else takes them.
//!
//! ```text
//! inode 7 ── double indirect ─> [index of descriptor block: its reserved block behind the superblock]
//!                                    reserved block: [pointers to its copies, one for each backup group but 0]
//! ```
//! A block that becomes one of descriptors leaves the map with its copies; a new backup group adds a copy of each block
//! that stays (G3). Source: kernel, fs/ext4/resize.c; e2fsprogs, lib/ext2fs/res_gdt.c.

use crate::error::Result;
use crate::records;
use crate::txn::Op;
use quire_layout::features::compat;
use quire_layout::superblock::Superblock;
use quire_layout::{BlockNo, Corrupt, GroupNo, Ino, Structure, indirect};
use std::ops::Range;

/// The slot of the double indirect block in an inode.
const DOUBLE_INDIRECT: usize = 13;

fn corrupt(why: &'static str) -> Corrupt {
    Corrupt::new(Structure::Inode, why).of(Ino::RESIZE.0)
}

/// Takes the reserved blocks of descriptor blocks `taken` out of the map, and adds the copies of the others that the
/// backup groups of `after` keep. `op.sb()` is still that of the smaller file system.
///
/// # Errors
/// Corrupt: the map is not what it must be. Miss; read-only or aborted.
pub(super) fn grow(op: &mut Op<'_>, after: &Superblock, taken: Range<u32>) -> Result<()> {
    let sb = op.sb();
    if !sb.features().has_compat(compat::RESIZE_INODE) || sb.reserved_gdt_blocks() == 0 {
        return Ok(());
    }
    let backups =
        |groups: Range<u32>| -> Vec<GroupNo> { groups.map(GroupNo).filter(|g| after.has_backup(*g)).collect() };
    let (old, new) = (backups(1..sb.group_count()), backups(sb.group_count()..after.group_count()));
    if taken.is_empty() && new.is_empty() {
        return Ok(());
    }
    let mut inode = records::inode(op, Ino::RESIZE)?;
    let double = indirect::get(inode.block_area(), DOUBLE_INDIRECT).ok_or_else(|| corrupt("it has no map"))?;
    let map = op.block_of_parts(double)?;
    let slots = indirect::per_block(sb.block_size());
    let reserved = sb.descriptor_blocks()..sb.descriptor_blocks() + u32::from(sb.reserved_gdt_blocks());
    let place = |index: u32| {
        let b = sb.own_block().plus(1 + u64::from(index));
        let slot = usize::try_from(index).expect("u32 fits") % slots;
        let found = indirect::get(&map, slot) == Some(b);
        if found { Ok((b, slot)) } else { Err(corrupt("its map misses a block reserved for descriptors")) }
    };
    let changed = if new.is_empty() { taken.clone() } else { taken.start.min(reserved.start)..reserved.end };
    let places = changed.clone().map(place).collect::<Result<Vec<_>, _>>()?;
    op.want(places.iter().map(|(b, _)| *b))?;
    drop(map);
    let (mut freed, mut got) = (0u64, 0u64);
    for (index, (b, slot)) in changed.zip(places) {
        if taken.contains(&index) {
            check_copies(op, b, &old)?;
            indirect::put(op.block_mut(double)?, slot, None);
            freed += 1 + copies_of(&old);
        } else {
            add_copies(op, b, old.len(), &new)?;
            got += copies_of(&new);
        }
    }
    let (features, bytes) = (sb.features(), sb.block_size().bytes64());
    let sectors = inode.sectors(features, bytes) + got * (bytes / 512);
    let sectors = sectors.checked_sub(freed * (bytes / 512)).ok_or_else(|| corrupt("it has too few blocks"))?;
    if !inode.set_sectors(features, bytes, sectors) {
        return Err(corrupt("it has too many blocks").into());
    }
    records::put_inode(op, Ino::RESIZE, &mut inode)
}

fn copies_of(groups: &[GroupNo]) -> u64 {
    u64::try_from(groups.len()).expect("usize fits")
}

/// Where group `g` keeps the copy of a block behind the primary superblock.
fn copy_in(op: &Op<'_>, b: BlockNo, g: GroupNo) -> BlockNo {
    b.plus(u64::from(g.0) * u64::from(op.sb().blocks_per_group()))
}

/// Refuses a reserved block that does not list its copies.
fn check_copies(op: &mut Op<'_>, b: BlockNo, groups: &[GroupNo]) -> Result<()> {
    let image = op.block_of_parts(b)?;
    for (slot, g) in groups.iter().enumerate() {
        if indirect::get(&image, slot) != Some(copy_in(op, b, *g)) {
            return Err(corrupt("a block reserved for descriptors does not list its copies").at(b).into());
        }
    }
    Ok(())
}

fn add_copies(op: &mut Op<'_>, b: BlockNo, behind: usize, groups: &[GroupNo]) -> Result<()> {
    for (n, g) in groups.iter().enumerate() {
        let to = copy_in(op, b, *g);
        let image = op.block_mut(b)?;
        if indirect::get(image, behind + n).is_some() {
            return Err(corrupt("a block reserved for descriptors lists too many copies").at(b).into());
        }
        indirect::put(image, behind + n, Some(to));
    }
    Ok(())
}
