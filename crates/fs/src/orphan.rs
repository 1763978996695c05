//! Orphans: inodes without links that are still in use, and files whose truncate has not ended. After a crash, what is
//! recorded here is freed, or truncated to its size, by [`Volume::process_orphans`].
//!
//! ```text
//! list:  superblock.s_last_orphan -> inode.i_dtime -> inode.i_dtime -> ... -> 0
//! file:  slots of inode numbers in the blocks of the orphan file (feature orphan_file); when full, the list
//! ```
//! Guarantees (docs/invariants.md):
//! - N1: the operation that takes an inode's last link, or begins a truncate of several operations, records the inode;
//!   the operation that frees it, or ends the truncate, takes it off. So a crash leaves neither leak nor ghost;
//! - N2: a broken list or file is a typed error; a cycle ends the walk.
//!
//! Where each orphan is recorded is kept in memory (`Orphans`), so that one in the middle of the list is taken off
//! without a walk.

#[cfg(test)]
mod tests;

use crate::alloc;
use crate::error::Result;
use crate::kinds;
use crate::map::{self, Mapping};
use crate::op::Op;
use crate::volume::Volume;
use quire_device::Mutant;
use quire_device::sync::{Arc, lock};
use quire_layout::features::compat;
use quire_layout::inode::Inode;
use quire_layout::number_map::NumberMap;
use quire_layout::{BlockNo, Corrupt, FileBlock, Ino, Structure, orphan_file};
use std::collections::HashSet;

/// Where an orphan is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// In the list; `prev` leads to it, or the superblock does.
    List { prev: Option<Ino> },
    /// In the orphan file.
    File { block: BlockNo, slot: usize },
}

/// The orphan file's blocks; they never move.
struct OrphanFile {
    blocks: Vec<BlockNo>,
    /// Seed of its blocks' checksums.
    seed: Option<u32>,
}

/// All orphans. Guarded by the metadata mutex; changed when an operation succeeds.
#[derive(Default)]
pub(crate) struct Orphans {
    places: NumberMap<Ino, Place>,
    file: Option<Arc<OrphanFile>>,
    /// Slots in use.
    used: usize,
    /// Index of the block that last had a free slot. A hint.
    room: usize,
}

impl Orphans {
    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.places.contains_key(&ino)
    }

    /// All orphans, in the order of their numbers.
    pub(crate) fn all(&self) -> Vec<Ino> {
        let mut all: Vec<Ino> = self.places.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// True if no slot of the orphan file is in use: then `orphan_present` may be cleared.
    pub(crate) fn file_is_empty(&self) -> bool {
        self.used == 0
    }

    /// Applies the changes of an operation, in their order.
    pub(crate) fn apply(&mut self, changes: Vec<(Ino, Option<Place>)>) {
        for (ino, place) in changes {
            let is_slot = |p: &Place| matches!(p, Place::File { .. });
            let old = match place {
                Some(p) => {
                    self.used += usize::from(is_slot(&p));
                    self.places.insert(ino, p)
                }
                None => self.places.remove(&ino),
            };
            self.used -= usize::from(old.as_ref().is_some_and(is_slot));
        }
    }
}

/// Where an inode is recorded, as this operation has left it.
fn place(op: &Op<'_>, ino: Ino) -> Option<Place> {
    match op.deferred.orphans.iter().rev().find(|(i, _)| *i == ino) {
        Some((_, place)) => *place,
        None => op.state().orphans.places.get(&ino).copied(),
    }
}

/// True if an inode is recorded as an orphan.
pub(crate) fn is_orphan(op: &Op<'_>, ino: Ino) -> bool {
    place(op, ino).is_some()
}

/// How an inode is going to be recorded. What that takes has been read.
#[derive(Clone, Copy)]
pub(crate) enum Plan {
    /// It is already.
    Recorded,
    List {
        head: Ino,
    },
    File {
        block: BlockNo,
        slot: usize,
        seed: Option<u32>,
    },
}

/// Records an inode as an orphan, if it is not yet, and writes its record (N1).
///
/// # Errors
/// Miss; corrupt; read-only.
pub(crate) fn add(op: &mut Op<'_>, ino: Ino, inode: &mut Inode) -> Result<()> {
    let plan = plan(op, ino)?;
    carry_out(op, ino, inode, plan)
}

