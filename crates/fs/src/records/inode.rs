//! Inode records in their table blocks.

use super::group::group;
use super::superblock::{superblock, superblock_mut};
use crate::error::{Error, Result};
use crate::txn::Op;
use quire_layout::features::{Features, ro_compat};
use quire_layout::inode::Inode;
use quire_layout::superblock::{Superblock, add_features};
use quire_layout::{BlockNo, Corrupt, GroupNo, Ino, Structure};

/// Blocks of an inode table that a miss reads together at most. Neighbours are often used together.
const READAHEAD_BLOCKS: u64 = 8;

/// Bytes of the largest file that needs no `large_file`.
const LARGEST_SMALL_FILE: u64 = (1 << 31) - 1;

/// A copy of an inode's record, checked. The inode may be free: see its mode and links.
///
/// # Errors
/// Miss; corrupt.
pub(crate) fn inode(op: &mut Op<'_>, ino: Ino) -> Result<Inode> {
    let (b, at) = place(op, ino)?;
    let size = op.sb().inode_size();
    let Some(image) = op.block_in_memory(b) else {
        return Err(Error::Miss(with_blocks_ahead(op.sb(), ino, b)));
    };
    let mut record = Inode::decode(ino, &image[at..at + size], op.context.record_seed).map_err(|c| c.at(b))?;
    record.os = op.sb().creator_os();
    Ok(record)
}

/// Writes an inode's record with its checksum. The block joins the transaction only if the record has changed: times
/// stand still within a tick of the clock, so a second write in it may leave the record as it is. The change is noted
/// all the same, because the operation may have changed what else belongs to the inode (F12).
///
/// # Errors
/// Miss; corrupt superblock (the first large file); read-only or aborted.
pub(crate) fn put_inode(op: &mut Op<'_>, ino: Ino, inode: &mut Inode) -> Result<()> {
    op.check_writable()?;
    let (b, at) = place(op, ino)?;
    let bytes = at..at + op.sb().inode_size();
    let sealed = inode.sealed(ino, op.context.record_seed);
    let mut only_times = true;
    if op.block_in_memory(b).is_none_or(|image| image[bytes.clone()] != *sealed) {
        let record = &mut op.block_mut(b)?[bytes];
        only_times = quire_layout::inode::same_but_for_times(sealed, record);
        record.copy_from_slice(sealed);
        note_large_file(op, inode)?;
    }
    // A directory's times change with its entries.
    note_change(op, ino, !only_times || inode.is_dir());
    Ok(())
}

/// The first inode of 2 GiB or more sets the feature `large_file`, in the same operation, as the kernel does: readers
/// that do not know it take sizes for numbers of 31 bits.
fn note_large_file(op: &mut Op<'_>, inode: &Inode) -> Result<()> {
    let known = |f: Features| f.has_ro_compat(ro_compat::LARGE_FILE);
    if inode.size() <= LARGEST_SMALL_FILE || known(op.sb().features()) || known(superblock(op)?.features()) {
        return Ok(());
    }
    add_features(superblock_mut(op)?, Features { ro_compat: ro_compat::LARGE_FILE, ..Features::default() });
    Ok(())
}

/// An fsync of this inode waits for the transaction of this operation; with `data`, an fdatasync does, too.
pub(crate) fn note_change(op: &mut Op<'_>, ino: Ino, data: bool) {
    op.deferred.changed.push((ino, data));
}

/// The block of an inode's record, and those behind it that are read ahead. Behind the table lies something else.
fn with_blocks_ahead(sb: &Superblock, ino: Ino, b: BlockNo) -> Vec<BlockNo> {
    let inodes = sb.block_size().bytes() / sb.inode_size();
    let per_block = u32::try_from(inodes).expect("a block is small");
    let in_table = (sb.inodes_per_group() - (ino.0 - 1) % sb.inodes_per_group()).div_ceil(per_block);
    let in_window = READAHEAD_BLOCKS - b.0 % READAHEAD_BLOCKS;
    (0..in_window.min(u64::from(in_table))).map(|n| b.plus(n)).collect()
}

/// Block and byte offset of an inode's record. The group's descriptor must be in memory.
fn place(op: &mut Op<'_>, ino: Ino) -> Result<(BlockNo, usize)> {
    let sb = op.sb();
    if ino.0 == 0 || ino.0 > sb.inodes_count() {
        return Err(Corrupt::new(Structure::Inode, "number out of range").of(ino.0).into());
    }
    let (g, index) = ((ino.0 - 1) / sb.inodes_per_group(), (ino.0 - 1) % sb.inodes_per_group());
    let offset = u64::from(index) * u64::try_from(sb.inode_size()).expect("small");
    let table = inode_table(op, GroupNo(g))?;
    let at = usize::try_from(offset % sb.block_size().bytes64()).expect("within a block");
    Ok((table.plus(offset / sb.block_size().bytes64()), at))
}

/// The first block of a group's inode table. It does not change while the volume is mounted.
fn inode_table(op: &mut Op<'_>, g: GroupNo) -> Result<BlockNo> {
    if let Some(table) = op.tables().inode_tables.get(&g) {
        return Ok(*table);
    }
    let table = group(op, g)?.inode_table();
    op.tables_mut().inode_tables.insert(g, table);
    Ok(table)
}
