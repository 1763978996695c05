//! Reading the map.

use super::{indirect, max_blocks, tree};
use crate::alloc::{self, Goal};
use crate::error::Result;
use crate::op::Op;
use quire_layout::extent::Extent;
use quire_layout::features::incompat;
use quire_layout::inode::Inode;
use quire_layout::{BlockNo, FileBlock, GroupNo, Ino};

/// Where a run of file blocks is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mapping {
    /// Nowhere: reads as zeros. More of the hole may follow.
    Hole { len: u32 },
    /// On disk; if `unwritten`, it reads as zeros all the same.
    Mapped { phys: BlockNo, len: u32, unwritten: bool },
}

impl Mapping {
    /// File blocks that this speaks of, at least one.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u32 {
        match self {
            Mapping::Hole { len } | Mapping::Mapped { len, .. } => *len,
        }
    }

    /// The disk block of the first file block, if data is to be read from it.
    #[must_use]
    pub fn written(&self) -> Option<BlockNo> {
        match self {
            Mapping::Mapped { phys, unwritten: false, .. } => Some(*phys),
            _ => None,
        }
    }
}

/// Where file block `at` is, and how many of the next (at most `max`, at least one) go on like it.
///
/// # Errors
/// Corrupt map; miss.
pub fn lookup(op: &mut Op<'_>, ino: Ino, inode: &Inode, at: FileBlock, max: u32) -> Result<Mapping> {
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

/// The mapped runs from `from` on, in order, at most `limit`: what FIEMAP, SEEK_HOLE and SEEK_DATA are made from. A run that
/// begins before `from` comes whole (extents), or from `from` on (indirect maps).
///
/// # Errors
/// Corrupt map; miss.
pub fn extents(op: &mut Op<'_>, ino: Ino, inode: &Inode, from: FileBlock, limit: usize) -> Result<Vec<Extent>> {
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

/// Blocks from which on a file is large.
const LONG: u32 = 16;

/// The disk block at which `want` blocks of a file from `at` on are best put: after what comes before them in the file, else before what
/// follows, else where the inode's group has room, or where long runs go.
///
/// # Errors
/// Corrupt map; miss.
pub fn goal(op: &mut Op<'_>, ino: Ino, inode: &Inode, at: FileBlock, want: u32) -> Result<Goal> {
    let long = at.0.saturating_add(want) >= LONG;
    let goal = |at| Ok(Goal { at, long });
    if inode.uses_extents() {
        let path = tree::descend(op, ino, inode, at)?;
        if let Some(e) = path.extent {
            return goal(e.phys.plus(u64::from(at.0 - e.at.0)));
        }
        if let Some(e) = path.after {
            return goal(BlockNo(e.phys.0.saturating_sub(u64::from(e.at.0 - at.0))));
        }
    } else if at.0 > 0
        && let Mapping::Mapped { phys, .. } = lookup(op, ino, inode, FileBlock(at.0 - 1), 1)?
    {
        return goal(phys.plus(1));
    }
    goal(alloc::start(op, home(op, ino), long))
}

/// Where a new file near this inode starts: in the flex group of the inode. In large flex groups the first group is left to
/// directories.
fn home(op: &Op<'_>, ino: Ino) -> GroupNo {
    let sb = op.sb();
    let own = (ino.0.max(1) - 1) / sb.inodes_per_group();
    let flex = if sb.features().has_incompat(incompat::FLEX_BG) { sb.flex_bg_size().clamp(1, 1 << 16) } else { 1 };
    let first = if flex > 1 { own / flex * flex } else { own };
    GroupNo(if flex >= 4 && first + 1 < sb.group_count() { first + 1 } else { first })
}
