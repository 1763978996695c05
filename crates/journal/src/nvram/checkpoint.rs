//! A filled region goes home: one pass of sorted, merged writes, one flush, one label.
//!
//! Guarantees: as the lazy checkpoint's (J2, J9, J11); V4: the label that frees a region is stored when the homes of
//! all its blocks are durable, and the region is used again when that label is. The journal's superblock in the image
//! gets the number of the next transaction with the same flush (V7), so that an older copy of the image is told from
//! this one.
//!
//! Commits go on meanwhile in the next region.

use super::{NvramLog, Placed, State};
use crate::error::Error;
use crate::journal::Journal;
use crate::log::Log;
use quire_device::Mutant;
use quire_device::sync::lock;
use quire_layout::Tid;

/// What a checkpoint passes: transactions up to `upto`; the next begins at `tail`.
struct Target {
    upto: Tid,
    tail: u64,
}

impl State {
    /// What passes the `n`th transaction and those before it.
    fn passing(&self, n: usize) -> Option<Target> {
        let upto = self.placed.get(n)?.tid;
        Some(Target { upto, tail: self.placed.get(n + 1).map_or(self.head, |p| p.start) })
    }
}

impl NvramLog {
    /// The oldest region, if the head has left it.
    fn filled(&self) -> Option<Target> {
        let s = lock(&self.state);
        let region = s.label.region_len();
        let oldest = s.placed.front()?.start / region;
        let end = (oldest + 1) * region;
        if s.head < end {
            return None;
        }
        let upto = s.placed.iter().take_while(|p| p.start < end).last()?.tid;
        Some(Target { upto, tail: end })
    }

    /// The oldest transactions, of at least so many bytes.
    fn oldest(&self, bytes: u64) -> Option<Target> {
        let s = lock(&self.state);
        let enough = |p: &Placed| p.end - s.label.tail >= bytes;
        let n = s.placed.iter().position(enough).unwrap_or(s.placed.len().saturating_sub(1));
        s.passing(n)
    }

    /// The transactions up to this one.
    fn up_to(&self, tid: Tid) -> Option<Target> {
        let s = lock(&self.state);
        s.passing(s.placed.partition_point(|p| tid.at_or_after(p.tid)).checked_sub(1)?)
    }

    fn capacity(&self) -> u64 {
        self.label().capacity()
    }
}

/// Who commits and finds no room in a log that goes round frees the least that helps, as jbd2's explicit checkpoint:
/// this share of it, or less if so many blocks had to go home for it, a batch of jbd2's (`JBD2_NR_BATCH`). (DJFS' NVJ
/// frees about 1/30 with each flush: table 1, 0.4 % of one for each of its commits of some 18 KB.)
const LAZY_SHARE: u64 = 32;
const LAZY_BATCH: usize = 64;

impl Journal {
    /// As who commits and finds no room: the oldest region, or a little of a log that goes round.
    pub(super) fn reclaim_nvram(&self, log: &Log, nvram: &NvramLog) -> Result<bool, Error> {
        if self.config.style.by_regions() {
            return self.pass(log, nvram, NvramLog::filled);
        }
        self.pass(log, nvram, |n| {
            let most = n.oldest(n.capacity() / LAZY_SHARE)?;
            let batch = lock(&self.core).oldest_in_need(LAZY_BATCH, most.upto);
            batch.and_then(|last| n.up_to(last)).or(Some(most))
        })
    }

    /// Bounds what the log pins in memory, base images too (V9): beyond the cache's size the region is left early,
    /// beyond twice that who commits writes home.
    pub(super) fn relieve_nvram(&self, log: &Log, nvram: &NvramLog, tid: Tid) -> Result<(), Error> {
        let (live, bound) = (self.live_bytes(), self.pinned_bound());
        if live <= bound {
            return Ok(());
        }
        if self.config.style.by_regions()
            && nvram.filled().is_none()
            && let Some(next) = nvram.next_region()
        {
            self.enter_region(nvram, next, tid);
        }
        if live > 2 * bound {
            self.pass_some(log, nvram)?;
        }
        Ok(())
    }

    /// One step of background work: the oldest filled region; of a log that goes round nothing, unless it pins too much
    /// memory.
    pub(crate) fn nvram_step(&self, log: &Log, nvram: &NvramLog) -> Result<bool, Error> {
        if !self.config.style.by_regions() && self.live_bytes() <= self.config.cache_bytes {
            return Ok(false);
        }
        self.pass_some(log, nvram)
    }

    /// The oldest filled region, or a share of a log that goes round.
    fn pass_some(&self, log: &Log, nvram: &NvramLog) -> Result<bool, Error> {
        if self.config.style.by_regions() {
            self.pass(log, nvram, NvramLog::filled)
        } else {
            self.pass(log, nvram, |n| n.oldest(n.capacity() / LAZY_SHARE))
        }
    }

    /// Everything committed goes home.
    pub(crate) fn empty_nvram(&self, log: &Log, nvram: &NvramLog) -> Result<(), Error> {
        while self.pass(log, nvram, |n| n.oldest(u64::MAX))? {}
        Ok(())
    }

    fn pass(&self, log: &Log, nvram: &NvramLog, choose: impl Fn(&NvramLog) -> Option<Target>) -> Result<bool, Error> {
        let _one_at_a_time = lock(&self.checkpointing);
        let Some(target) = choose(nvram) else { return Ok(false) };
        let next = target.upto.next();
        let homes = self.begin_home_writes(target.upto);
        if Mutant::NvramFreedEarly.is_on() {
            nvram.free(target.tail, next);
        }
        let written = self.write_home(&homes).and_then(|()| log.note_oldest(next));
        lock(&self.commit).checkpoint_floor = None;
        written?;
        if !Mutant::TailBeforeHomeFlush.is_on() {
            self.flush_with(log)?;
        }
        nvram.free(target.tail, next);
        lock(&self.core).tail_passed(target.upto, &homes);
        lock(&self.counters).checkpointed(homes.len());
        Ok(true)
    }
}
