//! Adding to the map, and changing the kind of what is mapped.

use super::{charge, checked_end, extents, goal, indirect};
use crate::alloc::{self, Pool, Request};
use crate::error::{Error, Result};
use crate::op::Op;
use quire_layout::extent::Extent;
use quire_layout::inode::Inode;
use quire_layout::{BlockNo, FileBlock, Ino};

/// Maps `len` file blocks from `at` on, where nothing is mapped, to disk blocks that are already marked as used.
///
/// # Errors
/// Too large; not supported (unwritten, in an indirect map); no space for blocks of the tree; corrupt; miss.
pub fn insert(
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

/// Allocates up to `n` blocks for file blocks from `at` on, where nothing is mapped, and maps them as written: directories
/// and journaled data. Returns the first disk block and how many there are, at least one.
///
/// # Errors
/// As [`insert`] and [`alloc::alloc_blocks`].
pub fn allocate(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &mut Inode,
    at: FileBlock,
    n: u32,
    pool: Pool,
) -> Result<(BlockNo, u32)> {
    checked_end(op.sb().block_size(), inode.uses_extents(), at, n)?;
    let goal = goal(op, ino, inode, at, n)?;
    let run = alloc::alloc_with(op, &Request { below: below(inode), ..Request::new(goal, n, pool) })?;
    insert(op, ino, inode, at, run.start, run.len, false)?;
    Ok((run.start, run.len))
}

/// Disk blocks that an inode's map can point at: give it to requests for its data.
#[must_use]
pub fn below(inode: &Inode) -> BlockNo {
    BlockNo(if inode.uses_extents() { 1 << 48 } else { 1 << 32 })
}

/// Makes mapped blocks written: their data is on disk, or will be before this operation's transaction. Holes stay.
///
/// # Errors
/// No space for blocks of the tree; corrupt; miss.
pub fn convert_written(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, at: FileBlock, len: u32) -> Result<()> {
    set_kind(op, ino, inode, at, len, false)
}

/// Makes mapped blocks unwritten: they read as zeros from now on. Holes stay.
///
/// # Errors
/// As [`convert_written`]; not supported for indirect maps.
pub fn mark_unwritten(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, at: FileBlock, len: u32) -> Result<()> {
    if !inode.uses_extents() {
        return Err(Error::NotSupported("unwritten blocks in an indirect map"));
    }
    set_kind(op, ino, inode, at, len, true)
}

fn set_kind(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, at: FileBlock, len: u32, unwritten: bool) -> Result<()> {
    let end = checked_end(op.sb().block_size(), inode.uses_extents(), at, len)?;
    if inode.uses_extents() { extents::set_kind(op, ino, inode, at, end, unwritten) } else { Ok(()) }
}
