//! Space for pages that have no block yet.
//!
//! *Guarantees* F13 (docs/invariants.md): a page without a block has a reservation, so that its writeback does not run
//! out of space.

use super::context::Data;
use super::pages::FileState;
use crate::error::{Error, Result};
use crate::map::{self, Mapping};
use crate::records;
use quire_layout::inode::Inode;
use quire_layout::{BlockSize, FileBlock, Ino, indirect};
use std::collections::{BTreeSet, HashSet};

/// The pointer blocks on the way to blocks of an indirect map for which nothing is reserved yet. An extent tree has
/// none.
pub(super) fn pointers_of(
    bs: BlockSize,
    inode: &Inode,
    s: &FileState,
    unmapped: &HashSet<FileBlock>,
) -> BTreeSet<Vec<usize>> {
    let mut out = BTreeSet::new();
    if inode.uses_extents() {
        return out;
    }
    for path in unmapped.iter().filter_map(|b| indirect::path(bs, *b)) {
        let slots = path.slots();
        let new = (1..slots.len()).map(|n| &slots[..n]).filter(|way| !s.has_pointers(way));
        out.extend(new.map(<[usize]>::to_vec));
    }
    out
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
    reserved: u64,
) -> Result<u64> {
    let is_bare = |b: &&FileBlock| s.page(**b).is_some_and(|p| p.dirty && !p.reserved);
    let changed: Vec<FileBlock> = collected.iter().filter(is_bare).copied().collect();
    if changed.is_empty() {
        return Ok(0);
    }
    let (unmapped, pointers) = d.engine.run(|op| {
        let inode = records::inode(op, ino)?;
        let mut unmapped = HashSet::new();
        for b in &changed {
            if let Mapping::Hole { .. } = map::lookup(op, ino, &inode, *b, 1)? {
                unmapped.insert(*b);
            }
        }
        let pointers = pointers_of(op.sb().block_size(), &inode, s, &unmapped);
        Ok((unmapped, pointers))
    })?;
    // Each of these pages, and each pointer block above them, had one of these blocks when it was collected, unless the
    // map could not be read after an earlier batch.
    let wanted = (unmapped.len() + pointers.len()) as u64;
    if wanted > reserved {
        return Err(Error::NoSpace);
    }
    unmapped.iter().for_each(|b| s.reserve_page(*b));
    s.add_pointers(pointers);
    Ok(wanted)
}
