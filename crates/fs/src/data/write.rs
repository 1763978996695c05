//! Writing: bytes go into pages; writeback chooses blocks later (delayed allocation).
//!
//! ```text
//! file lock ─> operation: where is what, reserve what has no block ─> read the edges ─> pages, size, times ─> unlock
//!           ─> limit the writer
//! ```
//! *Guarantees* (docs/invariants.md):
//! - F3: when the file grows, the bytes between its old end and the new ones are zero, whatever the old last block
//!   held;
//! - F13: a page without a block has a reservation, so that its writeback does not run out of space.
//!
//! A request of at most [`Data::request_bytes`] is done under one lock, so that appends do not mix. Files whose data is
//! journaled go through [`super::journaled`], large requests through [`super::direct`].

use super::blocks::{Base, Request, base_of, blocks_of, load_base, runs};
use super::checks::{check_change, check_file, lose_privileges, max_size};
use super::context::Data;
use super::direct::write_direct;
use super::file::File;
use super::flags::{WriteDone, WriteFlags};
use super::fsync::fsync;
use super::inline::leave_inode;
use super::journaled::write_journaled;
use super::pages::{FileState, MapChange, Times};
use super::preallocated::or_in_written;
use super::reservations::{pointers_of, tree_of, without_block};
use super::writeback::{limit_writer, unreserve, write_back};
use crate::error::{Error, Result};
use crate::inode::flags::is_sync;
use crate::inode::journaling_mode::is_journaled_file;
use crate::inode::live;
use crate::map::{self, Mapping};
use crate::space::{self, Reservation};
use crate::tables::Pool;
use crate::txn::Op;
use quire_cache::Image;
use quire_device::sync::{Arc, MutexGuard, lock};
use quire_device::{Buf, Mutant};
use quire_layout::inode::Inode;
use quire_layout::{BlockSize, FileBlock, Ino};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

/// What a write finds and reserves.
struct Plan {
    at: u64,
    len: usize,
    /// The file's size before.
    size: u64,
    journaled: bool,
    /// The inode asks for durable writes.
    sync: bool,
    /// File blocks without a page whose writeback changes the map; what that takes is reserved.
    changes: BTreeMap<FileBlock, MapChange>,
    /// Blocks without a page whose update sequence is journaled (`selective`).
    logged: HashSet<FileBlock>,
    /// Pointer blocks that the map may need for these; the write has reserved one for each.
    pointers: BTreeSet<Vec<usize>>,
    /// Nodes that an extent tree may need, as many as the write has reserved.
    tree: u64,
    /// Blocks without a page that are written in part.
    edges: Vec<(FileBlock, Base)>,
    /// The last block of a file that grows behind it, if that block has no page.
    tail: Option<(FileBlock, Base)>,
}

impl Plan {
    /// What the write has reserved.
    fn reserved(&self) -> Reservation {
        let data = without_block(&self.changes).count() as u64;
        Reservation { data, map: self.pointers.len() as u64 + self.tree }
    }
}

/// Writes to a file at `offset`, on the account `pool`; returns how many bytes. Fewer than all were written only if an
/// error stopped the write after some, or the file can grow no more.
///
/// # Errors
/// No space; too large; immutable or append-only; stale; corrupt block map; I/O; read-only.
pub(crate) fn write(d: &Data, pool: Pool, ino: Ino, offset: u64, data: &[u8], flags: WriteFlags) -> Result<usize> {
    Ok(write_parts(d, pool, ino, offset, data, flags)?.0)
}

/// As [`write`], at the end of the file; returns how many bytes and where the last of them ends.
///
/// # Errors
/// As [`write`].
pub(crate) fn append(d: &Data, pool: Pool, ino: Ino, data: &[u8], flags: WriteFlags) -> Result<(usize, u64)> {
    write_parts(d, pool, ino, 0, data, WriteFlags { append: true, ..flags })
}

