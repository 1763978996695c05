//! The journal as its users see it: handles, loads, commits, checkpoints.
//!
//! Guarantees: [`Journal::commit`] returns success only when the transaction is durable; a failure is final and every
//! later commit reports it (J5). Commits are serial: n+1 is written only when n is durable or there is no log (J6).

use crate::choices::Format;
use crate::core::LoggedNewData;
use crate::encode;
use crate::engine::{Completion, EmptyLog, JournalConfig, Lead, Need, Shared};
use crate::error::Error;
use crate::handle::Handle;
use crate::log::Log;
use crate::policy::{LEAST_LIMIT, LIMIT_WITHOUT_LOG, TRANSACTION_CACHE_PART, TRANSACTION_PART};
use crate::stats::{JournalLatencies, JournalStats};
use quire_device::sync::thread::ThreadId;
use quire_device::sync::{Arc, lock, thread};
use quire_device::{FlushGate, Mutant};
use quire_layout::{BlockNo, Tid};
use std::time::Duration;

/// How changes become durable at once.
pub struct Journal {
    pub(crate) shared: Shared,
}

/// Making a journal, and what it calls when there is work.
impl Journal {
    /// A journal without a log: a commit writes home and flushes, and is not atomic (`data=none`).
    #[must_use]
    pub fn without_log(gate: Arc<FlushGate>, config: JournalConfig) -> Self {
        Journal { shared: Shared::new(gate, None, Tid(2), LIMIT_WITHOUT_LOG, config) }
    }

    /// A journal in a recovered, empty log.
    ///
    /// # Panics
    /// If the choices say NVRAM and the log has none.
    #[must_use]
    pub fn with_log(gate: Arc<FlushGate>, mut log: Log, config: JournalConfig) -> Self {
        assert!(config.choices.format() != Format::Nvram || log.nvram().is_some(), "a log in NVRAM has its memory");
        if let Some(features) = config.choices.features() {
            log.set_quire(features);
        }
        let part = usize::try_from(log.capacity() / TRANSACTION_PART).expect("fits");
        let limit = encode::images_in(&log.format, part);
        let limit = log.nvram().map_or(limit, |n| n.most_blocks());
        let largest = (config.cache_bytes / TRANSACTION_CACHE_PART).max(LEAST_LIMIT);
        let limit = limit.min(usize::try_from(largest >> config.block_size.bits()).unwrap_or(usize::MAX));
        let first = log.sequence();
        Journal { shared: Shared::new(gate, Some(log), first, limit, config) }
    }

    /// Sets what wakes the thread that calls [`Journal::checkpoint_step`], when there is work that should not wait.
    pub fn on_work(&self, waker: impl Fn() + Send + Sync + 'static) {
        *lock(&self.shared.waker) = Some(Arc::new(waker));
    }

    /// Wakes the thread that does the background work.
    pub fn wake(&self) {
        self.shared.wake();
    }

    /// Sets what wakes the thread that calls [`Journal::lead_suspended`], when suspended callers are left without a
    /// leader.
    pub fn on_suspended(&self, waker: impl Fn() + Send + Sync + 'static) {
        *lock(&self.shared.leader_waker) = Some(Arc::new(waker));
    }

    /// Ends [`Journal::on_suspended`]: from now on the caller that commits serves the suspended ones.
    pub fn forget_suspended_waker(&self) {
        *lock(&self.shared.leader_waker) = None;
        self.lead_suspended();
    }
}

