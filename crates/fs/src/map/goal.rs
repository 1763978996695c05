//! Where the blocks of a file are best placed.

use super::lookup::lookup;
use super::mapping::Mapping;
use super::tree;
use crate::error::Result;
use crate::policy::MIN_LONG_FILE_BLOCKS;
use crate::space::{self, Goal};
use crate::txn::Op;
use quire_layout::features::incompat;
use quire_layout::inode::Inode;
use quire_layout::{BlockNo, FileBlock, GroupNo, Ino};

/// The disk block at which `want` blocks of a file from `at` on are best placed: behind the blocks that precede them in
/// the file, else before those that follow, else where the inode's group has room, or where long runs go.
///
/// # Errors
/// Corrupt map; miss.
pub(crate) fn goal(op: &mut Op<'_>, ino: Ino, inode: &Inode, at: FileBlock, want: u32) -> Result<Goal> {
    let long = at.0.saturating_add(want) >= MIN_LONG_FILE_BLOCKS;
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
    goal(space::start(op, home(op, ino), long))
}

/// The group where a new file near this inode starts: in the flex group of the inode. In large flex groups the first
/// group is left to directories.
fn home(op: &Op<'_>, ino: Ino) -> GroupNo {
    let sb = op.sb();
    let own = (ino.0.max(1) - 1) / sb.inodes_per_group();
    let flex = if sb.features().has_incompat(incompat::FLEX_BG) { sb.flex_bg_size().clamp(1, 1 << 16) } else { 1 };
    let first = if flex > 1 { own / flex * flex } else { own };
    GroupNo(if flex >= 4 && first + 1 < sb.group_count() { first + 1 } else { first })
}
