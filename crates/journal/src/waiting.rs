//! Waiting for durability: which caller commits, and how the others learn of it.
//!
//! ```text
//! commit(tid)             no caller commits: this one does     else: its thread waits
//! sync_then(need, then)   no caller commits: this one does     else: `then` is kept, and the thread goes on
//!
//! leader:  take all suspended callers ─> one commit, one flush ─> call each `then` ─┐
//!             ^──────────────── others have come meanwhile ────────────────────────┘
//! ```
//! Guarantees: J6 (one leader); J12: `then` is called once, without a lock of the journal, when what its caller needs
//! is durable or has failed, and no suspended caller is left without a leader.
//!
//! Relies on: a `then` waits for no commit unless it is given an error.

use crate::error::Error;
use crate::journal::Journal;
use quire_device::sync::{lock, wait};
use quire_device::{DeviceError, Epoch, Mutant};
use quire_layout::Tid;

/// What a caller needs to be durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Need {
    /// This transaction and all before it.
    pub tid: Option<Tid>,
    /// Data written in place, complete by this time.
    pub data: Option<Epoch>,
}

/// Why it is not durable.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SyncError {
    /// The transaction could not be committed.
    #[error("{0}")]
    Commit(#[from] Error),
    /// The data could not be flushed.
    #[error("{0}")]
    Flush(DeviceError),
}

/// What is called when a caller's [`Need`] is met, or cannot be met.
pub type Completion = Box<dyn FnOnce(Result<(), SyncError>) + Send>;

/// A caller without a thread.
pub(crate) struct Suspended {
    need: Need,
    then: Completion,
}

/// Which caller commits, and what is durable.
pub(crate) struct CommitState {
    /// Some caller commits now.
    pub leader: bool,
    /// It has closed its transaction, and waits for the device only.
    pub writing: bool,
    /// The newest durable transaction.
    pub durable: Tid,
    /// While a checkpoint writes home: the newest transaction that was durable when it began. What was freed
    /// later may be among its writes.
    pub checkpoint_floor: Option<Tid>,
    pub(crate) failed: Option<Error>,
    /// Commits that have begun, the last that has ended, and the last that a thread waits for, by number.
    begun: u64,
    ended: u64,
    awaited: u64,
    suspended: Vec<Suspended>,
}

impl CommitState {
    pub(crate) fn new(durable: Tid) -> Self {
        CommitState {
            leader: false,
            writing: false,
            durable,
            checkpoint_floor: None,
            failed: None,
            begun: 0,
            ended: 0,
            awaited: 0,
            suspended: Vec::new(),
        }
    }

    /// The journal's failure, as a later caller learns of it.
    fn failure(&self) -> Result<(), Error> {
        self.failed.as_ref().map_or(Ok(()), |e| Err(Error::Aborted(Box::new(e.clone()))))
    }
}