/// Finds the place for the record of an inode, for [`carry_out`] in the same operation.
///
/// # Errors
/// Miss; corrupt; read-only.
pub(crate) fn plan(op: &mut Op<'_>, ino: Ino) -> Result<Plan> {
    if is_orphan(op, ino) || Mutant::OrphanForgotten.is_on() {
        return Ok(Plan::Recorded);
    }
    match free_slot(op)? {
        Some(slot) => Ok(slot),
        None => Ok(Plan::List { head: op.superblock_mut()?.last_orphan() }),
    }
}

/// As [`add`], as planned; whatever this needs is in memory, and the inode's record was read before.
///
/// # Errors
/// Read-only.
pub(crate) fn carry_out(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, plan: Plan) -> Result<()> {
    match plan {
        Plan::Recorded => {}
        Plan::File { block, slot, seed } => {
            orphan_file::set_slot(op.block_mut(block)?, slot, ino);
            op.seal_orphans_later(block, seed);
            op.deferred.orphans.push((ino, Some(Place::File { block, slot })));
        }
        Plan::List { head } => {
            op.superblock_mut()?.set_last_orphan(ino);
            inode.set_dtime(head.0);
            op.deferred.orphans.push((ino, Some(Place::List { prev: None })));
            if head != Ino(0) {
                op.deferred.orphans.push((head, Some(Place::List { prev: Some(ino) })));
            }
        }
    }
    op.put_inode(ino, inode)
}

/// Takes an inode off its record, if it has one; its `i_dtime` is 0 afterwards. The caller writes the inode.
///
/// # Errors
/// Miss; corrupt; read-only.
pub(crate) fn remove(op: &mut Op<'_>, ino: Ino, inode: &mut Inode) -> Result<()> {
    match place(op, ino) {
        None => return Ok(()),
        Some(Place::File { block, slot }) => {
            let file = file(op)?.ok_or_else(|| Corrupt::new(Structure::OrphanFile, "it is gone"))?;
            op.block(block, kinds::ORPHANS, |b| orphan_file::check(b, block, file.seed))?;
            let b = op.block_mut(block)?;
            orphan_file::set_slot(b, slot, Ino(0));
            op.seal_orphans_later(block, file.seed);
        }
        Some(Place::List { prev }) => {
            let next = Ino(inode.dtime());
            match prev {
                Some(prev) => {
                    let mut before = op.inode(prev)?;
                    before.set_dtime(next.0);
                    op.put_inode(prev, &mut before)?;
                }
                None => op.superblock_mut()?.set_last_orphan(next),
            }
            if next != Ino(0) {
                op.deferred.orphans.push((next, Some(Place::List { prev })));
            }
        }
    }
    inode.set_dtime(0);
    op.deferred.orphans.push((ino, None));
    Ok(())
}

/// A free slot of the orphan file, if there is one.
fn free_slot(op: &mut Op<'_>) -> Result<Option<Plan>> {
    let Some(file) = file(op)? else { return Ok(None) };
    let all = file.blocks.len() * orphan_file::slots(op.sb().block_size().bytes());
    if op.state().orphans.used >= all {
        return Ok(None);
    }
    let first = op.state().orphans.room;
    for n in 0..file.blocks.len() {
        let n = (first + n) % file.blocks.len();
        let block = file.blocks[n];
        let image = op.block(block, kinds::ORPHANS, |b| orphan_file::check(b, block, file.seed))?;
        if let Some(slot) = orphan_file::free_slot(&image[..op.sb().block_size().bytes()]) {
            op.state_mut().orphans.room = n;
            return Ok(Some(Plan::File { block, slot, seed: file.seed }));
        }
    }
    Ok(None)
}

/// The orphan file, if the file system has one.
fn file(op: &mut Op<'_>) -> Result<Option<Arc<OrphanFile>>> {
    if !op.sb().features().has_compat(compat::ORPHAN_FILE) {
        return Ok(None);
    }
    if let Some(f) = &op.state().orphans.file {
        return Ok(Some(f.clone()));
    }
    let (ino, bs) = (op.sb().orphan_file_ino(), op.sb().block_size());
    let bad = |why| Corrupt::new(Structure::OrphanFile, why).of(ino.0);
    if ino < op.sb().first_ino() {
        return Err(bad("a reserved inode").into());
    }
    let inode = op.inode(ino)?;
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
    let seed = op.vol.inode_seed.map(|s| inode.checksum_seed(ino, s));
    let file = Arc::new(OrphanFile { blocks, seed });
    // Known once and for all, whatever becomes of this operation.
    op.state_mut().orphans.file = Some(file.clone());
    Ok(Some(file))
}

/// Blocks of the orphan file that one operation reads.
const BLOCKS_AT_ONCE: usize = 64;