/// How many bytes were written, and where the last of them ends; 0 if there are none.
fn write_parts(d: &Data, pool: Pool, ino: Ino, offset: u64, data: &[u8], flags: WriteFlags) -> Result<(usize, u64)> {
    let (mut done, mut end) = (0, 0);
    let mut through = flags.sync;
    while done < data.len() {
        let part = &data[done..data.len().min(done + d.request_bytes())];
        let at = offset.checked_add(done as u64).ok_or(Error::TooLarge)?;
        let r = Request { at, data: part };
        match or_in_written(d, ino, &[r], flags.append, || write_part(d, pool, ino, r, flags)) {
            Ok(w) => {
                done += w.bytes;
                end = w.end;
                through |= w.sync;
            }
            Err(e) if done == 0 => return Err(e),
            Err(_) => break,
        }
        limit_writer(d, ino);
    }
    if done > 0 && (through || flags.dsync) && !flags.caller_syncs {
        fsync(d, ino, !through)?;
    }
    Ok((done, end))
}

/// Writes one request.
fn write_part(d: &Data, pool: Pool, ino: Ino, r: Request<'_>, flags: WriteFlags) -> Result<WriteDone> {
    d.engine.write_gate.check()?;
    leave_inode(d, pool, ino)?;
    let file = d.files.get(ino);
    if let Some(done) = write_direct(d, pool, &file, r, flags)? {
        return Ok(done);
    }
    let mut s = lock_after_direct(d, &file, r, flags)?;
    let plan = d.engine.run_as(pool, |op| plan(op, ino, &s, r, flags))?.0;
    let r = Request { at: plan.at, data: &r.data[..plan.len] };
    if plan.journaled {
        drop(s);
        let end = write_journaled(d, pool, &file, r, flags)?;
        return Ok(WriteDone { bytes: r.data.len(), end, sync: plan.sync });
    }
    if let Err(e) = write_pages(d, ino, &mut s, r, &plan) {
        unreserve(d, plan.reserved());
        return Err(e);
    }
    s.add_map(plan.pointers, plan.tree);
    if r.end() > plan.size {
        s.size = Some(r.end());
    }
    if !flags.keep_times {
        let now = d.engine.now();
        s.times = Some(Times { mtime: now, ctime: now });
    }
    d.files.queue(ino, &mut s, d.engine.clock.monotonic());
    Ok(WriteDone { bytes: r.data.len(), end: r.end(), sync: plan.sync })
}

/// Locks a file for a write of `len` bytes. Where requests are whole, the file's pages that overwrite data, with those
/// of this request, take at most half a transaction (F16). Pages beyond that are written back first.
fn lock_with_room<'f>(d: &Data, file: &'f File, len: usize) -> Result<MutexGuard<'f, FileState>> {
    let most = d.engine.journal.limit() / 2;
    let more = len / d.block_size().bytes() + 2;
    loop {
        let s = file.lock();
        // A request alone always fits, because it takes at most half.
        if !d.whole_requests() || s.overwrites() == 0 || s.overwrites() + more <= most {
            return Ok(s);
        }
        drop(s);
        write_back(d, file.ino, false, 0)?;
    }
}

/// Locks a file for a request when no direct write is in its way (F19): none of the blocks that it may touch, and none
/// at all where it may change the size. A direct write that ends meanwhile sets the size, too, which a pending one
/// hides.
fn lock_after_direct<'f>(
    d: &Data,
    file: &'f File,
    r: Request<'_>,
    flags: WriteFlags,
) -> Result<MutexGuard<'f, FileState>> {
    let s = lock_with_room(d, file, r.data.len())?;
    let s = file.after_direct(s, &blocks_around(d.block_size(), r, flags));
    if !s.has_direct() || Mutant::GrowthBesideDirect.is_on() {
        return Ok(s);
    }
    // A direct write is only begun while no size is pending.
    let size = d.engine.run(|op| Ok(live(op, file.ino)?.size()))?;
    Ok(if r.end() > size { file.after_direct(s, &ALL) } else { s })
}

