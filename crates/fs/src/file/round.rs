//! A round of write-back: dirty pages of one file or many, from memory to the transaction that names them.
//!
//! ```text
//! take      file lock      dirty pages are cloned, they count as under write-back
//! plan      an operation   pages without a block get claims; what goes to the log is told apart
//! transfer  no lock        one batch in the order of the disk; complete
//! record    operations     bitmap, extents, size, times join the running transaction
//! finish    file lock      what was not changed meanwhile is clean
//! ```
//! Guarantees (docs/invariants.md):
//! - F8: extents and size join a transaction only when the data they uncover is complete, so that the flush before the
//!   commit block makes the data durable first: nobody ever reads what a block held before;
//! - F9: a block whose record is in the log is not written in place: its page joins the transaction instead;
//! - F16: where requests are whole (`overwrite`, `auto`), what a round takes of a file is all that was written to it so far; blocks that
//!   hold data are never written in place, and their new images join one transaction with the extents and the size.
//!
//! No file's lock is needed between take and finish, but for a moment where a sweep is going to wait for a flush of others; whoever changes
//! the map under pages waits for the round (F2).

use super::state::{FileState, Times};
use super::table::FileRef;
use crate::alloc::{self, Claim, Goal, Pool, Request};
use crate::error::{Error, Result};
use crate::map::{self, Mapping};
use crate::op::Op;
use crate::volume::Volume;
use quire_cache::Image;
use quire_device::sync::lock;
use quire_device::{Epoch, Io, Mutant, Region};
use quire_layout::inode::{Inode, Time};
use quire_layout::{BlockNo, BlockSize, FileBlock, Ino};
use std::collections::BTreeSet;
use std::time::Duration;

/// Files in one operation.
const FILES: usize = 32;
/// What one operation may record: a claim or a run counts 1, a journaled block 1.
const COST: usize = 256;
/// Journaled blocks in one piece.
const LOG_RUN: u32 = 64;
/// Blocks in one device write.
const RUN: usize = 256;
/// Rounds of at most so many pages leave them in memory, clean.
const KEEP: usize = 8;

/// Where the home of a run of pages is.
pub(super) enum To {
    /// Blocks that are mapped and hold data.
    Written(BlockNo),
    /// Blocks that are mapped but unwritten.
    Unwritten(BlockNo),
    /// Blocks chosen for them.
    Claimed(Claim),
}

impl To {
    pub(super) fn start(&self) -> BlockNo {
        match self {
            To::Written(b) | To::Unwritten(b) => *b,
            To::Claimed(c) => c.run().start,
        }
    }
}

/// A run of pages that go the same way.
pub(super) struct Piece {
    pub at: FileBlock,
    /// Index of its first page, and how many.
    pub first: usize,
    pub len: usize,
    pub to: To,
    /// The pages join the transaction; otherwise they are written in place before.
    pub logged: bool,
    /// They do, though they could have been written in place.
    pub rides: bool,
}

impl Piece {
    pub(super) fn blocks(&self) -> u32 {
        u32::try_from(self.len).expect("a round is smaller")
    }

    /// True if an operation has to follow the data, or carries it.
    fn is_recorded(&self) -> bool {
        self.logged || !matches!(self.to, To::Written(_))
    }

    fn cost(&self) -> usize {
        if self.logged { self.len } else { 1 }
    }
}

/// A page as it was when a round took it.
type Taking = (FileBlock, Image);

/// A round that nobody waits for in particular: over these files, and how long it may wait for a flush of others to begin.
#[derive(Clone, Copy)]
pub(super) struct Sweep<'a> {
    pub files: &'a [FileRef<'a>],
    pub patience: Duration,
}

/// What a round took of one file.
pub(super) struct Taken {
    pub ino: Ino,
    pages: Vec<Taking>,
    /// Reserved for data: claims take its place.
    reserved: u64,
    /// Reserved for blocks of pointers: given back when the map has what it needs.
    pointers: u64,
    /// Size and times that the inode gets with these pages.
    size: Option<u64>,
    times: Option<Times>,
    pieces: Vec<Piece>,
    /// Pages of sequences that are journaled (`selective`).
    logged: BTreeSet<FileBlock>,
    /// New blocks go to the log, too, if they are at most so many.
    ride: usize,
    /// When what went in place was complete.
    written: Option<Epoch>,
    error: Option<Error>,
}

