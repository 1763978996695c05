//! Where the next transaction goes, and what a checkpoint may pass to free space.

use super::log::{NvramLog, Placed, State};
use quire_device::sync::lock;
use quire_layout::Tid;

/// Where the next transaction fits.
pub(crate) enum Fit {
    AtHead,
    /// At the beginning of the next region, at this position.
    NextRegion(u64),
    /// Nowhere before a checkpoint.
    Nowhere,
}

/// What a checkpoint passes: transactions up to `upto`; the next begins at `tail`.
pub(crate) struct Target {
    pub upto: Tid,
    pub tail: u64,
    /// It is all that a region holds which the head has left: no commit under way has a chain there (V6).
    pub is_left: bool,
}

impl NvramLog {
    /// Where a transaction of `most` bytes fits.
    pub(crate) fn fit(&self, most: u64) -> Fit {
        let s = lock(&self.state);
        let (region, end) = (s.label.region_len(), s.label.tail + s.label.capacity());
        let left = region - s.head % region;
        // A full region leaves the head at the start of the next, which may still be in use.
        let begins = s.head.is_multiple_of(region) && s.head > 0;
        if most <= left && !begins && s.head + most <= end {
            return Fit::AtHead;
        }
        let next = s.head.next_multiple_of(region);
        // Regions are freed whole; one that goes round, by transactions.
        let need = if s.label.regions > 1 { region } else { most };
        if next + need <= end { Fit::NextRegion(next) } else { Fit::Nowhere }
    }

    /// The position at which the next region begins, if it is free and the current one holds something.
    pub(crate) fn next_region(&self) -> Option<u64> {
        let s = lock(&self.state);
        let region = s.label.region_len();
        let next = s.head.next_multiple_of(region);
        let used = s.placed.back().is_some_and(|p: &Placed| p.start / region == s.head / region);
        (s.label.regions > 1 && used && next + region <= s.label.tail + s.label.capacity()).then_some(next)
    }

    /// The head goes on at `at`, where transaction `tid` will be. With nothing behind it, the tail comes along.
    pub(crate) fn move_head(&self, at: u64, tid: Tid) {
        let empty = {
            let mut s = lock(&self.state);
            s.head = at;
            s.placed.is_empty()
        };
        if empty && self.label().tid == tid {
            self.free(at, tid);
        }
    }

    /// The oldest region, if the head has left it.
    pub(crate) fn filled(&self) -> Option<Target> {
        let s = lock(&self.state);
        let region = s.label.region_len();
        let oldest = s.placed.front()?.start / region;
        let end = (oldest + 1) * region;
        if s.head < end {
            return None;
        }
        let upto = s.placed.iter().take_while(|p| p.start < end).last()?.tid;
        Some(Target { upto, tail: end, is_left: true })
    }

    /// The oldest transactions, of at least so many bytes.
    pub(crate) fn oldest(&self, bytes: u64) -> Option<Target> {
        let s = lock(&self.state);
        let enough = |p: &Placed| p.end - s.label.tail >= bytes;
        let n = s.placed.iter().position(enough).unwrap_or(s.placed.len().saturating_sub(1));
        s.passing(n)
    }

    /// The transactions up to this one.
    pub(crate) fn up_to(&self, tid: Tid) -> Option<Target> {
        let s = lock(&self.state);
        s.passing(s.placed.partition_point(|p| tid.at_or_after(p.tid)).checked_sub(1)?)
    }
}

impl State {
    /// What passes the `n`th transaction and those before it.
    fn passing(&self, n: usize) -> Option<Target> {
        let upto = self.placed.get(n)?.tid;
        let tail = self.placed.get(n + 1).map_or(self.head, |p| p.start);
        Some(Target { upto, tail, is_left: false })
    }
}
