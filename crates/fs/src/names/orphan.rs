//! Orphans: inodes without links that are still in use, and files whose truncate has not ended. After a crash the mount
//! frees them, or truncates them to their size (`super::orphan_scan`).
//!
//! ```text
//! list:  superblock.s_last_orphan -> inode.i_dtime -> inode.i_dtime -> ... -> 0
//! file:  slots of inode numbers in the blocks of the orphan file (feature orphan_file); when full, the list
//! ```
//! *Guarantees* N1 (docs/invariants.md): the operation that removes an inode's last link, or begins a truncate of
//! several operations, records the inode. The operation that frees it, or ends the truncate, removes the record. So a
//! crash leaves neither a leaked inode nor a record of a freed one.
//!
//! The table in memory (`tables::orphans`) has the place of each record, so that removing one from the middle of the
//! list needs no walk.

use crate::error::Result;
use crate::map::{self, Mapping};
use crate::records;
use crate::tables::{OrphanFile, OrphanPlace};
use crate::txn::{Op, block_kinds};
use quire_device::Mutant;
use quire_device::sync::Arc;
use quire_layout::features::compat;
use quire_layout::inode::Inode;
use quire_layout::{BlockNo, Corrupt, FileBlock, Ino, Structure, orphan_file};

/// The place of an inode's record, as this operation has left it.
fn place(op: &Op<'_>, ino: Ino) -> Option<OrphanPlace> {
    match op.deferred.orphans.iter().rev().find(|(i, _)| *i == ino) {
        Some((_, place)) => *place,
        None => op.tables().orphans.places.get(&ino).copied(),
    }
}

/// True if an inode is recorded as an orphan.
pub(crate) fn is_orphan(op: &Op<'_>, ino: Ino) -> bool {
    place(op, ino).is_some()
}

/// Records an inode as an orphan, if it is not one yet, and writes its record (N1).
///
/// # Errors
/// Miss; corrupt; read-only.
pub(crate) fn add(op: &mut Op<'_>, ino: Ino, inode: &mut Inode) -> Result<()> {
    if is_orphan(op, ino) || Mutant::OrphanForgotten.is_on() {
        return records::put_inode(op, ino, inode);
    }
    match free_slot(op)? {
        Some((block, slot, seed)) => {
            orphan_file::set_slot(op.block_mut(block)?, slot, ino);
            records::seal_orphans_at_end(op, block, seed);
            op.deferred.orphans.push((ino, Some(OrphanPlace::File { block, slot })));
        }
        None => {
            let sb = records::superblock_mut(op)?;
            let head = sb.last_orphan();
            sb.set_last_orphan(ino);
            inode.set_dtime(head.0);
            op.deferred.orphans.push((ino, Some(OrphanPlace::List { prev: None })));
            if head != Ino(0) {
                op.deferred.orphans.push((head, Some(OrphanPlace::List { prev: Some(ino) })));
            }
        }
    }
    records::put_inode(op, ino, inode)
}

/// Removes an inode's record, if it has one; its `i_dtime` is 0 afterwards. The caller writes the inode.
///
/// # Errors
/// Miss; corrupt; read-only.
pub(crate) fn remove(op: &mut Op<'_>, ino: Ino, inode: &mut Inode) -> Result<()> {
    match place(op, ino) {
        None => return Ok(()),
        Some(OrphanPlace::File { block, slot }) => {
            let file = file(op)?.ok_or_else(|| Corrupt::new(Structure::OrphanFile, "it is gone"))?;
            op.block(block, block_kinds::ORPHANS, |b| orphan_file::check(b, block, file.seed))?;
            let b = op.block_mut(block)?;
            orphan_file::set_slot(b, slot, Ino(0));
            records::seal_orphans_at_end(op, block, file.seed);
        }
        Some(OrphanPlace::List { prev }) => {
            let next = Ino(inode.dtime());
            match prev {
                Some(prev) => {
                    let mut before = records::inode(op, prev)?;
                    before.set_dtime(next.0);
                    records::put_inode(op, prev, &mut before)?;
                }
                None => records::superblock_mut(op)?.set_last_orphan(next),
            }
            if next != Ino(0) {
                op.deferred.orphans.push((next, Some(OrphanPlace::List { prev })));
            }
        }
    }
    inode.set_dtime(0);
    op.deferred.orphans.push((ino, None));
    Ok(())
}

