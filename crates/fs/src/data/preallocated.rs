//! Writes into space that was allocated beforehand, on a disk that is full.
//!
//! A write to a part of an unwritten extent cuts the extent, which may take a block of the tree. Where there is none,
//! the whole extent becomes written, with zeros around the write, because that takes no entry. So space that was
//! allocated can be written to, as with ext4 (`EXT4_EXT_MAY_ZEROOUT`). As there, blocks behind the end of the file stay
//! unwritten, because e2fsck takes written ones for damage.
//!
//! ```text
//! file lock, no other user ─> zeros on the device, complete ─> operation: the extent is written, durable after them
//! ```
//! *Guarantees*: F29. Q5: a crash leaves the extent unwritten, or written with zeros. F9: a block whose record is live
//! in the log gets its zeros there.
//!
//! *Relies on*: no batch, reader or direct write is under way (F2), because its data lies in blocks that are zeroed.

use super::blocks::{Request, runs};
use super::context::Data;
use super::pages::FileState;
use super::writeback::or_after_writeback;
use crate::error::{Error, Result};
use crate::inode::live;
use crate::map::{self, Mapping};
use crate::records;
use crate::space::Run;
use crate::txn::Op;
use quire_device::sync::{Arc, lock};
use quire_device::{Buf, Io, Region};
use quire_layout::extent::Extent;
use quire_layout::{BlockNo, FileBlock, Ino};

/// Does what may find no space to write these bytes, as [`or_after_writeback`]; then once more with the unwritten
/// extents made written. `append`: the bytes go to the end of the file.
///
/// # Errors
/// Of the last attempt; I/O.
pub(super) fn or_in_written<T>(
    d: &Data,
    ino: Ino,
    requests: &[Request<'_>],
    append: bool,
    mut attempt: impl FnMut() -> Result<T>,
) -> Result<T> {
    match or_after_writeback(d, &mut attempt) {
        Err(Error::NoSpace) => match make_written(d, ino, requests, append) {
            Ok(true) => attempt(),
            // The extent has more blocks in the log than one transaction holds; it stays unwritten.
            Ok(false) | Err(Error::Journal(quire_journal::Error::TooLarge { .. })) => Err(Error::NoSpace),
            Err(e) => Err(e),
        },
        done => done,
    }
}

/// Makes the unwritten extents written in which these requests lie, as far as the file reaches. False, and nothing has
/// changed, if there are none, or if blocks are missing.
fn make_written(d: &Data, ino: Ino, requests: &[Request<'_>], append: bool) -> Result<bool> {
    let file = d.files.get(ino);
    let s = file.exclusive();
    let found = d.engine.run(|op| {
        let mut found = Vec::new();
        for r in requests {
            match unwritten_below(op, ino, &s, *r, append)? {
                Some(more) => found.extend(more),
                None => return Ok(Vec::new()),
            }
        }
        // Two requests may lie in one extent.
        found.dedup();
        Ok(found)
    })?;
    found.iter().try_for_each(|e| zero_extent(d, ino, e))?;
    Ok(!found.is_empty())
}

/// The unwritten extents below a request, up to the end of the file on disk; `None`: a block of it is missing.
fn unwritten_below(
    op: &mut Op<'_>,
    ino: Ino,
    s: &FileState,
    r: Request<'_>,
    append: bool,
) -> Result<Option<Vec<Extent>>> {
    let inode = live(op, ino)?;
    let bs = op.sb().block_size();
    let at = if append { s.size.unwrap_or(inode.size()) } else { r.at };
    let end = at.saturating_add(r.data.len() as u64);
    let (Some(first), Some(last)) = (bs.file_block(at), bs.file_block(end.saturating_sub(1))) else { return Ok(None) };
    if !inode.uses_extents() || end == at {
        return Ok(None);
    }
    let map = runs(op, ino, &inode, first, last.plus(1))?;
    let is_missing = |at: FileBlock, run: &Mapping| {
        matches!(run, Mapping::Hole { .. }) && (0..run.len()).any(|n| s.page(at.plus(n)).is_none())
    };
    if map.iter().any(|(at, run)| is_missing(*at, run)) {
        return Ok(None);
    }
    let end_of_file = FileBlock(u32::try_from(bs.blocks_for(inode.size())).unwrap_or(u32::MAX));
    let below = map::extents(op, ino, &inode, first, map.len())?;
    let unwritten = below.into_iter().filter(|e| e.unwritten && e.at <= last);
    Ok(Some(unwritten.filter_map(|e| e.part(e.at, end_of_file)).collect()))
}

/// Zeroes the blocks of an unwritten extent, or of its part in the file, and makes them written.
fn zero_extent(d: &Data, ino: Ino, e: &Extent) -> Result<()> {
    let (journal, bs) = (&d.engine.journal, d.block_size());
    let gate = journal.gate();
    let (live, in_place) = d.engine.run(|op| {
        let (live, in_place) = by_way(op, e);
        // An earlier owner of a block may have left an image in memory.
        in_place.iter().for_each(|run| op.forget(run.start, run.len));
        Ok((live, in_place))
    })?;
    let zero = |run: &Run| {
        let len = u64::from(run.len) << bs.bits();
        Io::Zero { at: bs.offset(run.start), len, region: Region::Data }
    };
    let zeroed = gate.device().run(in_place.iter().map(zero).collect());
    journal.written_in_place(in_place.iter().map(|run| (run.start, run.len)));
    zeroed?;
    let epoch = gate.stamp();
    d.files.written(ino, epoch);
    lock(&d.files.clean).drop_range(ino, e.at, e.end());
    let zeros = Arc::new(Buf::zeroed(bs.bytes()));
    d.engine.run(|op| {
        op.after_data(epoch);
        live.iter().try_for_each(|b| op.block_put(*b, zeros.clone()))?;
        let mut inode = records::inode(op, ino)?;
        map::convert_written(op, ino, &mut inode, e.at, e.len)?;
        records::put_inode(op, ino, &mut inode)?;
        records::note_change(op, ino, true);
        Ok(())
    })
}

/// The blocks of an extent whose records are live in the log, and the runs of the others.
fn by_way(op: &Op<'_>, e: &Extent) -> (Vec<BlockNo>, Vec<Run>) {
    let (mut live, mut in_place): (Vec<BlockNo>, Vec<Run>) = (Vec::new(), Vec::new());
    for b in (0..u64::from(e.len)).map(|n| e.phys.plus(n)) {
        match in_place.last_mut() {
            _ if op.is_journaled(b) => live.push(b),
            Some(run) if run.end() == b => run.len += 1,
            _ => in_place.push(Run::new(b, 1)),
        }
    }
    (live, in_place)
}
