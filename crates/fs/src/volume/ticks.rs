//! When the running transaction is committed at the latest.

use crate::engine::Engine;
use crate::error::Result;
use quire_device::sync::{Mutex, lock};
use quire_layout::Tid;
use std::time::Duration;

/// The age of the running transaction.
#[derive(Default)]
pub(crate) struct Ticks {
    /// The transaction seen running with changes, and when it was first seen.
    open: Option<(Tid, Duration)>,
}

impl Ticks {
    /// When the running transaction was first seen with changes, by the monotonic clock.
    pub(super) fn open_since(&self) -> Option<Duration> {
        self.open.map(|(_, since)| since)
    }
}

/// Commits the running transaction if it has been open for the commit interval. Returns true if it did.
///
/// # Errors
/// The commit failed.
pub(super) fn commit_due(engine: &Engine, ticks: &Mutex<Ticks>, now: Duration) -> Result<bool> {
    let (journal, interval) = (&engine.journal, engine.context.runtime().commit_interval);
    let open = journal.has_changes().then(|| journal.running());
    let due = {
        let mut ticks = lock(ticks);
        match (open, ticks.open) {
            (Some(tid), Some((seen, since))) if tid == seen => now.saturating_sub(since) >= interval,
            (open, _) => {
                ticks.open = open.map(|tid| (tid, now));
                false
            }
        }
    };
    if due {
        journal.commit_all()?;
        lock(ticks).open = None;
    }
    Ok(due)
}