impl Taken {
    /// Blocks without pages: `written` says when they were complete, or why not.
    pub(super) fn direct(ino: Ino, pieces: Vec<Piece>, size: Option<u64>, written: Result<Epoch>) -> Self {
        let (written, error) = match written {
            Ok(stamp) => (Some(stamp), None),
            Err(e) => (None, Some(e)),
        };
        Taken { size, pieces, written, error, ..Taken::nothing(ino) }
    }

    fn nothing(ino: Ino) -> Self {
        Taken {
            ino,
            pages: Vec::new(),
            reserved: 0,
            pointers: 0,
            size: None,
            times: None,
            pieces: Vec::new(),
            logged: BTreeSet::new(),
            ride: 0,
            written: None,
            error: None,
        }
    }

    pub(super) fn into_error(self) -> Option<Error> {
        self.error
    }

    /// The page after the last that was taken.
    pub(super) fn end(&self) -> FileBlock {
        self.pages.last().map_or(FileBlock(0), |(b, _)| b.plus(1))
    }

    /// Somebody waits for the commit that this round leads to: what is cheaper with it goes to the log.
    pub(super) fn ride(mut self, blocks: usize) -> Self {
        self.ride = blocks;
        self
    }

    pub(super) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// True if an operation has to follow the data.
    fn needs_record(&self) -> bool {
        self.size.is_some() || self.times.is_some() || self.pieces.iter().any(Piece::is_recorded)
    }
}

impl Volume {
    /// Takes up to `max` dirty pages of a file from `from` on. With `times`, a round without pages is not nothing.
    pub(super) fn take(&self, ino: Ino, s: &mut FileState, from: FileBlock, max: usize, times: bool) -> Option<Taken> {
        let (from, max) = if self.inner.whole_requests() { (FileBlock(0), usize::MAX) } else { (from, max) };
        let (pages, reserved) = s.take_dirty(from, max);
        let logged = pages.iter().map(|(b, _)| *b).filter(|b| s.page(*b).is_some_and(|p| p.logged)).collect();
        let times = if times { s.times } else { None };
        let whole = !s.has_dirty_pages();
        let size = match (s.size, pages.last()) {
            (Some(size), _) if whole => Some(size),
            (Some(size), Some((last, _))) => {
                let bs = self.inner.sb.block_size();
                // Not over a page that is dirty still: it may hold the zeros behind the old end (F3).
                let end = s.first_dirty().map_or(last.plus(1), |b| b.min(last.plus(1)));
                Some(size.min(u64::from(end.0) << bs.bits()))
            }
            _ => None,
        };
        if whole && (s.times.is_none() || times.is_some()) {
            self.inner.files.unqueue(s);
        }
        let any = !pages.is_empty() || times.is_some() || (whole && size.is_some());
        let pointers = s.take_pointers();
        any.then_some(Taken { pages, reserved, pointers, size, times, logged, ..Taken::nothing(ino) })
    }

    /// Brings what was taken to the disk and into the transaction. Errors stay in what was taken. Sweeps, which nobody waits for in
    /// particular, come one after the other: pieces of two would only send a disk's head back and forth. They can wait for a flush of others.
    pub(super) fn transfer_and_record(&self, batch: &mut [Taken], sweep: Option<Sweep<'_>>) {
        batch.chunks_mut(FILES).for_each(|group| self.plan(group));
        if Mutant::SizeBeforeData.is_on() {
            batch.chunks_mut(FILES).for_each(|group| self.record(group));
            self.commit_all().ok();
            return self.transfer(batch, sweep.is_some());
        }
        self.transfer(batch, sweep.is_some());
        if let Some(sweep) = sweep.filter(|s| !s.patience.is_zero()) {
            self.await_flush(batch, &sweep);
        }
        batch.chunks_mut(FILES).for_each(|group| self.record(group));
    }

    /// Waits for a commit of others to make durable, with its own flush, what was written: if the next one named it, it would take a flush
    /// more, before it is written (Q5). Who wants one of the files does not wait for that.
    fn await_flush(&self, batch: &[Taken], sweep: &Sweep<'_>) {
        let named = batch.iter().filter(|t| t.needs_record());
        let Some(stamp) = named.filter_map(|t| t.written).max() else { return };
        if !self.inner.journal.names_cost_a_flush() {
            return;
        }
        sweep.files.iter().for_each(|file| file.await_flush());
        let is_wanted = || self.inner.files.are_rounds_wanted() || sweep.files.iter().any(|file| file.is_wanted());
        let flushed = self.inner.journal.await_flush(stamp, sweep.patience, is_wanted);
        if flushed || !is_wanted() {
            self.waited(!flushed);
        }
    }

