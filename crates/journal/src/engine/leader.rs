//! Waiting for durability: which caller commits, and how the others learn of it.
//!
//! ```text
//! commit(tid)             no caller commits: this one does     else: its thread waits
//! sync_then(need, then)   no caller commits: this one does     else: `then` is kept, and the thread goes on
//!
//! leader:  wait for callers about to come (`gathering`) ─> take all suspended callers ─┐
//!             ^                                                                        │
//!             └── others have come meanwhile ── call each `then` <── one commit, one flush
//! ```
//! Guarantees: J6 (one leader); J12: `then` is called once, without a lock of the journal, when what its caller needs
//! is durable or has failed, and no suspended caller is left without a leader.
//!
//! Relies on: a `then` waits for no commit unless it is given an error; it may ask [`Shared::tells_here`].

use super::commit;
use super::shared::Shared;
use super::waiting::{CommitState, Completion, Lead, Need, Suspended, SyncError};
use crate::error::Error;
use quire_device::sync::{MutexGuard, lock, thread, wait, wait_timeout};
use quire_device::waits::waiting;
use quire_device::{DeviceError, Mutant, WaitFor};
use quire_layout::Tid;

impl Shared {
    /// Returns when transaction `tid` is durable. The first caller commits, the others wait for it. A caller that keeps
    /// the transaction open returns at once: its changes become durable together, after the hold.
    ///
    /// # Errors
    /// The commit failed, now or earlier; the journal is then aborted.
    pub(crate) fn commit(&self, tid: Tid) -> Result<(), Error> {
        if self.durable().at_or_after(tid) || self.is_open_here(tid) {
            return Ok(());
        }
        let mut s = lock(&self.commits);
        // The commit that begins next holds the transaction, or finds nothing left of it.
        let next = s.begun + 1;
        loop {
            if s.durable.at_or_after(tid) {
                return Ok(());
            }
            s.failure()?;
            if s.ended >= next {
                return Ok(());
            }
            if !s.leader || Mutant::CommitsOverlap.is_on() {
                break;
            }
            s.awaited = s.awaited.max(next);
            self.gathered.notify_one();
            s = waiting(WaitFor::Commit, || wait(&self.committed, s));
        }
        s.leader = true;
        drop(s);
        let result = self.commit_as_leader();
        self.resign();
        result
    }

    /// Calls `then` when `need` is met or cannot be met. If that is so already, or no other caller commits, this call
    /// does it before it returns, and goes on to commit for further callers that are suspended, as `lead` says.
    /// Otherwise it returns at once, and the caller that commits calls `then`. A transaction that the calling thread
    /// keeps open is not waited for, as in [`Shared::commit`].
    pub(crate) fn sync_then(&self, mut need: Need, lead: Lead, then: Completion) {
        need.tid = need.tid.filter(|tid| !self.is_open_here(*tid));
        let met = need.data.is_none_or(|e| self.gate.is_durable(e));
        let mut s = lock(&self.commits);
        if met && need.tid.is_none_or(|tid| s.durable.at_or_after(tid)) {
            drop(s);
            return then(Ok(()));
        }
        s.suspended.push(Suspended { need, then });
        s.gathering.comes(|| self.config.clock.monotonic());
        if s.leader {
            if s.suspended.len() >= s.gathering.expected() {
                self.gathered.notify_one();
            }
            return;
        }
        s.leader = true;
        drop(s);
        self.serve_suspended(lead);
    }

    /// Commits for suspended callers until none is left, unless another caller does already.
    pub(crate) fn lead_suspended(&self) {
        let mut s = lock(&self.commits);
        if s.leader || s.suspended.is_empty() {
            return;
        }
        s.leader = true;
        drop(s);
        self.serve_suspended(Lead::UntilNobodyWaits);
    }

    /// True if the calling thread is the leader, and calls what was suspended: it would wait for itself.
    pub(crate) fn tells_here(&self) -> bool {
        lock(&self.commits).telling == Some(thread::current().id())
    }

    /// As the leader: serves all suspended callers with one commit and one flush, and again those that came meanwhile,
    /// as `lead` says. Then this caller does not lead.
    fn serve_suspended(&self, lead: Lead) {
        loop {
            let (callers, mut commits) = {
                let mut s = self.gather(lock(&self.commits), lead);
                let callers = std::mem::take(&mut s.suspended);
                if callers.is_empty() && s.awaited <= s.begun {
                    s.leader = false;
                    self.committed.notify_all();
                    return;
                }
                (callers, s.awaited > s.begun)
            };
            let (durable, begun) = (self.durable(), self.config.clock.monotonic());
            commits |= callers.iter().any(|c| c.need.tid.is_some_and(|tid| !durable.at_or_after(tid)));
            let committed = if commits { self.commit_as_leader() } else { Ok(()) };
            let data = callers.iter().filter_map(|c| c.need.data).max().filter(|e| !self.gate.is_durable(*e));
            let flushed = data.map_or(Ok(()), |e| self.gate.ensure(e));
            let failed = committed.is_err() || flushed.is_err();
            {
                let mut s = lock(&self.commits);
                // A caller that learns of an error may commit a note of it.
                s.leader = !failed;
                s.telling = (!failed).then(|| thread::current().id());
                let waiting = s.suspended.len();
                s.gathering.ended(begun, self.config.clock.monotonic(), callers.len(), waiting);
            }
            if failed {
                self.committed.notify_all();
            }
            for Suspended { need, then } in callers {
                then(self.outcome(need, &committed, &flushed));
            }
            if failed {
                return self.lead_suspended();
            }
            lock(&self.commits).telling = None;
            if lead == Lead::Once {
                return self.resign();
            }
        }
    }

