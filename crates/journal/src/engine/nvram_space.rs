//! Space in a log in NVRAM: a filled region goes home in one pass of sorted, merged writes, one flush, one label.
//!
//! Guarantees: as the lazy checkpoint's (J2, J9, J11); V4: the label that frees a region is stored when the homes of
//! all its blocks are durable, and the region is used again when that label is. The journal's superblock in the image
//! gets the number of the next transaction with the same flush (V7), so that an older copy of the image is told from
//! this one.
//!
//! Commits go on meanwhile in the next region. A checkpoint that passes transactions of the region in use waits for the
//! commit that has chosen its bases (Q6).

use super::homes::Homes;
use super::shared::Shared;
use crate::error::Error;
use crate::log::Log;
use crate::nvram::{Fit, NvramLog, Target};
use crate::policy::{LAZY_BATCH, LAZY_SHARE};
use quire_device::sync::lock;
use quire_device::waits::waiting;
use quire_device::{Mutant, WaitFor};
use quire_layout::Tid;
use std::time::Duration;

/// The space of a log in NVRAM.
pub(super) struct NvramSpace<'a> {
    pub shared: &'a Shared,
    pub log: &'a Log,
    pub nvram: &'a NvramLog,
}

impl NvramSpace<'_> {
    fn by_regions(&self) -> bool {
        self.shared.config.choices.by_regions()
    }

    /// Makes room for `most` bytes at the head; the transaction `tid` goes there.
    pub(super) fn make_room(&self, most: u64, tid: Tid) -> Result<(), Error> {
        let clock = &self.shared.config.clock;
        let mut stall = None;
        loop {
            match self.nvram.fit(most) {
                Fit::AtHead => break,
                Fit::NextRegion(at) => {
                    self.enter_region(at, tid);
                    break;
                }
                Fit::Nowhere => {
                    stall.get_or_insert_with(|| clock.monotonic());
                    let moved = waiting(WaitFor::LogSpace, || self.reclaim())?;
                    assert!(moved || !matches!(self.nvram.fit(most), Fit::Nowhere), "an empty log has room");
                }
            }
        }
        if let Some(since) = stall {
            let took = clock.monotonic().saturating_sub(since);
            self.shared.timings.checkpoint_stall.record(took);
            self.nvram.count_stall(took);
        }
        Ok(())
    }

    /// Goes on in the next region. Blocks are logged whole there first (V6); the one that is left goes home in the
    /// background.
    fn enter_region(&self, at: u64, tid: Tid) {
        self.nvram.move_head(at, tid);
        if self.nvram.label().regions > 1 {
            lock(&self.shared.core).chain_from = Some(tid);
            self.shared.wake();
        }
    }

    /// For a commit that finds no space: frees the oldest region, or a little of a log with one region.
    fn reclaim(&self) -> Result<bool, Error> {
        if self.by_regions() {
            return self.pass(Homes::Needed, NvramLog::filled);
        }
        self.pass(Homes::Needed, |n| {
            let most = n.oldest(n.label().capacity() / LAZY_SHARE)?;
            let batch = lock(&self.shared.core).oldest_in_need(LAZY_BATCH, most.upto);
            batch.and_then(|last| n.up_to(last)).or(Some(most))
        })
    }

    /// Bounds what the log pins in memory, bases too (V9), before transaction `tid`: beyond the cache's size the region
    /// is left early, beyond twice that the commit writes home.
    pub(super) fn relieve_memory(&self, tid: Tid) -> Result<(), Error> {
        let (pinned, bound) = (self.shared.pinned_bytes(), self.shared.pinned_bound());
        if pinned <= bound {
            return Ok(());
        }
        if self.by_regions()
            && self.nvram.filled().is_none()
            && let Some(next) = self.nvram.next_region()
        {
            self.enter_region(next, tid);
        }
        if pinned > 2 * bound {
            self.shared.stalled(|| self.pass_some())?;
        }
        Ok(())
    }

    /// One step of background work: the oldest filled region; of a log with one region nothing, unless it pins too much
    /// memory.
    pub(super) fn step(&self) -> Result<bool, Error> {
        if !self.by_regions() && self.shared.pinned_bytes() <= self.shared.config.cache_bytes {
            return Ok(false);
        }
        self.pass_some()
    }

    /// The oldest filled region, or a share of a log with one region.
    fn pass_some(&self) -> Result<bool, Error> {
        if self.by_regions() {
            self.pass(Homes::Needed, NvramLog::filled)
        } else {
            self.pass(Homes::Needed, |n| n.oldest(n.label().capacity() / LAZY_SHARE))
        }
    }

    /// True if a transaction that was closed by `time` lies in the region in use, so that the region has to be left
    /// before the transaction goes home.
    pub(super) fn must_leave_region(&self, time: Duration) -> bool {
        let is_old = lock(&self.shared.core).closed_by(time, u32::MAX).is_some();
        self.by_regions() && is_old && self.nvram.filled().is_none()
    }

    /// Goes on in the next region, if that is free and no commit has done it meanwhile. The caller leads, so that no
    /// commit is under way.
    pub(super) fn leave_region(&self) {
        if self.nvram.filled().is_none()
            && let Some(next) = self.nvram.next_region()
        {
            let tid = lock(&self.shared.core).running.tid;
            self.enter_region(next, tid);
        }
    }

    /// Passes all transactions that were closed by `time`; with regions, the oldest region that was left. False if
    /// there was none.
    pub(super) fn pass_closed_by(&self, time: Duration) -> Result<bool, Error> {
        let Some((upto, _)) = lock(&self.shared.core).closed_by(time, u32::MAX) else { return Ok(false) };
        let some = Homes::Needed;
        if self.by_regions() { self.pass(some, NvramLog::filled) } else { self.pass(some, |n| n.up_to(upto)) }
    }

    /// Everything that is committed when it begins goes home. The region in use is passed, too, and not left.
    pub(super) fn empty(&self) -> Result<(), Error> {
        self.pass(Homes::All, |n| n.oldest(u64::MAX)).map(drop)
    }

    fn pass(&self, which: Homes, choose: impl Fn(&NvramLog) -> Option<Target>) -> Result<bool, Error> {
        let _one_at_a_time = lock(&self.shared.checkpointing);
        let Some(target) = choose(self.nvram) else { return Ok(false) };
        let begun = self.shared.config.clock.monotonic();
        let next = target.upto.next();
        let homes = self.shared.begin_home_writes(which.upto(target.upto), target.is_left)?;
        if Mutant::NvramFreedEarly.is_on() {
            self.nvram.free(target.tail, next);
        }
        let written = self.shared.write_home(&homes).and_then(|()| self.log.note_oldest(next));
        self.shared.end_home_writes(&homes);
        written?;
        if !Mutant::TailBeforeHomeFlush.is_on() {
            self.shared.flush_with(self.log)?;
        }
        self.nvram.free(target.tail, next);
        lock(&self.shared.core).tail_passed(target.upto, &homes);
        self.shared.checkpointed(homes.len(), begun);
        Ok(true)
    }
}
