//! Large writes of whole blocks go straight from the caller's memory to the device: no pages, no second copy.
//!
//! ```text
//! file lock ─> plan: an operation chooses blocks ─> registered, unlocked ─> device ─> record: an operation ─> done
//! ```
//! A direct write is a batch of its own over blocks that have no pages; F8 and F9 hold as for other batches.
//!
//! *Guarantees* F19: while a direct write is under way, no other caller makes pages of its blocks, writes them back or
//! changes their mapping. A writer of the same blocks waits, and a caller that changes the map waits for it as for a
//! reader (F2). Where requests are whole, only requests whose blocks are all new go this way. They become durable in
//! one operation, after their data (F16). Other requests go through pages.

use super::blocks::{Request, runs};
use super::checks::{check_change, check_file, lose_privileges, max_size};
use super::context::Data;
use super::failure::data_failed;
use super::file::File;
use super::flags::{WriteDone, WriteFlags};
use super::pages::{FileState, Times};
use super::writeback::{Collected, Destination, Piece, claim_hole, must_be_journaled, record, unreserve, write_back};
use crate::error::{Error, Result};
use crate::inode::flags::is_sync;
use crate::inode::journaling_mode::is_journaled_file;
use crate::inode::live;
use crate::map::{Mapping, can_count, tree_blocks};
use crate::space::{self, Reservation};
use crate::tables::Pool;
use crate::txn::Op;
use quire_device::Region;
use quire_device::sync::{Arc, lock};
use quire_layout::Ino;

/// Where the blocks of a request go.
struct Plan {
    pieces: Vec<Piece>,
    /// The file's size afterwards, if it grows.
    size: Option<u64>,
    /// The inode asks for durable writes.
    sync: bool,
    /// Nodes that the extent tree may need; they are reserved until the blocks are in it.
    tree: u64,
}

/// Writes a request directly, if it can go this way; `None`: nothing has happened.
///
/// # Errors
/// As `write`.
pub(super) fn write_direct(
    d: &Data,
    pool: Pool,
    file: &Arc<File>,
    r: Request<'_>,
    flags: WriteFlags,
) -> Result<Option<WriteDone>> {
    let bs = d.block_size();
    let whole = |n: u64| n.is_multiple_of(bs.bytes64());
    let len = r.data.len();
    if len < d.engine.context.options.direct_bytes || flags.append || !whole(r.at) || !whole(len as u64) {
        return Ok(None);
    }
    // While commits are frequent, the requests of a stream wait in pages: the requests behind them, of which one may be
    // what a caller syncs, do not wait for the device then.
    if flags.deferred && !d.without().streams_in_pages && d.commits_are_frequent() {
        return Ok(None);
    }
    let (Some(first), Some(last)) = (bs.file_block(r.at), bs.file_block(r.at + len as u64 - 1)) else {
        return Ok(None);
    };
    if last.plus(1).0 - first.0 <= u32::try_from(d.log_limit()).unwrap_or(u32::MAX) {
        return Ok(None);
    }
    // A few pages would keep a whole stream of requests from going this way. An fsync returns the error of a failure.
    let pending = file.lock().has_pages();
    if pending && write_back(d, file.ino, false, 0).is_err() {
        return Ok(None);
    }
    let batch = d.files.begin_batch();
    let Some((registered, mut s)) = file.try_direct(first..last.plus(1)) else { return Ok(None) };
    let Some(plan) = d.engine.run_as(pool, |op| plan(op, file.ino, &s, r, flags))?.0 else {
        drop(s);
        return Ok(None);
    };
    let mut clean = lock(&d.files.clean);
    clean.drop_range(file.ino, first, last.plus(1));
    drop(clean);
    if !flags.keep_times {
        let now = d.engine.now();
        s.times = Some(Times { mtime: now, ctime: now });
        d.files.queue(file.ino, &mut s, d.engine.clock.monotonic());
    }
    drop(s);
    let sync = plan.sync;
    write_and_record(d, file.ino, r, plan)?;
    drop((registered, batch));
    Ok(Some(WriteDone { bytes: len, end: r.end(), sync }))
}

