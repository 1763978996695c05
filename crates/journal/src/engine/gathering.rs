//! Whether a commit that could begin waits for callers that are about to come, as jbd2 does with its batch time.
//!
//! Callers whose commit has ended come again when they have done what they do between two. Where that takes less time
//! than a commit, those that come first would have a commit of their own, and the others would all wait for the next:
//! two groups take turns, and each commit serves half of the callers.
//!
//! ```text
//!   without   A: |==commit==|     |==commit==|            with   A and B: |==commit==|.|==commit==|.|==commit==|
//!             B:            |==commit==|     |==...                        . they come again
//! ```
//! The leader waits until as many callers have come as the last commit served or kept waiting. It waits only if those
//! that the last commit served were seen to come again within a part of a commit's time, and at most for the time that
//! a commit takes, within the bounds of [`BatchTime`]; where a flush is cheap, never. After a wait that gained too few,
//! several commits begin at once.
//!
//! *Guarantees*: a caller waits for no more than [`BatchTime::most`] longer than without. A lone caller never waits.

use crate::policy::{GATHER_TIMES, GATHER_WITHIN, LEAST_GATHERING_COMMIT, MOST_COMMITS_AT_ONCE};
use std::time::Duration;

/// For how long a commit may wait for callers that are about to come: ext4's `min_batch_time=` and `max_batch_time=`
/// (ext4(5)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BatchTime {
    /// A commit counts as taking at least so long.
    pub least: Duration,
    /// And at most so long. Zero: no commit waits.
    pub most: Duration,
}

impl BatchTime {
    /// No commit waits.
    pub const NONE: BatchTime = BatchTime { least: Duration::ZERO, most: Duration::ZERO };
}

impl Default for BatchTime {
    /// As in ext4: 0 and 15 ms.
    fn default() -> Self {
        BatchTime { least: Duration::ZERO, most: Duration::from_millis(15) }
    }
}

/// What the last commits tell of the next. Times are the monotonic clock's.
#[derive(Default)]
pub(crate) struct Gathering {
    batch_time: BatchTime,
    /// When the last commit ended.
    ended: Duration,
    /// How long it took, its flush included.
    took: Duration,
    /// Callers that it served, and those that waited for the next one then.
    served: usize,
    waiting: usize,
    /// Callers that have come since.
    come: usize,
    /// How long after the end of the commit before as many callers had come as it had served. `None`: not before the
    /// next commit ended.
    come_again: Option<Duration>,
    /// Commits that begin at once before one waits again.
    at_once: u32,
    /// The same after the next wait that gains too few.
    backoff: u32,
}

impl Gathering {
    pub(crate) fn new(batch_time: BatchTime) -> Self {
        Gathering { batch_time, backoff: 1, ..Gathering::default() }
    }

    /// A caller comes that waits without a thread.
    pub(crate) fn comes(&mut self, now: impl FnOnce() -> Duration) {
        self.come += 1;
        if self.come == self.served {
            self.come_again = Some(now().saturating_sub(self.ended));
        }
    }

    /// A commit has ended that began at `begun` and served so many, while `waiting` came for the next.
    pub(crate) fn ended(&mut self, begun: Duration, now: Duration, served: usize, waiting: usize) {
        if self.come < self.served {
            self.come_again = None;
        }
        self.at_once = self.at_once.saturating_sub(1);
        (self.ended, self.took) = (now, now.saturating_sub(begun));
        (self.served, self.waiting, self.come) = (served, waiting, 0);
    }

    /// Callers that the next commit can serve.
    pub(crate) fn expected(&self) -> usize {
        self.served + self.waiting
    }

    /// How long the next commit waits for more callers than it has, if it does.
    pub(crate) fn until(&self, has: usize) -> Option<Duration> {
        let come_again = self.come_again.filter(|_| self.at_once == 0 && (1..self.expected()).contains(&has))?;
        let took = self.took.max(self.batch_time.least).min(self.batch_time.most);
        let pays = took >= LEAST_GATHERING_COMMIT && come_again * GATHER_WITHIN.1 < took * GATHER_WITHIN.0;
        pays.then(|| self.ended + took.min(come_again * GATHER_TIMES))
    }