    /// As the leader: waits for callers that are about to come, if that pays. A thread that waits for the next commit
    /// is not kept waiting, nor one that leads for itself.
    fn gather<'s>(&self, mut s: MutexGuard<'s, CommitState>, lead: Lead) -> MutexGuard<'s, CommitState> {
        let had = s.suspended.len();
        let is_awaited = |s: &CommitState| lead == Lead::Once || s.awaited > s.begun;
        let Some(until) = s.gathering.until(had).filter(|_| !is_awaited(&s)) else { return s };
        let mut left = until.saturating_sub(self.config.clock.monotonic());
        if left.is_zero() {
            return s;
        }
        while s.suspended.len() < s.gathering.expected() && !is_awaited(&s) && !left.is_zero() {
            s = waiting(WaitFor::Commit, || wait_timeout(&self.gathered, s, left));
            left = until.saturating_sub(self.config.clock.monotonic());
        }
        let has = s.suspended.len();
        s.gathering.gathered(had, has);
        s
    }

    /// What became of a need that a commit and a flush were to meet.
    fn outcome(
        &self,
        need: Need,
        committed: &Result<(), Error>,
        flushed: &Result<(), DeviceError>,
    ) -> Result<(), SyncError> {
        if let (Some(tid), Err(e)) = (need.tid, committed)
            && !self.durable().at_or_after(tid)
        {
            return Err(Error::Aborted(Box::new(e.clone())).into());
        }
        match (need.data, flushed) {
            (Some(epoch), Err(e)) if !self.gate.is_durable(epoch) => Err(SyncError::Flush(e.clone())),
            _ => Ok(()),
        }
    }

    /// As the leader: commits what is open.
    fn commit_as_leader(&self) -> Result<(), Error> {
        let number = {
            let mut s = lock(&self.commits);
            if !Mutant::FailureForgotten.is_on() {
                s.failure()?;
            }
            s.begun += 1;
            s.begun
        };
        let result = commit::commit_running(self);
        // Before a checkpoint goes on that has waited for what this commit chose: its tail stays then (Q11).
        if let Err(e) = &result
            && !Mutant::FailureForgotten.is_on()
        {
            self.abort(e);
        }
        self.chosen_no_more();
        let mut s = lock(&self.commits);
        s.writing = false;
        if let Ok(tid) = &result {
            s.ended = number;
            s.durable = tid.unwrap_or(s.durable);
        }
        drop(s);
        self.committed.notify_all();
        result.map(drop)
    }

    /// A caller that has led for itself leads no more. Suspended callers are left to the thread that `leader_waker`
    /// wakes; without one, the caller serves them.
    fn resign(&self) {
        let left = {
            let mut s = lock(&self.commits);
            s.leader = false;
            !s.suspended.is_empty() && !Mutant::SuspendedForgotten.is_on()
        };
        self.committed.notify_all();
        if left {
            let waker = lock(&self.leader_waker).clone();
            match waker {
                Some(wake) => wake(),
                None => self.lead_suspended(),
            }
        }
    }

    /// Becomes the leader, after the caller that leads now.
    pub(crate) fn lead(&self) -> Leader<'_> {
        let mut s = lock(&self.commits);
        while s.leader {
            s = wait(&self.committed, s);
        }
        s.leader = true;
        Leader { shared: self }
    }

    /// Returns when the commit that is being written now is over, if one is. It does not wait for handles and holds, as
    /// [`Shared::commit`] does, nor for a second commit.
    pub(crate) fn await_commit_in_flight(&self) {
        let mut s = lock(&self.commits);
        let before = s.durable;
        while s.writing && s.durable == before {
            s = waiting(WaitFor::Commit, || wait(&self.committed, s));
        }
    }

    /// Commits what is open, if anything is.
    ///
    /// # Errors
    /// As [`Shared::commit`].
    pub(crate) fn commit_all(&self) -> Result<(), Error> {
        let (tid, changes) = {
            let core = lock(&self.core);
            (core.running.tid, !core.running.is_empty())
        };
        if changes {
            return self.commit(tid);
        }
        // What an earlier transaction holds may still be on its way.
        let before = Tid(tid.0.wrapping_sub(1));
        let mut s = lock(&self.commits);
        while s.leader && s.failed.is_none() && !s.durable.at_or_after(before) {
            s = waiting(WaitFor::Commit, || wait(&self.committed, s));
        }
        s.failure()
    }
}

/// While this lives, no other caller commits.
pub(crate) struct Leader<'j> {
    shared: &'j Shared,
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        self.shared.resign();
    }
}