/// Changes.
impl Journal {
    /// Begins a set of changes. The handle holds the core's lock: no I/O until it ends.
    pub fn handle(&self) -> Handle<'_> {
        Handle::new(lock(&self.shared.core), self.shared.limit)
    }

    /// Offers what lies at the home of a block as the base of its next record (Q3). The caller holds what keeps others
    /// from writing there.
    pub fn offer(&self, b: BlockNo, image: &crate::Image) {
        lock(&self.shared.core).offer(b, image);
    }

    /// Says that file data was written to the homes of these runs of blocks, besides the journal: complete, or failed.
    /// What memory, or a load under way, holds of them is void (J3). Discards count as writes.
    pub fn written_in_place(&self, runs: impl IntoIterator<Item = (BlockNo, u32)>) {
        let mut core = lock(&self.shared.core);
        let stamp = self.shared.gate.stamp();
        for (start, len) in runs {
            core.note_unflushed(start, len, stamp);
            (0..u64::from(len)).for_each(|n| core.written_in_place(start.plus(n)));
        }
    }

    /// The transaction that is open now.
    #[must_use]
    pub fn running(&self) -> Tid {
        lock(&self.shared.core).running.tid
    }

    /// True if the open transaction holds changes.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !lock(&self.shared.core).running.is_empty()
    }

    /// The newest durable transaction.
    #[must_use]
    pub fn durable(&self) -> Tid {
        self.shared.durable()
    }

    /// Keeps the running transaction open until the hold is dropped, so that several operations share it.
    pub fn hold(&self) -> TxnHold<'_> {
        let mut core = lock(&self.shared.core);
        let owner = thread::current().id();
        core.running.holders.push(owner);
        TxnHold { shared: &self.shared, tid: core.running.tid, owner }
    }

    /// True if the calling thread keeps the running transaction open: a commit would wait for it for ever.
    #[must_use]
    pub fn is_held_here(&self) -> bool {
        lock(&self.shared.core).running.holders.contains(&thread::current().id())
    }

    /// Most blocks that a transaction may hold.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.shared.limit
    }
}

/// Durability.
impl Journal {
    /// Returns when transaction `tid` is durable. The first caller commits, the others wait for it. A caller that keeps
    /// the transaction open returns at once: its changes become durable together, after the hold.
    ///
    /// # Errors
    /// The commit failed, now or earlier; the journal is then aborted.
    pub fn commit(&self, tid: Tid) -> Result<(), Error> {
        self.shared.commit(tid)
    }

    /// Commits what is open, if anything is.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    pub fn commit_all(&self) -> Result<(), Error> {
        self.shared.commit_all()
    }

    /// Calls `then` when `need` is met or cannot be met. If that is so already, or no other caller commits, this call
    /// does it before it returns, and goes on to commit for further callers that are suspended, as `lead` says.
    /// Otherwise it returns at once, and the caller that commits calls `then`. A transaction that the calling thread
    /// keeps open is not waited for, as in [`Journal::commit`].
    pub fn sync_then(&self, need: Need, lead: Lead, then: Completion) {
        self.shared.sync_then(need, lead, then);
    }

    /// True inside of a `then` that is called because its need is met: the calling thread commits for all, and a commit
    /// would wait for it for ever.
    #[must_use]
    pub fn tells_here(&self) -> bool {
        self.shared.tells_here()
    }

    /// Commits for suspended callers until none is left, unless another caller does already.
    pub fn lead_suspended(&self) {
        self.shared.lead_suspended();
    }

    /// Returns when the commit that is being written now is over, if one is: for background writes, which would delay
    /// it on the device. It does not wait for handles and holds, as [`Journal::commit`] does, nor for a second commit.
    pub fn await_commit_in_flight(&self) {
        self.shared.await_commit_in_flight();
    }

    /// The log is in NVRAM or on another device: what makes a transaction durable there does not flush the file
    /// system's device. Data in place that it is going to name may be flushed before (Q5); else the commit does it.
    #[must_use]
    pub fn log_is_apart(&self) -> bool {
        let log = self.shared.log.as_ref();
        log.is_some_and(|log| log.nvram().is_some() || log.is_elsewhere(&self.shared.gate))
    }

    /// Stops the journal without an error: nothing more becomes durable. The log keeps what it has.
    pub fn shut_down(&self) {
        self.shared.shut_down();
    }

    /// Why the journal was stopped, if it was.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.shared.failure()
    }

    /// The newest transaction whose freed blocks may be used again: it is durable, and no checkpoint that began
    /// before may still write them (J9).
    #[must_use]
    pub fn reusable(&self) -> Tid {
        if Mutant::FreedReusedEarly.is_on() {
            return Tid(u32::MAX / 2);
        }
        let s = lock(&self.shared.commits);
        s.checkpoint_floor.filter(|_| !Mutant::ReusedUnderCheckpoint.is_on()).unwrap_or(s.durable)
    }

    /// Returns when what was freed up to transaction `tid` may be used again: it is durable, and a checkpoint that may
    /// still write those blocks has ended.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    pub fn make_reusable(&self, tid: Tid) -> Result<(), Error> {
        self.commit(tid)?;
        drop(lock(&self.shared.checkpointing));
        Ok(())
    }
}

