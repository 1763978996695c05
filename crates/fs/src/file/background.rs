//! Work that nobody waits for, as steps: write-back of what is old, commits in their interval, checkpoints.
//!
//! A step does a piece of each and says what comes next. A thread calls it ([`Volume::spawn_background`]), or a simulator that
//! owns the clock.

use crate::error::Result;
use crate::volume::Volume;
use quire_device::sync::{Arc, Condvar, Mutex, lock, thread, wait_timeout};
use std::time::Duration;

/// What a step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Something; there may be more.
    Did,
    /// Nothing: there is nothing to do for so long, unless something changes.
    Idle(Duration),
}

/// When the running transaction is committed at the latest.
#[derive(Default)]
pub(crate) struct Ticks {
    /// The transaction seen running with changes, and when it was first seen.
    open: Option<(quire_layout::Tid, Duration)>,
}

impl Volume {
    /// One piece of background work: writes back the oldest data if it is as old as the commit interval or much,
    /// commits what has been open for that long, checkpoints if the log asks for it, or discards what was
    /// freed. What is unlinked and unused is freed in any case.
    ///
    /// # Errors
    /// A commit or checkpoint failed. Errors of write-back stay with their files.
    pub fn step(&self) -> Result<Step> {
        self.step_with(Duration::ZERO)
    }

    /// As [`Volume::step`], by a caller who may be kept: what it writes while others commit often can wait for the flush of one of those
    /// commits, so long for it to begin.
    ///
    /// # Errors
    /// As [`Volume::step`].
    pub fn step_with(&self, patience: Duration) -> Result<Step> {
        if self.inner.check_writable().is_err() {
            return Ok(Step::Idle(self.inner.options.commit_interval));
        }
        // First, so that it is in what is committed.
        let freed = self.free_doomed();
        let (files, interval) = (&self.inner.files, self.inner.options.commit_interval);
        let now = self.inner.clock.monotonic();
        let much = self.is_much_pending() && self.write_back_oldest(u64::MAX, Duration::MAX, patience);
        // Room is made of large files first, and may be wanted without end: what is old does not wait for that.
        let old = now.checked_sub(interval).is_some_and(|old| self.write_back_oldest(u64::MAX, old, patience));
        let wrote = much || old;
        // Not only when nothing is left to write back: writers may see to it that something always is.
        if self.commit_due(now)? || self.inner.journal.checkpoint_step()? || wrote {
            return Ok(Step::Did);
        }
        if freed || self.discard_step() {
            return Ok(Step::Did);
        }
        let due = [files.oldest_since(), lock(&self.inner.ticks).open.map(|(_, since)| since)];
        let next = due.into_iter().flatten().min().map_or(interval, |since| (since + interval).saturating_sub(now));
        Ok(Step::Idle(next.min(interval)))
    }

    /// Commits the running transaction if it has been open for the interval.
    fn commit_due(&self, now: Duration) -> Result<bool> {
        let journal = &self.inner.journal;
        let open = journal.has_changes().then(|| journal.running());
        let due = {
            let mut ticks = lock(&self.inner.ticks);
            match (open, ticks.open) {
                (Some(tid), Some((seen, since))) if tid == seen => {
                    now.saturating_sub(since) >= self.inner.options.commit_interval
                }
                (open, _) => {
                    ticks.open = open.map(|tid| (tid, now));
                    false
                }
            }
        };
        if due {
            self.commit_all()?;
            lock(&self.inner.ticks).open = None;
        }
        Ok(due)
    }

    /// Starts a thread that does the background work until what is returned is dropped.
    #[must_use]
    pub fn spawn_background(&self) -> Background {
        let stop = Arc::new(Stop::default());
        let (volume, theirs) = (self.clone(), stop.clone());
        Background { stop, thread: Some(thread::spawn(move || volume.work_until(&theirs))) }
    }

    /// Calls [`Volume::step`] until it is to stop, by a thread that has nothing else to do.
    pub fn work_until(&self, stop: &Arc<Stop>) {
        let woken = Arc::downgrade(stop);
        // Without its lock: who has work for us does not wait, and at worst the pause passes.
        self.inner.journal.on_work(move || {
            if let Some(stop) = woken.upgrade() {
                stop.woken.notify_all();
            }
        });
        loop {
            let idle = match self.step_with(PATIENCE) {
                Ok(Step::Did) => Duration::ZERO,
                // What is due may be with somebody: it is looked for again a little later.
                Ok(Step::Idle(d)) => d.max(BREATH),
                Err(e) => {
                    self.note_error(&e);
                    self.inner.options.commit_interval
                }
            };
            let stopped = lock(&stop.stopped);
            let stopped =
                if *stopped || idle.is_zero() { stopped } else { wait_timeout(&stop.woken, stopped, idle.min(PAUSE)) };
            if *stopped {
                return;
            }
        }
    }
}

/// Ends the background work of [`Volume::work_until`].
#[derive(Default)]
pub struct Stop {
    stopped: Mutex<bool>,
    woken: Condvar,
}

impl Stop {
    /// It ends after the step that it is in.
    pub fn stop(&self) {
        *lock(&self.stopped) = true;
        self.woken.notify_all();
    }
}

/// How long a round of a thread that has nothing else to do waits for others to begin a flush.
const PATIENCE: Duration = Duration::from_millis(10);
/// Shortest pause of a thread that found nothing to do.
const BREATH: Duration = Duration::from_millis(1);
/// Longest pause of the thread: how late it may notice what it is not woken for.
const PAUSE: Duration = Duration::from_millis(250);

/// The thread of [`Volume::spawn_background`]; ends when dropped.
pub struct Background {
    stop: Arc<Stop>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(t) = self.thread.take() {
            t.join().ok();
        }
    }
}