    /// The round is over for this file: unchanged pages are clean.
    pub(super) fn finish(&self, s: &mut FileState, t: Taken) -> Result<()> {
        let files = &self.inner.files;
        let keep = t.error.is_none() && t.pages.len() <= KEEP;
        let mut gone = 0;
        for (b, image) in t.pages {
            if s.written(b) {
                gone += 1;
                if keep {
                    lock(&files.clean).insert(t.ino, b, image);
                }
            }
        }
        files.count_pages(-gone);
        self.unreserve(t.pointers);
        if s.times == t.times {
            s.times = None;
        }
        match t.error {
            None => {
                if s.size == t.size {
                    s.size = None;
                }
                Ok(())
            }
            Some(e) => {
                self.data_failed(t.ino, &e);
                Err(e)
            }
        }
    }

    /// Chooses where each page goes. The reservations become claims.
    fn plan(&self, group: &mut [Taken]) {
        match self.run_in_round(|op| group.iter().map(|t| plan_file(op, t)).collect::<Result<Vec<_>>>()) {
            Ok(plans) => {
                for (t, pieces) in group.iter_mut().zip(plans) {
                    (t.pieces, t.reserved) = (pieces, 0);
                }
            }
            Err(e) => match group {
                [t] => {
                    let reserved = std::mem::take(&mut t.reserved);
                    self.unreserve(reserved);
                    t.error = Some(e);
                }
                group => group.chunks_mut(1).for_each(|one| self.plan(one)),
            },
        }
    }

    /// Gives reserved blocks back.
    pub(super) fn unreserve(&self, blocks: u64) {
        if blocks > 0 {
            let given = self.run(|op| {
                alloc::unreserve(op, blocks);
                Ok(())
            });
            given.expect("changes no block");
        }
    }

    /// Writes all pages that go in place, merged where their blocks are neighbours, and waits.
    fn transfer(&self, batch: &mut [Taken], sweep: bool) {
        let mut runs: Vec<(BlockNo, usize, &[Taking])> = Vec::new();
        for (i, t) in batch.iter().enumerate() {
            for p in t.pieces.iter().filter(|p| !p.logged) {
                runs.push((p.to.start(), i, &t.pages[p.first..p.first + p.len]));
            }
        }
        if runs.is_empty() {
            return;
        }
        runs.sort_unstable_by_key(|(b, ..)| *b);
        let mut writes = Writes { bs: self.inner.sb.block_size(), ios: Vec::new() };
        for (b, i, pages) in &runs {
            writes.add(*b, *i, pages);
        }
        let gate = self.inner.journal.gate();
        let _sweep = sweep.then(|| lock(&self.inner.files.sweep));
        let written = self.write_pieces(&writes.ios, sweep);
        let mut failed: Vec<(usize, Error)> = Vec::new();
        for (done, ios) in written {
            if done.is_err() {
                // Which files it hit is told by each write alone.
                for (io, owners) in ios {
                    if let Err(e) = gate.device().run(vec![io.clone()]) {
                        failed.extend(owners.iter().map(|i| (*i, Error::from(e.clone()))));
                    }
                }
            }
        }
        let stamp = gate.stamp();
        let blocks = |pages: &[(FileBlock, Image)]| u32::try_from(pages.len()).expect("a round is smaller");
        self.inner.journal.written_in_place(runs.iter().map(|(b, _, pages)| (*b, blocks(pages))));
        let mut written: Vec<usize> = runs.iter().map(|(_, i, _)| *i).collect();
        written.sort_unstable();
        written.dedup();
        for i in written {
            batch[i].written = Some(stamp);
            self.inner.files.written(batch[i].ino, stamp);
        }
        for (i, e) in failed {
            batch[i].error.get_or_insert(e);
        }
    }