/// The log.
impl Journal {
    /// True if commits go through a log.
    #[must_use]
    pub fn has_log(&self) -> bool {
        self.shared.log.is_some()
    }

    /// One step of background work: checkpoints a quarter of the log if more than half of it is in use, or if the
    /// images that it pins take more than the cache; of a log in NVRAM the oldest filled region. True if it did
    /// something.
    ///
    /// # Errors
    /// The device failed; the journal is then aborted.
    pub fn checkpoint_step(&self) -> Result<bool, Error> {
        self.shared.checkpoint_step()
    }

    /// When the oldest transaction in the log was closed, by the monotonic clock.
    #[must_use]
    pub fn oldest_closed(&self) -> Option<Duration> {
        lock(&self.shared.core).committed.front().map(|c| c.closed)
    }

    /// One step of background work: writes home what transactions that were closed by `time` have changed, a quarter of
    /// the log at most, and frees their log space; with regions, the oldest region. True if there were any.
    ///
    /// # Errors
    /// As [`Journal::checkpoint_step`].
    pub fn checkpoint_closed_by(&self, time: Duration) -> Result<bool, Error> {
        self.shared.checkpoint_closed_by(time)
    }

    /// Writes home what is committed of these runs of blocks and is not there yet (`checkpoint=fsync`). The log keeps
    /// its records.
    ///
    /// # Errors
    /// As [`Journal::checkpoint_step`].
    pub fn write_runs_home(&self, runs: &[(BlockNo, u32)]) -> Result<(), Error> {
        self.shared.write_runs_home(runs).inspect_err(|e| self.shared.abort(e))
    }

    /// Writes everything home that is committed when it begins, and frees its log space. It ends, however many commits
    /// come meanwhile (J15).
    ///
    /// # Errors
    /// As [`Journal::checkpoint_step`].
    pub fn checkpoint_now(&self) -> Result<(), Error> {
        self.shared.checkpoint_all()
    }

    /// Commits what is open, writes everything home and empties the log. No transaction is committed between the last
    /// home write and the empty log, whichever caller asks for one (L3).
    ///
    /// # Errors
    /// As [`Journal::commit`] and [`Journal::checkpoint_step`].
    pub fn empty_log(&self) -> Result<EmptyLog<'_>, Error> {
        self.shared.empty_log()
    }

    /// Statistics since the mount.
    #[must_use]
    pub fn stats(&self) -> JournalStats {
        let counters = *lock(&self.shared.counters);
        let mut memory = lock(&self.shared.core).stats();
        memory.suspended = lock(&self.shared.commits).suspended.len();
        counters.stats(self.shared.limit, self.shared.log.as_ref(), memory)
    }

    /// How long commits and checkpoints took since the mount.
    #[must_use]
    pub fn latencies(&self) -> JournalLatencies {
        self.shared.timings.snapshot()
    }

    /// What became of new data that was logged with commits.
    #[must_use]
    pub fn logged_new_data(&self) -> LoggedNewData {
        lock(&self.shared.core).logged_new_data
    }

    /// The flush gate of the file system's device.
    #[must_use]
    pub fn gate(&self) -> &Arc<FlushGate> {
        &self.shared.gate
    }
}

/// Keeps a transaction open.
pub struct TxnHold<'a> {
    shared: &'a Shared,
    tid: Tid,
    owner: ThreadId,
}

impl TxnHold<'_> {
    /// The transaction held.
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.tid
    }
}

impl Drop for TxnHold<'_> {
    fn drop(&mut self) {
        let holders = &mut lock(&self.shared.core).running.holders;
        let mine = holders.iter().position(|h| *h == self.owner);
        holders.swap_remove(mine.expect("each hold is counted"));
        self.shared.released.notify_all();
    }
}
