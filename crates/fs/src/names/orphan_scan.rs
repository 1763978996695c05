//! The orphans that the last mount left: found, and freed or truncated.
//!
//! *Guarantees* N2 (docs/invariants.md): a corrupt list or orphan file is a typed error; a cycle ends the walk. Finding
//! writes nothing, so that a mount can do it before it marks the image as in use. An orphan that is itself damaged, or
//! cannot be read, stays recorded, and the others are finished.

use super::evict::{finish_truncate, free};
use super::orphan;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::policy::ORPHAN_BLOCKS_PER_OPERATION;
use crate::records;
use crate::space;
use crate::tables::OrphanPlace;
use crate::txn::{Op, block_kinds};
use quire_layout::superblock::is_special;
use quire_layout::{Corrupt, Ino, Structure, orphan_file};
use std::collections::HashSet;

/// What [`finish_orphans`] has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct OrphanReport {
    /// Inodes without links that were freed.
    pub deleted: u64,
    /// Files whose truncate was ended.
    pub truncated: u64,
}

/// The orphans on disk, each with the place of its record.
pub(crate) struct Orphans(Vec<(Ino, OrphanPlace)>);

/// Finds all orphans. Writes nothing.
///
/// # Errors
/// A corrupt list or orphan file (N2); I/O.
pub(crate) fn find_orphans(engine: &Engine) -> Result<Orphans> {
    let mut found = read_list(engine)?;
    let slots = read_file(engine, &found)?;
    found.extend(slots);
    Ok(Orphans(found))
}

/// Frees or truncates the orphans that [`find_orphans`] has found. One that is damaged or cannot be read is left as it
/// is.
///
/// # Errors
/// An aborted journal. Finished work stays.
pub(crate) fn finish_orphans(engine: &Engine, found: &Orphans) -> Result<OrphanReport> {
    let changes = found.0.iter().map(|(ino, place)| (*ino, Some(*place))).collect();
    engine.tables().orphans.apply(changes);
    let mut report = OrphanReport::default();
    for (ino, _) in &found.0 {
        match finish_orphan(engine, *ino) {
            Ok(true) => report.deleted += 1,
            Ok(false) => report.truncated += 1,
            // The error is in the superblock already, unless it is of file data, and the record of the inode is whole.
            Err(error) if error.is_damage() && engine.journal.failure().is_none() => {
                tracing::error!(%ino, %error, "a deleted or truncated file is left");
            }
            // What `errors=` says about the damage of the one before.
            Err(Error::ReadOnly(_)) if engine.journal.failure().is_none() => break,
            Err(e) => return Err(e),
        }
    }
    Ok(report)
}

/// True if the inode was freed, false if its truncate was finished.
fn finish_orphan(engine: &Engine, ino: Ino) -> Result<bool> {
    if engine.run(|op| Ok(records::inode(op, ino)?.links() == 0))? {
        free(engine, ino)?;
        return Ok(true);
    }
    finish_truncate(engine, ino)?;
    Ok(false)
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
    let mut slots = Vec::new();
    for blocks in file.blocks.chunks(ORPHAN_BLOCKS_PER_OPERATION) {
        let used = engine.run(|op| {
            op.want(blocks.iter().copied())?;
            let bytes = op.sb().block_size().bytes();
            let mut out = Vec::new();
            for block in blocks.iter().copied() {
                let image = op.block(block, block_kinds::ORPHANS, |b| orphan_file::check(b, block, file.seed))?;
                let used = (0..orphan_file::slots(bytes)).map(|n| (orphan_file::slot(&image[..bytes], n), n));
                let place = |slot| OrphanPlace::File { block, slot };
                out.extend(used.filter(|(i, _)| *i != Ino(0)).map(|(i, slot)| (i, place(slot))));
            }
            Ok(out)
        })?;
        slots.extend(used);
    }
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
    if ino == Ino::ROOT || is_special(sb, ino) || ino.0 > sb.inodes_count() {
        return Err(Corrupt::new(structure, "names an inode that cannot be an orphan").of(ino.0).into());
    }
    if !space::inode_is_used(op, ino)? {
        return Err(Corrupt::new(structure, "names a free inode").of(ino.0).into());
    }
    Ok(())
}