/// Records a file whose truncate goes on in further operations, and writes its inode. The record stays until
/// [`end_cut`], also if a file without a name gets one meanwhile (N1).
///
/// # Errors
/// As [`add`].
pub(crate) fn begin_cut(op: &mut Op<'_>, ino: Ino, inode: &mut Inode) -> Result<()> {
    op.deferred.cuts.push((ino, true));
    add(op, ino, inode)
}

/// Removes the record of a file with links when nothing is left to be cut off. A file without links stays an orphan.
/// The caller writes the inode.
///
/// # Errors
/// As [`remove`].
pub(crate) fn end_cut(op: &mut Op<'_>, ino: Ino, inode: &mut Inode) -> Result<()> {
    op.deferred.cuts.push((ino, false));
    if inode.links() > 0 { remove(op, ino, inode) } else { Ok(()) }
}

/// Removes the record of an inode that was made without a name and gets one, unless a truncate of it is under way or
/// was stopped by an error. The caller writes the inode.
///
/// # Errors
/// As [`remove`].
pub(super) fn got_name(op: &mut Op<'_>, ino: Ino, inode: &mut Inode) -> Result<()> {
    op.deferred.got_name = Some(ino);
    if op.tables().cutting.contains(&ino) { Ok(()) } else { remove(op, ino, inode) }
}

/// A free slot of the orphan file, if there is one: its block, its number, and the seed of the block's checksum.
fn free_slot(op: &mut Op<'_>) -> Result<Option<(BlockNo, usize, Option<u32>)>> {
    let Some(file) = file(op)? else { return Ok(None) };
    let all = file.blocks.len() * orphan_file::slots(op.sb().block_size().bytes());
    if op.tables().orphans.used >= all {
        return Ok(None);
    }
    let first = op.tables().orphans.block_with_room;
    for n in 0..file.blocks.len() {
        let n = (first + n) % file.blocks.len();
        let block = file.blocks[n];
        let image = op.block(block, block_kinds::ORPHANS, |b| orphan_file::check(b, block, file.seed))?;
        if let Some(slot) = orphan_file::free_slot(&image[..op.sb().block_size().bytes()]) {
            op.tables_mut().orphans.block_with_room = n;
            return Ok(Some((block, slot, file.seed)));
        }
    }
    Ok(None)
}

/// The orphan file, if the file system has one.
///
/// # Errors
/// Corrupt; miss.
pub(super) fn file(op: &mut Op<'_>) -> Result<Option<Arc<OrphanFile>>> {
    if !op.sb().features().has_compat(compat::ORPHAN_FILE) {
        return Ok(None);
    }
    if let Some(f) = &op.tables().orphans.file {
        return Ok(Some(f.clone()));
    }
    let (ino, bs) = (op.sb().orphan_file_ino(), op.sb().block_size());
    let bad = |why| Corrupt::new(Structure::OrphanFile, why).of(ino.0);
    if ino < op.sb().first_ino() {
        return Err(bad("a reserved inode").into());
    }
    let inode = records::inode(op, ino)?;
    if !inode.is_file() || inode.links() == 0 {
        return Err(bad("not a regular file").into());
    }
    if inode.size() > orphan_file::MAX_BYTES || !inode.size().is_multiple_of(bs.bytes64()) {
        return Err(bad("impossible size").into());
    }
    let count = u32::try_from(bs.blocks_for(inode.size())).expect("at most 8 MiB");
    let mut blocks = Vec::new();
    for n in 0..count {
        match map::lookup(op, ino, &inode, FileBlock(n), 1)? {
            Mapping::Mapped { phys, unwritten: false, .. } => blocks.push(phys),
            _ => return Err(bad("has a hole").into()),
        }
    }
    let seed = op.context.inode_seed.map(|s| inode.checksum_seed(ino, s));
    let file = Arc::new(OrphanFile { blocks, seed });
    // The file's blocks never move, so this holds even if the operation fails.
    op.tables_mut().orphans.file = Some(file.clone());
    Ok(Some(file))
}
