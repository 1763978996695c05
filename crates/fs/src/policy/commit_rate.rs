//! Whether callers make small changes durable again and again.

use std::collections::VecDeque;
use std::time::Duration;

/// Commits are frequent if callers waited for this many within [`FREQUENT_WINDOW`].
const FREQUENT_COMMITS: usize = 4;
/// See [`FREQUENT_COMMITS`].
const FREQUENT_WINDOW: Duration = Duration::from_secs(1);

/// The last commits and flushes that callers waited for.
#[derive(Default)]
pub(crate) struct CommitRate {
    /// By the monotonic clock, oldest first.
    last: VecDeque<Duration>,
}

impl CommitRate {
    /// A caller waits for a commit or a flush now.
    pub(crate) fn note(&mut self, now: Duration) {
        if self.last.len() == FREQUENT_COMMITS {
            self.last.pop_front();
        }
        self.last.push_back(now);
    }

    /// True while callers make small changes durable again and again.
    pub(crate) fn is_frequent(&self, now: Duration) -> bool {
        let recent = |first: &Duration| now.saturating_sub(*first) < FREQUENT_WINDOW;
        self.last.len() == FREQUENT_COMMITS && self.last.front().is_some_and(recent)
    }
}
