//! Space for what the writeback of pages takes: blocks for their data, and blocks of the file's map.
//!
//! *Guarantees* F13 (docs/invariants.md): a page without a block has a reservation, and so has what its file's map may
//! need for it, so that its writeback does not run out of space.

use super::context::Data;
use super::pages::{FileState, MapChange};
use crate::error::{Error, Result};
use crate::map::{self, Mapping};
use crate::records;
use crate::space::Reservation;
use quire_layout::inode::Inode;
use quire_layout::{BlockSize, FileBlock, Ino, indirect};
use std::collections::{BTreeMap, BTreeSet};

/// The pointer blocks on the way to blocks of an indirect map for which nothing is reserved yet.
pub(super) fn pointers_of(
    bs: BlockSize,
    inode: &Inode,
    s: &FileState,
    without_block: impl Iterator<Item = FileBlock>,
) -> BTreeSet<Vec<usize>> {
    let mut out = BTreeSet::new();
    if inode.uses_extents() {
        return out;
    }
    for path in without_block.filter_map(|b| indirect::path(bs, b)) {
        let slots = path.slots();
        let new = (1..slots.len()).map(|n| &slots[..n]).filter(|way| !s.has_pointers(way));
        out.extend(new.map(<[usize]>::to_vec));
    }
    out
}

/// The nodes that an extent tree may need, besides those that are reserved, when it gets so many extents more than what
/// is pending brings. The pages, batches and direct writes of a file count together, because each may find the nodes
/// full that another has filled.
pub(super) fn tree_of(bs: BlockSize, inode: &Inode, s: &FileState, entries: u64) -> u64 {
    if entries == 0 {
        return 0;
    }
    map::tree_blocks(bs, inode, s.entries() + entries).saturating_sub(s.tree())
}

/// After a batch that failed: those of its pages that changed meanwhile, and still have no block, get reservations of
/// the `reserved` blocks that the batch has left. Returns how many they take.
///
/// # Errors
/// Corrupt block map; I/O; read-only. No space: it has left too few.
pub(super) fn keep_reserved(
    d: &Data,
    ino: Ino,
    s: &mut FileState,
    collected: &[FileBlock],
    reserved: Reservation,
) -> Result<Reservation> {
    let has_changed = |b: &&FileBlock| s.page(**b).is_some_and(|p| p.dirty && p.change == MapChange::None);
    let changed: Vec<FileBlock> = collected.iter().filter(has_changed).copied().collect();
    if changed.is_empty() {
        return Ok(Reservation::default());
    }
    let (changes, pointers, tree) = d.engine.run(|op| {
        let inode = records::inode(op, ino)?;
        let mut changes = BTreeMap::new();
        for b in &changed {
            match map::lookup(op, ino, &inode, *b, 1)? {
                Mapping::Hole { .. } => changes.insert(*b, MapChange::Insert),
                Mapping::Mapped { unwritten: true, .. } => changes.insert(*b, MapChange::Convert { first: true }),
                Mapping::Mapped { .. } => None,
            };
        }
        let bs = op.sb().block_size();
        let entries = changes.values().map(|c| c.entries()).sum();
        let pointers = pointers_of(bs, &inode, s, without_block(&changes));
        Ok((changes, pointers, tree_of(bs, &inode, s, entries)))
    })?;
    // Each of these pages, and each pointer block above them, had one of these blocks when it was collected, unless the
    // map could not be read after an earlier batch.
    let data = without_block(&changes).count() as u64;
    let for_pointers = pointers.len() as u64;
    if data > reserved.data || for_pointers > reserved.map {
        return Err(Error::NoSpace);
    }
    // A part of the batch may be in the tree by now. The estimate is then higher than what is left, which is enough.
    let tree = tree.min(reserved.map - for_pointers);
    changes.iter().for_each(|(b, change)| s.change_again(*b, *change));
    s.add_map(pointers, tree);
    Ok(Reservation { data, map: for_pointers + tree })
}

/// Those of the blocks that have none on disk.
pub(super) fn without_block(changes: &BTreeMap<FileBlock, MapChange>) -> impl Iterator<Item = FileBlock> {
    changes.iter().filter(|(_, change)| **change == MapChange::Insert).map(|(b, _)| *b)
}