impl Journal {
    /// Returns when transaction `tid` is durable. The first caller commits, the others wait for it. A caller that keeps
    /// the transaction open returns at once: its changes become durable together, after the hold.
    ///
    /// # Errors
    /// The commit failed, now or earlier; the journal is then aborted.
    pub fn commit(&self, tid: Tid) -> Result<(), Error> {
        if self.durable().at_or_after(tid) || self.is_open_here(tid) {
            return Ok(());
        }
        let mut s = lock(&self.commit);
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
            s = wait(&self.committed, s);
        }
        s.leader = true;
        drop(s);
        let result = self.commit_as_leader();
        self.resign();
        result
    }

    /// Calls `then` when `need` is met or cannot be met. If that is so already, or no other caller commits, this call
    /// does it before it returns, and goes on to commit while further callers are suspended. Otherwise it returns at
    /// once, and the caller that commits calls `then`. A transaction that the calling thread keeps open is not waited
    /// for, as in [`Journal::commit`].
    pub fn sync_then(&self, mut need: Need, then: Completion) {
        need.tid = need.tid.filter(|tid| !self.is_open_here(*tid));
        let met = need.data.is_none_or(|e| self.gate.is_durable(e));
        let mut s = lock(&self.commit);
        if met && need.tid.is_none_or(|tid| s.durable.at_or_after(tid)) {
            drop(s);
            return then(Ok(()));
        }
        s.suspended.push(Suspended { need, then });
        if s.leader {
            return;
        }
        s.leader = true;
        drop(s);
        self.serve_suspended();
    }

    /// Commits for suspended callers until none is left, unless another caller does already.
    pub fn lead_suspended(&self) {
        let mut s = lock(&self.commit);
        if s.leader || s.suspended.is_empty() {
            return;
        }
        s.leader = true;
        drop(s);
        self.serve_suspended();
    }

    /// As the leader: serves all suspended callers with one commit and one flush, and again those who came meanwhile.
    /// Then nobody leads.
    fn serve_suspended(&self) {
        loop {
            let (callers, mut commits) = {
                let mut s = lock(&self.commit);
                let callers = std::mem::take(&mut s.suspended);
                if callers.is_empty() && s.awaited <= s.begun {
                    s.leader = false;
                    self.committed.notify_all();
                    return;
                }
                (callers, s.awaited > s.begun)
            };
            let durable = self.durable();
            commits |= callers.iter().any(|c| c.need.tid.is_some_and(|tid| !durable.at_or_after(tid)));
            let committed = if commits { self.commit_as_leader() } else { Ok(()) };
            let data = callers.iter().filter_map(|c| c.need.data).max().filter(|e| !self.gate.is_durable(*e));
            let flushed = data.map_or(Ok(()), |e| self.gate.ensure(e));
            let failed = committed.is_err() || flushed.is_err();
            if failed {
                // Who learns of an error may commit a note of it.
                lock(&self.commit).leader = false;
                self.committed.notify_all();
            }
            for Suspended { need, then } in callers {
                then(self.outcome(need, &committed, &flushed));
            }
            if failed {
                return self.lead_suspended();
            }
        }
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
            let mut s = lock(&self.commit);
            if !Mutant::FailureForgotten.is_on() {
                s.failure()?;
            }
            s.begun += 1;
            s.begun
        };
        let result = self.commit_running();
        lock(&self.core).chosen = false;
        self.unchosen.notify_all();
        let mut s = lock(&self.commit);
        s.writing = false;
        match &result {
            Ok(tid) => {
                s.ended = number;
                s.durable = tid.unwrap_or(s.durable);
            }
            Err(_) if Mutant::FailureForgotten.is_on() => {}
            Err(e) => s.failed = Some(e.clone()),
        }
        drop(s);
        if let Err(e) = &result
            && !Mutant::FailureForgotten.is_on()
        {
            self.abort(e);
        }
        self.committed.notify_all();
        result.map(drop)
    }

    /// A caller that has led for itself leads no more. Suspended callers are left to the thread that
    /// [`Journal::on_suspended`] wakes; without one, the caller serves them.
    pub(crate) fn resign(&self) {
        let left = {
            let mut s = lock(&self.commit);
            s.leader = false;
            !s.suspended.is_empty() && !Mutant::SuspendedForgotten.is_on()
        };
        self.committed.notify_all();
        if left {
            let waker = lock(&self.leader_waker).clone();
            match waker {
                Some(waker) => waker(),
                None => self.lead_suspended(),
            }
        }
    }

    /// Becomes the leader, after the caller that leads now.
    pub(crate) fn lead(&self) -> Leader<'_> {
        let mut s = lock(&self.commit);
        while s.leader {
            s = wait(&self.committed, s);
        }
        s.leader = true;
        Leader { journal: self }
    }

    /// Returns when the commit is over that is being written now, if one is: for who gives the device much to do that
    /// nobody waits for. It does not wait for handles and holds, as [`Journal::commit`] does, nor for a second commit.
    pub fn let_commit_pass(&self) {
        let mut s = lock(&self.commit);
        let before = s.durable;
        while s.writing && s.durable == before {
            s = wait(&self.committed, s);
        }
    }

    /// Commits what is open, if anything is.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    pub fn commit_all(&self) -> Result<(), Error> {
        let (tid, changes) = {
            let core = lock(&self.core);
            (core.running.tid, !core.running.is_empty())
        };
        if changes {
            return self.commit(tid);
        }
        // What an earlier transaction holds may still be on its way.
        let before = Tid(tid.0.wrapping_sub(1));
        let mut s = lock(&self.commit);
        while s.leader && s.failed.is_none() && !s.durable.at_or_after(before) {
            s = wait(&self.committed, s);
        }
        s.failure()
    }
}

/// While this lives, no other caller commits.
pub(crate) struct Leader<'j> {
    journal: &'j Journal,
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        self.journal.resign();
    }
}