/// What [`Volume::process_orphans`] has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OrphanReport {
    /// Inodes without links that were freed.
    pub deleted: u64,
    /// Files whose truncate was ended.
    pub truncated: u64,
}

impl Volume {
    /// After a mount: finds all orphans, and frees or truncates them, unless the volume is read-only.
    ///
    /// # Errors
    /// A broken list or orphan file (N2), I/O. What was done before stays done.
    pub fn process_orphans(&self) -> Result<OrphanReport> {
        let mut report = OrphanReport::default();
        if self.inner.check_writable().is_err() {
            return Ok(report);
        }
        let list = self.read_orphan_list()?;
        let slots = self.read_orphan_file(&list)?;
        let found: Vec<Ino> = list.iter().chain(&slots).map(|(ino, _)| *ino).collect();
        let changes = list.into_iter().chain(slots).map(|(ino, p)| (ino, Some(p))).collect();
        lock(&self.inner.state).orphans.apply(changes);
        for ino in found {
            if self.run(|op| Ok(op.inode(ino)?.links() == 0))? {
                self.free_unlinked(ino)?;
                report.deleted += 1;
            } else {
                self.finish_truncate(ino)?;
                report.truncated += 1;
            }
        }
        Ok(report)
    }

    /// The list on disk, from its head.
    fn read_orphan_list(&self) -> Result<Vec<(Ino, Place)>> {
        let bad = |why, ino: Ino| Corrupt::new(Structure::OrphanList, why).of(ino.0);
        let mut next = self.run(|op| Ok(op.superblock()?.last_orphan()))?;
        let (mut list, mut seen, mut prev) = (Vec::new(), HashSet::new(), None);
        while next != Ino(0) {
            if !seen.insert(next) {
                return Err(bad("goes in a circle", next).into());
            }
            list.push((next, Place::List { prev }));
            prev = Some(next);
            next = self.run(|op| {
                check_orphan(op, next, Structure::OrphanList)?;
                Ok(Ino(op.inode(next)?.dtime()))
            })?;
        }
        Ok(list)
    }

    /// The slots in use of the orphan file.
    fn read_orphan_file(&self, list: &[(Ino, Place)]) -> Result<Vec<(Ino, Place)>> {
        let Some(file) = self.run(file)? else { return Ok(Vec::new()) };
        let (mut slots, mut room) = (Vec::new(), None);
        // A piece at a time: a file may be larger than the cache.
        for (n, blocks) in (0..).zip(file.blocks.chunks(BLOCKS_AT_ONCE)) {
            let (used, free) = self.run(|op| {
                op.want(blocks.iter().copied())?;
                let bytes = op.sb().block_size().bytes();
                let (mut out, mut free) = (Vec::new(), None);
                for (i, block) in (n * BLOCKS_AT_ONCE..).zip(blocks.iter().copied()) {
                    let image = op.block(block, kinds::ORPHANS, |b| orphan_file::check(b, block, file.seed))?;
                    let used = (0..orphan_file::slots(bytes)).map(|n| (orphan_file::slot(&image[..bytes], n), n));
                    out.extend(used.filter(|(i, _)| *i != Ino(0)).map(|(i, slot)| (i, Place::File { block, slot })));
                    free = free.or(orphan_file::free_slot(&image[..bytes]).map(|_| i));
                }
                Ok((out, free))
            })?;
            slots.extend(used);
            room = room.or(free);
        }
        lock(&self.inner.state).orphans.room = room.unwrap_or(0);
        let mut seen: HashSet<Ino> = list.iter().map(|(ino, _)| *ino).collect();
        for (ino, _) in &slots {
            if !seen.insert(*ino) {
                return Err(Corrupt::new(Structure::OrphanFile, "names an inode twice").of(ino.0).into());
            }
            self.run(|op| check_orphan(op, *ino, Structure::OrphanFile))?;
        }
        Ok(slots)
    }
}

/// What is recorded must be an inode in use that may be freed.
fn check_orphan(op: &mut Op<'_>, ino: Ino, structure: Structure) -> Result<()> {
    let sb = op.sb();
    let reserved = ino < sb.first_ino() || ino == sb.orphan_file_ino();
    if reserved || ino.0 > sb.inodes_count() {
        return Err(Corrupt::new(structure, "names an inode that cannot be an orphan").of(ino.0).into());
    }
    if !alloc::inode_is_used(op, ino)? {
        return Err(Corrupt::new(structure, "names a free inode").of(ino.0).into());
    }
    Ok(())
}