    /// Puts what was written into the running transaction; errors stay in what was taken.
    pub(super) fn record(&self, group: &mut [Taken]) {
        for t in group.iter_mut().filter(|t| t.error.is_some()) {
            self.drop_claims(t, 0);
        }
        let todo: Vec<&mut Taken> = group.iter_mut().filter(|t| t.error.is_none() && t.needs_record()).collect();
        if todo.iter().map(|t| t.pieces.iter().map(Piece::cost).sum::<usize>() + 1).sum::<usize>() <= COST {
            let done = self.run_in_round(|op| todo.iter().try_for_each(|t| record_file(op, t, 0, t.pieces.len())));
            if done.is_ok() {
                return;
            }
        }
        for t in todo {
            if self.inner.whole_requests() {
                self.record_whole(t);
            } else {
                self.record_in_parts(t);
            }
        }
    }

    /// One operation for one file (F16). Only if its new blocks lie in so many places that no transaction has room for the bitmaps, it
    /// takes several: those of the log first.
    fn record_whole(&self, t: &mut Taken) {
        match self.run_in_round(|op| record_file(op, t, 0, t.pieces.len())) {
            Err(Error::Journal(quire_journal::Error::TooLarge { .. })) => self.record_in_parts(t),
            Err(e) => {
                t.error = Some(e);
                self.drop_claims(t, 0);
            }
            Ok(()) => {}
        }
    }

    /// As many operations as one file takes; the size moves with the last.
    fn record_in_parts(&self, t: &mut Taken) {
        let most = COST.min(self.inner.journal.limit() / 4).max(1);
        let mut from = 0;
        while t.error.is_none() {
            let mut cost = 0;
            let mut to = from;
            while to < t.pieces.len() && (to == from || cost + t.pieces[to].cost() <= most) {
                cost += t.pieces[to].cost();
                to += 1;
            }
            if let Err(e) = self.run_in_round(|op| record_file(op, t, from, to)) {
                t.error = Some(e);
                self.drop_claims(t, from);
            }
            from = to;
            if from == t.pieces.len() {
                break;
            }
        }
    }

    fn drop_claims(&self, t: &Taken, from: usize) {
        let claims = t.pieces[from..].iter().filter_map(|p| if let To::Claimed(c) = &p.to { Some(c) } else { None });
        let claims: Vec<&Claim> = claims.collect();
        if claims.is_empty() {
            return;
        }
        let dropped = self.run(|op| {
            claims.iter().for_each(|c| alloc::drop_claim(op, c));
            Ok(())
        });
        dropped.expect("changes no block");
    }
}

/// Chooses the places of one file's pages.
fn plan_file(op: &mut Op<'_>, t: &Taken) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    if t.pages.is_empty() {
        return Ok(pieces);
    }
    let inode = op.inode(t.ino)?;
    let mut next_goal = None;
    let mut first = 0;
    while let Some((at, _)) = t.pages.get(first) {
        let sequence = t.logged.contains(at);
        let alike = |b: &FileBlock| t.logged.contains(b) == sequence;
        let run = (t.pages[first..].iter().zip(at.0..)).take_while(|((b, _), n)| b.0 == *n && alike(b)).count();
        let (to, logged, len) =
            match map::lookup(op, t.ino, &inode, *at, u32::try_from(run).expect("a round is smaller"))? {
                Mapping::Mapped { phys, len, unwritten } => place(op, phys, len, unwritten, sequence),
                Mapping::Hole { len } => {
                    let want = if sequence { len.min(LOG_RUN) } else { len };
                    let (to, len) = claim_hole(op, t.ino, &inode, *at, want, &mut next_goal)?;
                    (to, sequence, len)
                }
            };
        // An image that a file with journaled data, or an earlier owner, left in memory ends here.
        if !logged {
            op.forget(to.start(), len);
        }
        let len = usize::try_from(len).expect("a round is smaller");
        pieces.push(Piece { at: *at, first, len, to, logged, rides: false });
        first += len;
    }
    alloc::unreserve(op, t.reserved);
    let blocks = |logged| pieces.iter().filter(|p| p.logged == logged && p.is_recorded()).map(|p| p.len).sum::<usize>();
    // With what is overwritten it has to fit a transaction (F16).
    if blocks(false) <= t.ride && blocks(false) + blocks(true) <= op.vol.journal.limit() / 2 {
        for p in pieces.iter_mut().filter(|p| p.is_recorded() && !p.logged) {
            (p.logged, p.rides) = (true, true);
        }
    }
    Ok(pieces)
}

