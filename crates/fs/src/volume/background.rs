//! Work that no caller waits for, as steps: writeback of old data, commits at their interval, checkpoints, discards.
//!
//! A step does a piece of each and returns what comes next. A thread calls it ([`Maintenance::spawn_background`]), or a
//! simulator that owns the clock.

use super::handle::Volume;
use super::maintenance::Maintenance;
use super::ticks::commit_due;
use super::trim::discard_step;
use crate::data::{Which, should_write_back, write_back_oldest};
use crate::error::Result;
use crate::names::evict;
use crate::policy::{CHECKPOINT_AGE, MAX_IDLE_PAUSE, MIN_IDLE_PAUSE, closed_long_ago};
use quire_device::Mutant;
use quire_device::sync::{Arc, Condvar, Mutex, lock, thread, wait, wait_timeout};
use std::time::Duration;

/// What a step did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Something; there may be more.
    Did,
    /// Nothing: there is nothing to do for this long, unless something changes.
    Idle(Duration),
}

impl Maintenance<'_> {
    /// One piece of background work: writes back the oldest data if it is as old as the commit interval or there is
    /// much, commits what has been open for that long, checkpoints if the log needs it or holds what is old, discards
    /// what was freed. Inodes that wait for eviction are freed in any case. On a frozen volume it does nothing.
    ///
    /// # Errors
    /// A commit or checkpoint failed. Errors of writeback stay with their files.
    pub fn step(&self) -> Result<Step> {
        self.work_once().inspect_err(|e| self.volume.inner.engine.note_error(e))
    }

    fn work_once(&self) -> Result<Step> {
        let v = self.volume;
        let (engine, d) = (&*v.inner.engine, &v.inner.data);
        let interval = engine.context.runtime().commit_interval;
        let Ok(_pass) = v.inner.try_enter() else { return Ok(Step::Idle(interval)) };
        if engine.write_gate.check().is_err() && !Mutant::TailAfterAbort.is_on() {
            return Ok(Step::Idle(interval));
        }
        // First, so that a commit of this step includes it.
        let freed = evict::free_pending(engine);
        let now = engine.clock.monotonic();
        let much = should_write_back(d) && write_back_oldest(d, Which::ANY);
        // Making room takes large files first and may go on without end. Old data does not wait for that.
        let is_old = |since| write_back_oldest(d, Which::older_than(since));
        let wrote = now.checked_sub(interval).is_some_and(is_old) || much;
        // Also while there is something to write back: writers may keep it so.
        if commit_due(engine, &v.inner.ticks, now)? || engine.journal.checkpoint_step()? || wrote {
            return Ok(Step::Did);
        }
        let age = engine.context.options.checkpoint_age.unwrap_or(CHECKPOINT_AGE);
        if let Some(time) = closed_long_ago(engine.journal.oldest_closed(), age, now)
            && engine.journal.checkpoint_closed_by(time)?
        {
            return Ok(Step::Did);
        }
        if freed || discard_step(engine) {
            return Ok(Step::Did);
        }
        let due = [d.files.oldest_since(), lock(&v.inner.ticks).open_since()];
        let next = due.into_iter().flatten().min().map_or(interval, |since| (since + interval).saturating_sub(now));
        let oldest = engine.journal.oldest_closed().filter(|_| !age.is_zero());
        let goes_home = oldest.map_or(interval, |since| (since + age).saturating_sub(now));
        Ok(Step::Idle(next.min(goes_home).min(interval)))
    }

    /// Starts two threads, which end when the returned guard is dropped: one does the background work, one commits for
    /// callers of [`fsync_then`](super::files::fsync_then) when the caller that committed before has work of its own.
    #[must_use]
    pub fn spawn_background(&self) -> Background {
        let stop = Arc::new(Stop::default());
        let (volume, theirs): (Volume, _) = (self.volume.clone(), stop.clone());
        let work = thread::spawn(move || volume.maintenance().work_until(&theirs));
        let (volume, theirs) = (self.volume.clone(), stop.clone());
        let commits = thread::spawn(move || volume.maintenance().commit_until(&theirs));
        Background { stop, threads: vec![work, commits] }
    }

    /// Commits for suspended callers whenever they are left without a leader, until `stop` is set.
    fn commit_until(&self, stop: &Arc<Stop>) {
        let (journal, woken) = (&self.volume.inner.engine.journal, Arc::downgrade(stop));
        journal.on_suspended(move || {
            if let Some(stop) = woken.upgrade() {
                lock(&stop.state).suspended = true;
                stop.leaderless.notify_all();
            }
        });
        loop {
            // Also at the end: no caller is left that was passed on meanwhile.
            journal.lead_suspended();
            let mut state = lock(&stop.state);
            while !state.suspended && !state.stopped {
                state = wait(&stop.leaderless, state);
            }
            if !std::mem::take(&mut state.suspended) {
                return journal.forget_suspended_waker();
            }
        }
    }

    /// Calls [`Maintenance::step`] until `stop` is set, on a thread that has nothing else to do.
    pub fn work_until(&self, stop: &Arc<Stop>) {
        let (engine, woken) = (&self.volume.inner.engine, Arc::downgrade(stop));
        // Without the lock of `stop`: a caller that has work does not wait. At worst the pause passes.
        engine.journal.on_work(move || {
            if let Some(stop) = woken.upgrade() {
                stop.woken.notify_all();
            }
        });
        loop {
            let idle = match self.step() {
                Ok(Step::Did) => Duration::ZERO,
                // A file that is due may be locked. The step looks for it again a little later.
                Ok(Step::Idle(d)) => d.max(MIN_IDLE_PAUSE),
                Err(_) => engine.context.runtime().commit_interval,
            };
            let state = lock(&stop.state);
            let state = if state.stopped || idle.is_zero() {
                state
            } else {
                wait_timeout(&stop.woken, state, idle.min(MAX_IDLE_PAUSE))
            };
            if state.stopped {
                return;
            }
        }
    }
}

/// Ends the background work of [`Maintenance::work_until`].
#[derive(Default)]
pub struct Stop {
    state: Mutex<StopState>,
    woken: Condvar,
    /// Suspended callers have no leader.
    leaderless: Condvar,
}

#[derive(Default)]
struct StopState {
    stopped: bool,
    suspended: bool,
}

impl Stop {
    /// The work ends after the step that is under way.
    pub fn stop(&self) {
        lock(&self.state).stopped = true;
        self.woken.notify_all();
        self.leaderless.notify_all();
    }
}

/// The threads of [`Maintenance::spawn_background`]. They end when this is dropped.
pub struct Background {
    stop: Arc<Stop>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.stop();
        self.threads.drain(..).for_each(|t| drop(t.join()));
    }
}