/// All blocks of a file.
const ALL: Range<FileBlock> = FileBlock(0)..FileBlock(u32::MAX);

/// The blocks that a request may touch.
fn blocks_around(bs: BlockSize, r: Request<'_>, flags: WriteFlags) -> Range<FileBlock> {
    let block = |at: u64| bs.file_block(at).unwrap_or(FileBlock(u32::MAX - 1));
    let end = block(r.at.saturating_add(r.data.len() as u64)).plus(1);
    // An append begins at an end that is not known yet. Any write may zero the block of the old end.
    if flags.append { ALL } else { FileBlock(0)..end }
}

/// Puts bytes into pages. An error leaves everything as it was.
fn write_pages(d: &Data, ino: Ino, s: &mut FileState, r: Request<'_>, plan: &Plan) -> Result<()> {
    let mut edges = BTreeMap::new();
    for (b, base) in &plan.edges {
        edges.insert(*b, load_base(d, ino, *b, base, plan.size)?.0);
    }
    let tail = match &plan.tail {
        Some((b, base)) => Some((*b, load_base(d, ino, *b, base, plan.size)?)),
        None => None,
    };
    let mut added = 0;
    let mut clean = lock(&d.files.clean);
    for (b, range, bytes) in blocks_of(d.block_size(), r) {
        clean.take(ino, b);
        if let Some(image) = s.page_mut(b) {
            Arc::make_mut(image)[range].copy_from_slice(bytes);
            continue;
        }
        let image = match edges.remove(&b) {
            Some(mut image) => {
                Arc::make_mut(&mut image)[range].copy_from_slice(bytes);
                image
            }
            None => Arc::new(Buf::copy_of(bytes)),
        };
        s.add_page(b, image, plan.changes.get(&b).copied().unwrap_or(MapChange::None));
        if plan.logged.contains(&b) {
            s.log_page(b);
        }
        added += 1;
    }
    if let Some((b, (image, true))) = tail {
        s.add_page(b, image, MapChange::None);
        // Zeros behind the old end are an update of less than a block.
        if d.engine.context.route.write_threshold().is_some() {
            s.log_page(b);
        }
        added += 1;
    }
    drop(clean);
    d.files.count_pages(added);
    Ok(())
}

/// Checks that the write is allowed, finds what it needs, and reserves space for blocks that have none.
fn plan(op: &mut Op<'_>, ino: Ino, s: &FileState, r: Request<'_>, flags: WriteFlags) -> Result<Plan> {
    let mut inode = live(op, ino)?;
    check_file(&inode)?;
    let size = s.size.unwrap_or(inode.size());
    let at = if flags.append { size } else { r.at };
    check_change(&inode, at < size, flags.deferred)?;
    let max = max_size(op, &inode);
    if at >= max {
        return Err(Error::TooLarge);
    }
    let len = usize::try_from(max - at).unwrap_or(usize::MAX).min(r.data.len());
    let mut plan = Plan {
        at,
        len,
        size,
        journaled: is_journaled_file(op, ino, &inode)?,
        sync: is_sync(&inode),
        changes: BTreeMap::new(),
        logged: HashSet::new(),
        pointers: BTreeSet::new(),
        tree: 0,
        edges: Vec::new(),
        tail: None,
    };
    if plan.journaled {
        return Ok(plan);
    }
    lose_privileges(op, ino, &mut inode, flags.privileges)?;
    let bs = op.sb().block_size();
    let first = bs.file_block(at).ok_or(Error::TooLarge)?;
    find_blocks(op, ino, &inode, s, Request { at, data: &r.data[..len] }, &mut plan)?;
    let behind =
        bs.file_block(size).filter(|b| !size.is_multiple_of(bs.bytes64()) && *b < first && s.page(*b).is_none());
    if let Some(b) = behind {
        let run = map::lookup(op, ino, &inode, b, 1)?;
        plan.tail = run.written().map(|_| (b, base_of(op, &run, 0)));
    }
    plan.pointers = pointers_of(bs, &inode, s, without_block(&plan.changes));
    plan.tree = tree_of(bs, &inode, s, plan.changes.values().map(|c| c.entries()).sum());
    // Pages beyond that would be lost by their writeback.
    if !plan.changes.is_empty() && !map::can_count(op, &inode, s.pages() + plan.changes.len()) {
        return Err(Error::TooLarge);
    }
    // Also where enough is reserved for the map: nodes that batches have taken since are no longer free.
    if !plan.changes.is_empty() {
        space::reserve(op, plan.reserved(), op.pool())?;
    }
    Ok(plan)
}

