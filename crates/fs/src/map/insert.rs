//! Adding to the map, and changing mapped blocks between written and unwritten.

use super::goal::goal;
use super::rules::{below, charge, checked_end};
use super::{extents, indirect};
use crate::error::{Error, Result};
use crate::space::{self, Pool, Request};
use crate::txn::Op;
use quire_layout::extent::Extent;
use quire_layout::inode::Inode;
use quire_layout::{BlockNo, FileBlock, Ino};

/// Maps `len` file blocks from `at` on, where nothing is mapped, to disk blocks that are already marked as used.
///
/// # Errors
/// Too large; not supported (unwritten, in an indirect map); no space for blocks of the tree; corrupt; miss.
pub(crate) fn insert(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &mut Inode,
    at: FileBlock,
    phys: BlockNo,
    len: u32,
    unwritten: bool,
) -> Result<()> {
    checked_end(op.sb().block_size(), inode.uses_extents(), at, len)?;
    if len == 0 {
        return Ok(());
    }
    charge(op, ino, inode, i64::from(len))?;
    if inode.uses_extents() {
        return extents::insert_run(op, ino, inode, Extent { at, len, phys, unwritten });
    }
    if unwritten {
        return Err(Error::NotSupported("unwritten blocks in an indirect map"));
    }
    indirect::insert(op, ino, inode, at, phys, len)
}

/// Allocates up to `n` blocks for file blocks from `at` on, where nothing is mapped, and maps them as written, for
/// directories and journaled data. Returns the first disk block and the number of blocks, at least one.
///
/// # Errors
/// As [`insert`] and [`space::alloc_blocks`].
pub(crate) fn allocate(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &mut Inode,
    at: FileBlock,
    n: u32,
    pool: Pool,
) -> Result<(BlockNo, u32)> {
    checked_end(op.sb().block_size(), inode.uses_extents(), at, n)?;
    let goal = goal(op, ino, inode, at, n)?;
    let run = space::alloc_with(op, &Request { below: below(inode), ..Request::new(goal, n, pool) })?;
    insert(op, ino, inode, at, run.start, run.len, false)?;
    Ok((run.start, run.len))
}

/// Makes mapped blocks written: their data is durable before this operation's transaction. Holes stay.
///
/// # Errors
/// No space for blocks of the tree; corrupt; miss.
pub(crate) fn convert_written(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, at: FileBlock, len: u32) -> Result<()> {
    set_kind(op, ino, inode, at, len, false)
}

/// Makes mapped blocks unwritten: they read as zeros from now on. Holes stay.
///
/// # Errors
/// As [`convert_written`]; not supported for indirect maps.
pub(crate) fn mark_unwritten(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, at: FileBlock, len: u32) -> Result<()> {
    if !inode.uses_extents() {
        return Err(Error::NotSupported("unwritten blocks in an indirect map"));
    }
    set_kind(op, ino, inode, at, len, true)
}

fn set_kind(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, at: FileBlock, len: u32, unwritten: bool) -> Result<()> {
    let end = checked_end(op.sb().block_size(), inode.uses_extents(), at, len)?;
    if inode.uses_extents() { extents::set_kind(op, ino, inode, at, end, unwritten) } else { Ok(()) }
}
