//! Changing a file's size.
//!
//! *Guarantees* (docs/invariants.md):
//! - F3: what a file grows over reads as zeros;
//! - F10: earlier data is complete, and its metadata in a transaction no later than the new size's;
//! - N1: a truncate of several operations is recorded as an orphan from its first to its last;
//! - N8: a truncate whose first operation fails has changed nothing, pages that wait for writeback included. (With the
//!   kernel the file has its new size then, and blocks behind it, which show their bytes when the file grows.)

use super::checks::{check_change, touch};
use super::context::Data;
use super::inline::cut_from_inode;
use super::pages::FileState;
use super::settle::{drop_behind, put_back, settle_pages, take_behind};
use super::steps::{Found, in_steps};
use super::zero::{forget_clean, zero_behind};
use crate::error::{Error, Result};
use crate::map;
use crate::names::{begin_cut, end_cut};
use crate::records;
use crate::tables::Pool;
use crate::txn::Op;
use quire_layout::inode::Inode;
use quire_layout::{FileBlock, Ino};

/// Sets the size of a file. What it grows over reads as zeros; what it loses is freed, and so is what lies behind the
/// end when the size is the old one: blocks that were allocated beforehand. Returns true if the inode asks for that to
/// be durable when the call returns (N10).
///
/// # Errors
/// Too large; no space (a file in its inode); immutable or append-only; not a regular file; stale; corrupt; I/O;
/// read-only.
pub(crate) fn truncate(d: &Data, ino: Ino, size: u64) -> Result<bool> {
    d.engine.write_gate.check()?;
    cut_from_inode(d, Pool::User, ino, size)?;
    let file = d.files.get(ino);
    let mut s = file.exclusive();
    let (found, cuts) = d.engine.run(|op| {
        let (found, inode) = Found::look(op, ino, &s)?;
        check_change(&inode, true, false)?;
        let cuts = size < found.size || size == found.size && has_blocks_behind(op, ino, &inode, size)?;
        Ok((found, cuts))
    })?;
    if size > found.max {
        return Err(Error::TooLarge);
    }
    if cuts {
        shrink(d, ino, &mut s, &found, size)?
    } else {
        grow(d, ino, &mut s, &found, size)?
    }
    if size == 0 && d.files.emptied(ino) {
        // The tables' lock before that of the files, as in an operation.
        let tables = d.engine.tables();
        d.files.prune_emptied(|ino| tables.refs.contains_key(ino));
    }
    Ok(found.sync)
}

fn has_blocks_behind(op: &mut Op<'_>, ino: Ino, inode: &Inode, size: u64) -> Result<bool> {
    let bs = op.sb().block_size();
    let Ok(from) = u32::try_from(bs.blocks_for(size)) else { return Ok(false) };
    Ok(!map::extents(op, ino, inode, FileBlock(from), 1)?.is_empty())
}

fn grow(d: &Data, ino: Ino, s: &mut FileState, found: &Found, size: u64) -> Result<()> {
    if !found.journaled {
        zero_behind(d, ino, s, found.size)?;
    }
    settle_pages(d, ino, s)?;
    forget_clean(d, ino, found.size);
    d.engine.run(|op| {
        let mut inode = records::inode(op, ino)?;
        if found.journaled {
            map::zero_tail(op, ino, &inode, size)?;
        }
        inode.set_size(size);
        touch(op, &mut inode);
        records::put_inode(op, ino, &mut inode)
    })?;
    // The inode has the size now; a size that an earlier shrink left pending is void.
    s.size = None;
    Ok(())
}

fn shrink(d: &Data, ino: Ino, s: &mut FileState, found: &Found, size: u64) -> Result<()> {
    let from = FileBlock(u32::try_from(d.block_size().blocks_for(size)).map_err(|_| Error::TooLarge)?);
    if d.whole_requests() && s.has_pages_before(from) {
        // Pages behind the new end may belong to a request whose other part stays (F16).
        settle_pages(d, ino, s)?;
    }
    let pending_size = s.size;
    let behind = take_behind(d, ino, s, from);
    s.size = (size > found.disk_size).then_some(size);
    let budget = d.engine.step_budget();
    let cut = settle_pages(d, ino, s).and_then(|()| cut_off(d, ino, (size, from), budget));
    let whole = match cut {
        Ok(whole) => whole,
        Err(e) => {
            s.size = pending_size;
            put_back(d, ino, s, behind);
            return Err(e);
        }
    };
    drop_behind(d, &behind);
    s.size = None;
    if whole { Ok(()) } else { end_shrink(d, ino, from) }
}

/// The first operation of a truncate: the file has its new size, zeros behind it in its last block, and the blocks from
/// `from` on are unmapped. False if that takes more than one operation; the file is then recorded as an orphan (N1).
///
/// The zeros go through the log whatever the file's data does. In place before the size is durable they would be a
/// change of a truncate that may fail (N8); later, a crash would leave older bytes behind the end for another
/// implementation to show.
pub(super) fn cut_off(d: &Data, ino: Ino, (size, from): (u64, FileBlock), budget: usize) -> Result<bool> {
    forget_clean(d, ino, size);
    d.engine.run(|op| {
        let mut inode = records::inode(op, ino)?;
        map::clear_tail(op, ino, &inode, size)?;
        inode.set_size(size);
        touch(op, &mut inode);
        let whole = map::remove_all(op, ino, &mut inode, from, budget)?.next.is_none();
        if whole {
            end_cut(op, ino, &mut inode)?
        } else {
            begin_cut(op, ino, &mut inode)?
        }
        records::put_inode(op, ino, &mut inode)?;
        Ok(whole)
    })
}

/// Unmaps the rest of the blocks behind a file's new end, operation by operation.
pub(super) fn end_shrink(d: &Data, ino: Ino, from: FileBlock) -> Result<()> {
    let budget = d.engine.step_budget();
    in_steps(d, Pool::User, from, |op, from| {
        let mut inode = records::inode(op, ino)?;
        let whole = map::remove_all(op, ino, &mut inode, from, budget)?.next.is_none();
        if whole {
            end_cut(op, ino, &mut inode)?;
        }
        records::put_inode(op, ino, &mut inode)?;
        Ok((!whole).then_some(from))
    })
}