/// Finds where the blocks of a request are that have no page, and for which of them the map must change.
fn find_blocks(op: &mut Op<'_>, ino: Ino, inode: &Inode, s: &FileState, r: Request<'_>, plan: &mut Plan) -> Result<()> {
    let bs = op.sb().block_size();
    let block = |at: u64| bs.file_block(at).ok_or(Error::TooLarge);
    let (first, last) = (block(r.at)?, block(r.end() - 1)?);
    for (b, run) in runs(op, ino, inode, first, last.plus(1))? {
        for n in (0..run.len()).filter(|n| s.page(b.plus(*n)).is_none()) {
            let b = b.plus(n);
            match run {
                Mapping::Hole { .. } => drop(plan.changes.insert(b, MapChange::Insert)),
                Mapping::Mapped { unwritten: true, .. } => {
                    let first = !is_converted_before(s, &plan.changes, b);
                    plan.changes.insert(b, MapChange::Convert { first });
                }
                Mapping::Mapped { .. } => {}
            }
            let start = u64::from(b.0) << bs.bits();
            let (from, to) = (r.at.max(start), r.end().min(start + bs.bytes64()));
            let index = |n: u64| usize::try_from(n - r.at).expect("inside the request");
            let bytes = &r.data[index(from)..index(to)];
            if is_logged(op, &run, n, bytes) {
                plan.logged.insert(b);
            }
            if from > start || to < start + bs.bytes64() {
                plan.edges.push((b, base_of(op, &run, n)));
            }
        }
    }
    Ok(())
}

/// True if the page before this block goes to an unwritten block, too: both are of one run.
fn is_converted_before(s: &FileState, changes: &BTreeMap<FileBlock, MapChange>, b: FileBlock) -> bool {
    let Some(before) = b.0.checked_sub(1).map(FileBlock) else { return false };
    let change = changes.get(&before).copied().or_else(|| s.page(before).map(|p| p.change));
    matches!(change, Some(MapChange::Convert { .. }))
}

/// F17: true if an update of a block with these bytes begins or continues a journaled sequence (`policy::RoutePolicy`).
/// What a cache above wrote as a whole block counts by the bytes that differ from what the block held, where that is in
/// memory.
fn is_logged(op: &mut Op<'_>, run: &Mapping, n: u32, bytes: &[u8]) -> bool {
    let Some(threshold) = op.context.route.write_threshold() else { return false };
    let (block, live) = match run {
        Mapping::Mapped { phys, .. } => (phys.plus(u64::from(n)), op.is_journaled(phys.plus(u64::from(n)))),
        Mapping::Hole { .. } => return (bytes.len() as u64) < threshold,
    };
    if live && !Mutant::SequenceEndsEarly.is_on() || (bytes.len() as u64) < threshold {
        return true;
    }
    let whole = bytes.len() == op.context.block_size().bytes();
    let base = run.written().filter(|_| whole).and_then(|_| op.block_in_memory(block));
    let differ = |base: &Image| base.iter().zip(bytes).filter(|(a, b)| a != b).count() as u64;
    base.is_some_and(|base| differ(&base) < threshold)
}
