//! The state that handles, commits and checkpoints share, and the few steps that all of them take.
//!
//! Locks, outer first: `checkpointing`, `core`, `commits` (a leaf: handles ask what is durable). A leader is marked by
//! `CommitState::leader`, holds no lock during I/O, and is the only one to close a transaction.

use super::gathering::{BatchTime, Gathering};
use super::waiting::CommitState;
use crate::choices::LogChoices;
use crate::core::{Core, InFlight};
use crate::error::Error;
use crate::log::Log;
use crate::policy::{BASES_PART, LEAST_BASES, LEAST_PINNED};
use crate::stats::{Counters, Timings};
use quire_device::sync::{Arc, Condvar, Mutex, lock, thread, wait};
use quire_device::waits::waiting;
use quire_device::{Clock, FlushGate, WaitFor};
use quire_layout::{BlockSize, Tid};
use std::time::Duration;

/// How a journal works.
#[derive(Clone)]
pub struct JournalConfig {
    pub block_size: BlockSize,
    pub clock: Arc<dyn Clock>,
    /// Clean images kept in memory, in bytes.
    pub cache_bytes: u64,
    /// How the log is written and reclaimed.
    pub choices: LogChoices,
    /// For how long a commit may wait for callers that are about to come.
    pub batch_time: BatchTime,
}

impl JournalConfig {
    /// A log in jbd2's format.
    #[must_use]
    pub fn new(block_size: BlockSize, clock: Arc<dyn Clock>, cache_bytes: u64) -> Self {
        let (choices, batch_time) = (LogChoices::JBD2, BatchTime::default());
        JournalConfig { block_size, clock, cache_bytes, choices, batch_time }
    }
}

/// The state of a journal.
pub(crate) struct Shared {
    pub core: Mutex<Core>,
    /// A hold on the running transaction ended.
    pub released: Condvar,
    /// A commit that had chosen its bases ended.
    pub unchosen: Condvar,
    pub commits: Mutex<CommitState>,
    pub committed: Condvar,
    /// A caller has come for which the leader waits.
    pub gathered: Condvar,
    /// One checkpoint at a time. Held across I/O, taken before `core`.
    pub checkpointing: Mutex<()>,
    pub gate: Arc<FlushGate>,
    pub log: Option<Log>,
    pub config: JournalConfig,
    pub counters: Mutex<Counters>,
    pub timings: Timings,
    /// Most blocks that a transaction may hold.
    pub limit: usize,
    /// Wakes the thread that does the background work.
    pub waker: Mutex<Option<Waker>>,
    /// Wakes the thread that leads for suspended callers.
    pub leader_waker: Mutex<Option<Waker>>,
}

pub(crate) type Waker = Arc<dyn Fn() + Send + Sync>;

impl Shared {
    pub(crate) fn new(gate: Arc<FlushGate>, log: Option<Log>, first: Tid, limit: usize, config: JournalConfig) -> Self {
        let cache_blocks = usize::try_from(config.cache_bytes / config.block_size.bytes64()).unwrap_or(usize::MAX);
        let durable = Tid(first.0.wrapping_sub(1));
        let mut core = Core::new(cache_blocks, first);
        if config.choices.uses_home_bases() {
            core.keep_bases = (cache_blocks / BASES_PART).max(LEAST_BASES);
        }
        Shared {
            core: Mutex::new(core),
            released: Condvar::new(),
            unchosen: Condvar::new(),
            commits: Mutex::new(CommitState::new(durable, Gathering::new(config.batch_time))),
            committed: Condvar::new(),
            gathered: Condvar::new(),
            checkpointing: Mutex::new(()),
            gate,
            log,
            config,
            counters: Mutex::new(Counters::default()),
            timings: Timings::default(),
            limit,
            waker: Mutex::new(None),
            leader_waker: Mutex::new(None),
        }
    }

    /// Wakes the thread that does the background work.
    pub(crate) fn wake(&self) {
        let waker = lock(&self.waker).clone();
        if let Some(waker) = waker {
            waker();
        }
    }

    /// Why the journal was stopped, if it was.
    pub(crate) fn failure(&self) -> Option<Error> {
        lock(&self.commits).failed.clone()
    }

    /// The newest durable transaction.
    pub(crate) fn durable(&self) -> Tid {
        lock(&self.commits).durable
    }

    /// True if the calling thread keeps transaction `tid` open.
    pub(crate) fn is_open_here(&self, tid: Tid) -> bool {
        let core = lock(&self.core);
        core.running.holders.contains(&thread::current().id()) && tid.at_or_after(core.running.tid)
    }

    /// As the leader: waits for holds and closes the running transaction. `None` if there is nothing in it.
    pub(crate) fn close_running(&self) -> Option<InFlight> {
        let mut core = lock(&self.core);
        while !core.running.holders.is_empty() {
            core = wait(&self.released, core);
        }
        (!core.running.is_empty()).then(|| core.close(self.config.clock.monotonic()))
    }

    /// Nothing may change any more; the log's superblock remembers why.
    pub(crate) fn abort(&self, e: &Error) {
        const EIO: i32 = 5;
        let first = {
            let mut core = lock(&self.core);
            let first = core.aborted.is_none();
            core.aborted.get_or_insert(e.clone());
            first
        };
        if let (true, Some(log)) = (first, &self.log) {
            // The device may be gone: what matters is in memory.
            log.set_errno(EIO).ok();
        }
        lock(&self.commits).failed.get_or_insert(e.clone());
    }

    /// As [`Shared::abort`], without an error: whoever runs the volume has asked for it.
    pub(crate) fn shut_down(&self) {
        lock(&self.core).aborted.get_or_insert(Error::ShutDown);
        lock(&self.commits).failed.get_or_insert(Error::ShutDown);
    }

    /// Runs what makes a commit wait for a checkpoint.
    pub(crate) fn stalled<T>(&self, checkpoints: impl FnOnce() -> T) -> T {
        let begun = self.config.clock.monotonic();
        let done = waiting(WaitFor::LogSpace, checkpoints);
        self.timings.checkpoint_stall.record(self.config.clock.monotonic().saturating_sub(begun));
        done
    }

    /// A checkpoint that began at `begun` has ended.
    pub(crate) fn checkpointed(&self, home_blocks: usize, begun: Duration) {
        self.timings.checkpoint.record(self.config.clock.monotonic().saturating_sub(begun));
        lock(&self.counters).checkpointed(home_blocks);
    }

    /// Bytes of images that the log may pin before it is relieved of some.
    pub(crate) fn pinned_bound(&self) -> u64 {
        self.config.cache_bytes.max(LEAST_PINNED)
    }

    /// Bytes of images that the log pins.
    pub(crate) fn pinned_bytes(&self) -> u64 {
        lock(&self.core).stats().live as u64 * self.config.block_size.bytes64()
    }
}