/// Chooses blocks for the start of a hole, behind the last that were chosen: where, and how many.
pub(super) fn claim_hole(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &Inode,
    at: FileBlock,
    len: u32,
    next_goal: &mut Option<Goal>,
) -> Result<(To, u32)> {
    let goal = match *next_goal {
        Some(goal) => goal,
        None => map::goal(op, ino, inode, at, len)?,
    };
    let claim = alloc::claim(op, &Request { goal, want: len, pool: Pool::Reserved, below: map::below(inode) })?;
    let run = claim.run();
    *next_goal = Some(Goal { at: run.end(), ..goal });
    Ok((To::Claimed(claim), run.len))
}

/// True if the log is the way for a block that is mapped (F9, F16), besides the blocks of a sequence that is journaled.
pub(super) fn goes_to_log(op: &Op<'_>, b: BlockNo, unwritten: bool) -> bool {
    let overwritten = !unwritten && op.vol.whole_requests();
    overwritten || op.is_journaled(b) && !Mutant::SequenceEndsEarly.is_on()
}

/// How a run of mapped blocks is written, and for how many of them that holds.
fn place(op: &Op<'_>, phys: BlockNo, len: u32, unwritten: bool, sequence: bool) -> (To, bool, u32) {
    let mutant = Mutant::JournaledInPlace.is_on() || Mutant::ModeChangedInPlace.is_on();
    let way = |b| (sequence || goes_to_log(op, b, unwritten)) && !mutant;
    let logged = way(phys);
    let same = |n: &u64| way(phys.plus(*n)) == logged;
    let run = u32::try_from((0..u64::from(len)).take_while(same).count()).expect("at most len");
    let to = if unwritten { To::Unwritten(phys) } else { To::Written(phys) };
    (to, logged, if logged { run.min(LOG_RUN) } else { run })
}

/// Records some of the pieces of a file; with the last of them, its size and times.
fn record_file(op: &mut Op<'_>, t: &Taken, from: usize, to: usize) -> Result<()> {
    if let Some(stamp) = t.written {
        op.after_data(stamp);
    }
    let mut inode = op.inode(t.ino)?;
    let before = inode.clone();
    for p in &t.pieces[from..to] {
        let start = p.to.start();
        match &p.to {
            To::Written(_) => {}
            To::Unwritten(_) => map::convert_written(op, t.ino, &mut inode, p.at, p.blocks())?,
            To::Claimed(claim) => {
                alloc::mark_claimed(op, claim)?;
                map::insert(op, t.ino, &mut inode, p.at, start, p.blocks(), false)?;
            }
        }
        if p.logged {
            for (n, (_, image)) in (0..).zip(&t.pages[p.first..p.first + p.len]) {
                let (b, image) = (start.plus(n), image.clone());
                if p.rides { op.block_put_rider(b, image)? } else { op.block_put(b, image)? }
            }
        }
    }
    if to == t.pieces.len() {
        if let Some(size) = t.size.filter(|size| *size > inode.size()) {
            inode.set_size(size);
        }
        if let Some(times) = t.times {
            inode.set_time(Time::Modify, times.mtime);
            let ctime = inode.time(Time::Change).unwrap_or_default().max(times.ctime);
            inode.set_time(Time::Change, ctime);
        }
    }
    // Overwritten blocks alone change nothing in the inode.
    if inode != before {
        op.put_inode(t.ino, &mut inode)?;
    }
    op.note_change(t.ino, true);
    Ok(())
}

/// Device writes with, for each, the files (by index) whose pages it holds.
struct Writes {
    bs: BlockSize,
    ios: Vec<(Io, Vec<usize>)>,
}

impl Writes {
    /// Adds a run; runs come in the order of the disk.
    fn add(&mut self, start: BlockNo, owner: usize, pages: &[Taking]) {
        let mut at = self.bs.offset(start);
        for (_, image) in pages {
            match self.ios.last_mut() {
                Some((io @ Io::Write { .. }, owners)) if joins(io, at) => {
                    if let Io::Write { data, .. } = io {
                        data.push(image.clone());
                    }
                    if owners.last() != Some(&owner) {
                        owners.push(owner);
                    }
                }
                _ => {
                    let io = Io::Write { at, data: vec![image.clone()], region: Region::Data, fua: false };
                    self.ios.push((io, vec![owner]));
                }
            }
            at += self.bs.bytes64();
        }
    }
}

/// True if a write that begins at `at` can be part of this one.
fn joins(io: &Io, at: u64) -> bool {
    let (start, len) = io.range();
    matches!(io, Io::Write { data, .. } if data.len() < RUN) && start + len == at
}
