//! Reading the map.

use super::mapping::Mapping;
use super::rules::max_blocks;
use super::{indirect, tree};
use crate::error::Result;
use crate::txn::Op;
use quire_layout::extent::Extent;
use quire_layout::inode::Inode;
use quire_layout::{FileBlock, Ino};

/// The place of file block `at`, and how many blocks go on like it: at least one, at most `max`.
///
/// # Errors
/// Corrupt map; miss.
pub(crate) fn lookup(op: &mut Op<'_>, ino: Ino, inode: &Inode, at: FileBlock, max: u32) -> Result<Mapping> {
    let max = max.max(1);
    if u64::from(at.0) >= max_blocks(op.sb(), inode.uses_extents()) {
        return Ok(Mapping::Hole { len: max });
    }
    if !inode.uses_extents() {
        return indirect::lookup(op, ino, inode, at, max);
    }
    let path = tree::descend(op, ino, inode, at)?;
    if let Some(rest) = path.extent.and_then(|e| e.part(at, FileBlock(at.0.saturating_add(max)))) {
        return Ok(Mapping::Mapped { phys: rest.phys, len: rest.len, unwritten: rest.unwritten });
    }
    let len = path.next_start().map_or(max, |next| max.min(next.0 - at.0));
    Ok(Mapping::Hole { len })
}

/// The mapped runs from `from` on, in order, at most `limit`; FIEMAP, SEEK_HOLE and SEEK_DATA use them. A run that
/// begins before `from` comes whole (extents), or from `from` on (indirect maps).
///
/// # Errors
/// Corrupt map; miss.
pub(crate) fn extents(op: &mut Op<'_>, ino: Ino, inode: &Inode, from: FileBlock, limit: usize) -> Result<Vec<Extent>> {
    if !inode.uses_extents() {
        return indirect::extents(op, ino, inode, from, limit);
    }
    let mut out: Vec<Extent> = Vec::new();
    let mut at = from;
    while out.len() < limit {
        let path = tree::descend(op, ino, inode, at)?;
        let (slot, block) = (path.slot.unwrap_or(0), path.leaf().block);
        let room = limit - out.len();
        let found: Vec<Extent> = tree::view(op, ino, inode, block, |n| {
            (slot..n.entries()).map(|i| n.extent(i)).filter(|e| e.end() > at).take(room).collect()
        })?;
        out.extend(found);
        match path.next_leaf {
            Some(next) => at = next,
            None => break,
        }
    }
    Ok(out)
}