/// Writes the data, then records what names it.
fn write_and_record(d: &Data, ino: Ino, r: Request<'_>, plan: Plan) -> Result<()> {
    let bs = d.block_size();
    let journal = &d.engine.journal;
    let gate = journal.gate();
    let begun = d.engine.clock.monotonic();
    let written = plan.pieces.iter().try_for_each(|p| {
        let data = &r.data[p.first * bs.bytes()..(p.first + p.len) * bs.bytes()];
        gate.device().write_from(bs.offset(p.to.start()), data, Region::Data)
    });
    d.pace.wrote(r.data.len() as u64, d.engine.clock.monotonic().saturating_sub(begun));
    journal.written_in_place(plan.pieces.iter().map(|p| (p.to.start(), p.blocks())));
    let epoch = gate.stamp();
    d.files.written(ino, epoch);
    let written = written.map(|()| epoch).map_err(Error::from);
    let mut collected = [Collected::direct(ino, plan.pieces, plan.size, written)];
    record(d, &mut collected);
    unreserve(d, Reservation { data: 0, map: plan.tree });
    let [collected] = collected;
    match collected.into_error() {
        Some(e) => {
            data_failed(d, ino, &e);
            Err(e)
        }
        None => Ok(()),
    }
}

/// Checks that the write is allowed, and chooses its blocks. `None`: it has to go another way.
fn plan(op: &mut Op<'_>, ino: Ino, s: &FileState, r: Request<'_>, flags: WriteFlags) -> Result<Option<Plan>> {
    let mut inode = live(op, ino)?;
    check_file(&inode)?;
    let (size, end) = (inode.size(), r.at + r.data.len() as u64);
    check_change(&inode, r.at < size, flags.deferred)?;
    let bs = op.sb().block_size();
    let block = |at: u64| bs.file_block(at).ok_or(Error::TooLarge);
    // A file that grows behind a block that is not full needs zeros there.
    let gap = !size.is_multiple_of(bs.bytes64()) && size < r.at;
    let journaled =
        is_journaled_file(op, ino, &inode)? || op.context.route.write_threshold().is_some_and(|t| t > bs.bytes64());
    if end > max_size(op, &inode) || journaled || !inode.uses_extents() || gap {
        return Ok(None);
    }
    let map = runs(op, ino, &inode, block(r.at)?, block(end - 1)?.plus(1))?;
    if !map.iter().all(|(_, run)| goes(op, run)) {
        return Ok(None);
    }
    lose_privileges(op, ino, &mut inode, flags.privileges)?;
    let holes = map.iter().filter_map(|(_, run)| if let Mapping::Hole { len } = run { Some(*len) } else { None });
    let new: u64 = holes.map(u64::from).sum();
    let changes_map = map.iter().any(|(_, run)| run.written().is_none());
    if changes_map && !can_count(op, &inode, r.data.len() >> bs.bits()) {
        return Ok(None);
    }
    let mut tree = 0;
    if changes_map {
        // What is registered as under way counts this request.
        tree = tree_blocks(bs, &inode, s.entries());
        space::reserve(op, Reservation { data: new, map: tree }, op.pool())?;
    }
    let (mut pieces, mut first, mut next_goal) = (Vec::new(), 0, None);
    for (mut at, run) in map {
        let mut left = run.len();
        while left > 0 {
            let (to, len) = match run {
                Mapping::Mapped { phys, unwritten: false, .. } => (Destination::Written(phys), left),
                Mapping::Mapped { phys, unwritten: true, .. } => (Destination::Unwritten(phys), left),
                Mapping::Hole { .. } => claim_hole(op, ino, &inode, at, left, &mut next_goal)?,
            };
            op.forget(to.start(), len);
            let count = usize::try_from(len).expect("a request is small");
            pieces.push(Piece { at, first, len: count, to, journaled: false, new_data: false });
            (first, at, left) = (first + count, at.plus(len), left - len);
        }
    }
    space::unreserve(op, Reservation::data(new));
    Ok(Some(Plan { pieces, size: (end > size).then_some(end), sync: is_sync(&inode), tree }))
}

/// True if a run of blocks may be written in place.
fn goes(op: &Op<'_>, run: &Mapping) -> bool {
    match run {
        Mapping::Hole { .. } => true,
        Mapping::Mapped { phys, len, unwritten } => {
            (0..u64::from(*len)).all(|n| !must_be_journaled(op, phys.plus(n), *unwritten))
        }
    }
}
