//! The orphans that the last mount left: found, and freed or truncated.
//!
//! *Guarantees* N2 (docs/invariants.md): a corrupt list or orphan file is a typed error; a cycle ends the walk.

use super::evict::{finish_truncate, free_together};
use super::orphan;
use crate::engine::Engine;
use crate::error::Result;
use crate::policy::ORPHAN_BLOCKS_PER_OPERATION;
use crate::records;
use crate::space;
use crate::tables::OrphanPlace;
use crate::txn::{Op, block_kinds};
use quire_layout::{Corrupt, Ino, Structure, orphan_file};
use std::collections::HashSet;

/// What [`process_orphans`] has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct OrphanReport {
    /// Inodes without links that were freed.
    pub deleted: u64,
    /// Files whose truncate was ended.
    pub truncated: u64,
}

/// After a mount: finds all orphans, and frees or truncates them, unless the volume is read-only.
///
/// # Errors
/// A corrupt list or orphan file (N2); I/O. Finished work stays.
pub(crate) fn process_orphans(engine: &Engine) -> Result<OrphanReport> {
    let mut report = OrphanReport::default();
    if engine.write_gate.check().is_err() {
        return Ok(report);
    }
    let list = read_list(engine)?;
    let slots = read_file(engine, &list)?;
    let found: Vec<Ino> = list.iter().chain(&slots).map(|(ino, _)| *ino).collect();
    let changes = list.into_iter().chain(slots).map(|(ino, p)| (ino, Some(p))).collect();
    engine.tables().orphans.apply(changes);
    for ino in found {
        if engine.run(|op| Ok(records::inode(op, ino)?.links() == 0))? {
            free_together(engine, &[ino])?;
            report.deleted += 1;
        } else {
            finish_truncate(engine, ino)?;
            report.truncated += 1;
        }
    }
    Ok(report)
}

/// The list on disk, from its head.
pub(super) fn read_list(engine: &Engine) -> Result<Vec<(Ino, OrphanPlace)>> {
    let bad = |why, ino: Ino| Corrupt::new(Structure::OrphanList, why).of(ino.0);
    let mut next = engine.run(|op| Ok(records::superblock(op)?.last_orphan()))?;
    let (mut list, mut seen, mut prev) = (Vec::new(), HashSet::new(), None);
    while next != Ino(0) {
        if !seen.insert(next) {
            return Err(bad("goes in a circle", next).into());
        }
        list.push((next, OrphanPlace::List { prev }));
        prev = Some(next);
        next = engine.run(|op| {
            check_orphan(op, next, Structure::OrphanList)?;
            Ok(Ino(records::inode(op, next)?.dtime()))
        })?;
    }
    Ok(list)
}

/// The slots in use of the orphan file.
fn read_file(engine: &Engine, list: &[(Ino, OrphanPlace)]) -> Result<Vec<(Ino, OrphanPlace)>> {
    let Some(file) = engine.run(orphan::file)? else { return Ok(Vec::new()) };
    let (mut slots, mut room) = (Vec::new(), None);
    for (n, blocks) in (0..).zip(file.blocks.chunks(ORPHAN_BLOCKS_PER_OPERATION)) {
        let (used, free) = engine.run(|op| {
            op.want(blocks.iter().copied())?;
            let bytes = op.sb().block_size().bytes();
            let (mut out, mut free) = (Vec::new(), None);
            for (i, block) in (n * ORPHAN_BLOCKS_PER_OPERATION..).zip(blocks.iter().copied()) {
                let image = op.block(block, block_kinds::ORPHANS, |b| orphan_file::check(b, block, file.seed))?;
                let used = (0..orphan_file::slots(bytes)).map(|n| (orphan_file::slot(&image[..bytes], n), n));
                let place = |slot| OrphanPlace::File { block, slot };
                out.extend(used.filter(|(i, _)| *i != Ino(0)).map(|(i, slot)| (i, place(slot))));
                free = free.or(orphan_file::free_slot(&image[..bytes]).map(|_| i));
            }
            Ok((out, free))
        })?;
        slots.extend(used);
        room = room.or(free);
    }
    engine.tables().orphans.block_with_room = room.unwrap_or(0);
    let mut seen: HashSet<Ino> = list.iter().map(|(ino, _)| *ino).collect();
    for (ino, _) in &slots {
        if !seen.insert(*ino) {
            return Err(Corrupt::new(Structure::OrphanFile, "names an inode twice").of(ino.0).into());
        }
        engine.run(|op| check_orphan(op, *ino, Structure::OrphanFile))?;
    }
    Ok(slots)
}

/// Refuses a recorded inode that is not in use or must not be freed.
fn check_orphan(op: &mut Op<'_>, ino: Ino, structure: Structure) -> Result<()> {
    let sb = op.sb();
    let reserved = ino < sb.first_ino() || ino == sb.orphan_file_ino();
    if reserved || ino.0 > sb.inodes_count() {
        return Err(Corrupt::new(structure, "names an inode that cannot be an orphan").of(ino.0).into());
    }
    if !space::inode_is_used(op, ino)? {
        return Err(Corrupt::new(structure, "names a free inode").of(ino.0).into());
    }
    Ok(())
}