    /// A wait that began with `had` callers has ended with so many.
    pub(crate) fn gathered(&mut self, had: usize, has: usize) {
        if (has - had) * 2 >= self.expected() - had {
            self.backoff = 1;
            return;
        }
        self.at_once = self.backoff;
        self.backoff = (self.backoff * 2).min(MOST_COMMITS_AT_ONCE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    /// Two groups of 8 take turns, each commit takes 20 ms, and callers come again `after` its end.
    fn turns(after: Duration) -> Gathering {
        let mut g = Gathering::new(BatchTime { most: ms(100), ..BatchTime::default() });
        g.ended(ms(0), ms(20), 8, 8);
        (0..8).for_each(|_| g.comes(|| ms(20) + after));
        g.ended(ms(20), ms(40), 8, 8);
        g
    }

    #[test]
    fn callers_that_come_again_soon_are_waited_for_and_those_that_come_late_are_not() {
        let g = turns(ms(3));
        assert_eq!((g.expected(), g.until(8), g.until(16)), (16, Some(ms(46)), None));
        assert_eq!(turns(ms(14)).until(8), Some(ms(60)), "for a commit's time at most");
        assert_eq!(turns(ms(15)).until(8), None, "they take too long");
        let mut late = turns(ms(3));
        (0..7).for_each(|_| late.comes(|| ms(43)));
        late.ended(ms(40), ms(60), 8, 7);
        assert_eq!(late.until(7), None, "not all of them came again during a commit");
    }

    #[test]
    fn a_lone_caller_does_not_wait_and_one_that_is_left_alone_waits_once() {
        let mut g = Gathering::new(BatchTime::default());
        for n in 0..5 {
            g.comes(|| ms(n * 20));
            assert_eq!(g.until(1), None);
            g.ended(ms(n * 20), ms(n * 20 + 15), 1, 0);
        }
        let mut g = turns(ms(3));
        g.gathered(1, 1);
        g.ended(ms(46), ms(66), 1, 0);
        g.comes(|| ms(67));
        assert_eq!(g.until(1), None);
    }

    #[test]
    fn a_wait_that_gains_too_few_has_more_and_more_commits_begin_at_once_until_one_gains_enough() {
        let mut g = turns(ms(3));
        let commit = |g: &mut Gathering| {
            let ended = g.ended;
            (0..8).for_each(|_| g.comes(|| ended + ms(3)));
            g.ended(ended, ended + ms(20), 8, 8);
        };
        for at_once in [1, 2, 4, 8, 16, 32, 64, 64] {
            g.gathered(8, 11);
            for n in 0..at_once {
                assert_eq!(g.until(8), None, "{n} of {at_once}");
                commit(&mut g);
            }
            assert!(g.until(8).is_some(), "after {at_once}");
        }
        g.gathered(8, 12);
        assert!(g.until(8).is_some(), "half of them came");
        g.gathered(8, 9);
        commit(&mut g);
        assert!(g.until(8).is_some(), "one commit began at once");
    }

    #[test]
    fn a_commit_that_takes_less_than_waiting_costs_begins_at_once() {
        let of = |took| Gathering { took, come_again: Some(Duration::ZERO), ..turns(ms(3)) };
        assert!(of(LEAST_GATHERING_COMMIT).until(8).is_some());
        assert_eq!(of(LEAST_GATHERING_COMMIT - Duration::from_nanos(1)).until(8), None);
    }

    #[test]
    fn a_commit_counts_as_taking_what_the_batch_times_allow() {
        let of = |least, most| Gathering { batch_time: BatchTime { least, most }, ..turns(ms(3)) };
        assert_eq!(of(ms(0), ms(5)).until(8), Some(ms(45)), "5 ms at most");
        assert_eq!(of(ms(0), ms(4)).until(8), None, "in 4 ms they do not come");
        assert_eq!(Gathering { batch_time: BatchTime::NONE, ..turns(ms(3)) }.until(8), None);
        let quick = |least| Gathering { took: Duration::from_micros(100), ..of(least, ms(15)) };
        assert_eq!((quick(ms(0)).until(8), quick(ms(8)).until(8)), (None, Some(ms(46))));
        assert_eq!(of(ms(10), ms(0)).until(8), None, "the upper bound counts");
    }
}
