//! Large writes of whole blocks go straight to the device, out of the caller's memory: no pages, no second copy.
//!
//! ```text
//! file lock ─> plan: an operation chooses blocks ─> registered, unlocked ─> device ─> record: an operation ─> done
//! ```
//! It is a round of its own over blocks that have no pages: F8 and F9 hold as they do there. Guarantees F19: while such a write is under way,
//! nobody else makes pages of its blocks, writes them back or changes their mapping: who wants to write there waits, and who changes the
//! map waits for it as for a reader (F2). Where requests are whole, only requests whose blocks are all new go this way: they become durable
//! in one operation, after their data (F16). What does not fit goes by way of pages.

use super::read::check_file;
use super::round::{Piece, Taken, To, claim_hole, goes_to_log};
use super::state::{File, Times};
use super::write::{Request, WriteFlags, check_change, is_journaled_file, lose_privileges, max_size, runs};
use crate::alloc;
use crate::error::{Error, Result};
use crate::flags::is_sync;
use crate::map::Mapping;
use crate::namei::live;
use crate::op::Op;
use crate::volume::Volume;
use quire_device::Region;
use quire_device::sync::{Arc, lock};
use quire_layout::Ino;

/// Where the blocks of a request go.
struct Plan {
    pieces: Vec<Piece>,
    /// The file's size afterwards, if it grows.
    size: Option<u64>,
    /// The inode says that it is always written through.
    sync: bool,
}

impl Volume {
    /// Writes a request directly, if it can be; else nothing has happened. Returns how many bytes, and whether the inode wants them durable.
    pub(super) fn write_direct(
        &self,
        file: &Arc<File>,
        r: Request<'_>,
        flags: WriteFlags,
    ) -> Result<Option<(usize, bool)>> {
        let bs = self.inner.sb.block_size();
        let whole = |n: u64| n.is_multiple_of(bs.bytes64());
        let len = r.data.len();
        if len < self.inner.options.direct_bytes || flags.append || !whole(r.at) || !whole(len as u64) {
            return Ok(None);
        }
        // While commits come often, what the kernel sends of a stream waits for its turn in pages: what comes behind it does not.
        if flags.from_cache && self.commits_often() {
            return Ok(None);
        }
        let (Some(first), Some(last)) = (bs.file_block(r.at), bs.file_block(r.at + len as u64 - 1)) else {
            return Ok(None);
        };
        if last.plus(1).0 - first.0 <= u32::try_from(self.inner.ride_blocks()).unwrap_or(u32::MAX) {
            return Ok(None);
        }
        // Some pages would keep a whole stream of requests from going this way. What fails is told to an fsync.
        let pending = file.lock().has_pages();
        if pending && self.write_back(file.ino, false, 0).is_err() {
            return Ok(None);
        }
        // A freeze waits for rounds; none begins that would have to wait for its thaw.
        let round = self.inner.files.begin_round();
        if *lock(&self.inner.frozen) {
            return Ok(None);
        }
        let Some((registered, mut s)) = file.try_direct(first..last.plus(1)) else { return Ok(None) };
        let Some(plan) = self.run_in_round(|op| plan(op, file.ino, r, flags))? else {
            drop(s);
            return Ok(None);
        };
        let mut clean = lock(&self.inner.files.clean);
        clean.drop_range(file.ino, first, last.plus(1));
        drop(clean);
        if !flags.from_cache {
            let now = self.inner.now();
            s.times = Some(Times { mtime: now, ctime: now });
            self.inner.files.queue(file.ino, &mut s, self.inner.clock.monotonic());
        }
        drop(s);
        let sync = plan.sync;
        self.transfer_direct(file.ino, r, plan)?;
        drop((registered, round));
        Ok(Some((len, sync)))
    }

    /// Data, then what names it.
    fn transfer_direct(&self, ino: Ino, r: Request<'_>, plan: Plan) -> Result<()> {
        let bs = self.inner.sb.block_size();
        let gate = self.inner.journal.gate();
        let begun = self.inner.clock.monotonic();
        let written = plan.pieces.iter().try_for_each(|p| {
            let data = &r.data[p.first * bs.bytes()..(p.first + p.len) * bs.bytes()];
            gate.device().write_from(bs.offset(p.to.start()), data, Region::Data)
        });
        self.inner.pace.wrote(r.data.len() as u64, self.inner.clock.monotonic().saturating_sub(begun));
        self.inner.journal.written_in_place(plan.pieces.iter().map(|p| (p.to.start(), p.blocks())));
        let stamp = gate.stamp();
        self.inner.files.written(ino, stamp);
        let mut taken = [Taken::direct(ino, plan.pieces, plan.size, written.map(|()| stamp).map_err(Error::from))];
        self.record(&mut taken);
        let [taken] = taken;
        match taken.into_error() {
            Some(e) => {
                self.data_failed(ino, &e);
                Err(e)
            }
            None => Ok(()),
        }
    }
}

/// Checks that the write may be, and chooses its blocks. `None` if it has to go another way.
fn plan(op: &mut Op<'_>, ino: Ino, r: Request<'_>, flags: WriteFlags) -> Result<Option<Plan>> {
    let mut inode = live(op, ino)?;
    check_file(&inode)?;
    let (size, end) = (inode.size(), r.at + r.data.len() as u64);
    check_change(&inode, r.at < size, flags.from_cache)?;
    let bs = op.sb().block_size();
    let block = |at: u64| bs.file_block(at).ok_or(Error::TooLarge);
    // A file that grows behind a block that is not full needs zeros there.
    let gap = !size.is_multiple_of(bs.bytes64()) && size < r.at;
    let journaled = is_journaled_file(op, ino, &inode)? || op.vol.write_threshold().is_some_and(|t| t > bs.bytes64());
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
    alloc::reserve(op, new, op.pool())?;
    let (mut pieces, mut first, mut next_goal) = (Vec::new(), 0, None);
    for (mut at, run) in map {
        let mut left = run.len();
        while left > 0 {
            let (to, len) = match run {
                Mapping::Mapped { phys, unwritten: false, .. } => (To::Written(phys), left),
                Mapping::Mapped { phys, unwritten: true, .. } => (To::Unwritten(phys), left),
                Mapping::Hole { .. } => claim_hole(op, ino, &inode, at, left, &mut next_goal)?,
            };
            op.forget(to.start(), len);
            let count = usize::try_from(len).expect("a request is small");
            pieces.push(Piece { at, first, len: count, to, logged: false, rides: false });
            (first, at, left) = (first + count, at.plus(len), left - len);
        }
    }
    alloc::unreserve(op, new);
    Ok(Some(Plan { pieces, size: (end > size).then_some(end), sync: is_sync(&inode) }))
}

/// True if a run of blocks may be written in place.
fn goes(op: &Op<'_>, run: &Mapping) -> bool {
    match run {
        Mapping::Hole { .. } => true,
        Mapping::Mapped { phys, len, unwritten } => {
            (0..u64::from(*len)).all(|n| !goes_to_log(op, phys.plus(n), *unwritten))
        }
    }
}
