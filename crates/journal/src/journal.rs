//! The journal as its users see it: handles, loads, commits.
//!
//! Guarantees: [`Journal::commit`] returns success only when the transaction is durable; a failure is final and every
//! later commit reports it (J5). Commits are serial: n+1 is written only when n is durable or there is no log (J6).
//!
//! Locks, outer first: `checkpointing`, core, `commit` (a leaf: handles ask what is durable). A leader is marked by
//! `CommitState::leader`, holds no lock during I/O, and is the only one to close a transaction.

use crate::core::{Core, InFlight, Rides};
use crate::encode;
use crate::error::Error;
use crate::handle::Handle;
use crate::log::Log;
use crate::stats::Counters;
use crate::style::{CommitBy, Records, Style};
use crate::waiting::CommitState;
use quire_cache::Image;
use quire_device::sync::thread::ThreadId;
use quire_device::sync::{Arc, Condvar, Mutex, lock, thread, wait};
use quire_device::{Buf, Clock, Epoch, FlushGate, Io, Mutant, Region};
use quire_layout::{BlockNo, BlockSize, Tid};
use std::time::Duration;

/// How a journal works.
#[derive(Clone)]
pub struct JournalConfig {
    pub block_size: BlockSize,
    pub clock: Arc<dyn Clock>,
    /// Clean images kept in memory, in bytes.
    pub cache_bytes: u64,
    /// The format of the log.
    pub style: Style,
}

impl JournalConfig {
    /// A log in jbd2's format.
    #[must_use]
    pub fn new(block_size: BlockSize, clock: Arc<dyn Clock>, cache_bytes: u64) -> Self {
        JournalConfig { block_size, clock, cache_bytes, style: Style::Jbd2 }
    }
}

/// What a load found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loaded {
    /// Blocks read from the device.
    pub blocks: usize,
}

/// How changes become durable at once.
pub struct Journal {
    pub(crate) core: Mutex<Core>,
    /// A hold on the running transaction ended.
    released: Condvar,
    /// A commit that had chosen its bases ended.
    pub(crate) unchosen: Condvar,
    pub(crate) commit: Mutex<CommitState>,
    pub(crate) committed: Condvar,
    /// One checkpoint at a time. Held across I/O, taken before `core`.
    pub(crate) checkpointing: Mutex<()>,
    pub(crate) gate: Arc<FlushGate>,
    pub(crate) log: Option<Log>,
    pub(crate) config: JournalConfig,
    pub(crate) counters: Mutex<Counters>,
    limit: usize,
    /// Wakes who does the background work.
    waker: Mutex<Option<Waker>>,
    /// Wakes who leads for suspended callers.
    pub(crate) leader_waker: Mutex<Option<Waker>>,
}

pub(crate) type Waker = Arc<dyn Fn() + Send + Sync>;

/// Bytes of images that a transaction may hold where the log has room for them, however small the cache is: some write
/// requests of 1 MiB.
const LEAST_LIMIT: u64 = 4 << 20;
/// Largest transaction without a log, in blocks.
const LIMIT_WITHOUT_LOG: usize = 8192;
/// Blocks to a device read or write, at most.
pub(crate) const RUN: usize = 256;

impl Journal {
    /// A journal without a log: a commit writes home and flushes, and is not atomic (`data=none`).
    #[must_use]
    pub fn without_log(gate: Arc<FlushGate>, config: JournalConfig) -> Self {
        Self::new(gate, None, Tid(2), LIMIT_WITHOUT_LOG, config)
    }

    /// A journal in a recovered, empty log.
    #[must_use]
    pub fn with_log(gate: Arc<FlushGate>, mut log: Log, config: JournalConfig) -> Self {
        if let Some(records) = config.style.records() {
            log.set_quire(records.features());
        }
        // As jbd2: a transaction takes a quarter of the log at most, so that commits need not wait for checkpoints.
        let limit = encode::images_in(&log.format, usize::try_from(log.capacity() / 4).expect("fits"));
        let limit = log.nvram().map_or(limit, |n| n.most_blocks());
        // And half of the cache at most: what a transaction holds stays in memory while it is open and while it is
        // written.
        let largest = (config.cache_bytes / 2).max(LEAST_LIMIT);
        let limit = limit.min(usize::try_from(largest >> config.block_size.bits()).unwrap_or(usize::MAX));
        let first = log.sequence();
        Self::new(gate, Some(log), first, limit, config)
    }

    fn new(gate: Arc<FlushGate>, log: Option<Log>, first: Tid, limit: usize, config: JournalConfig) -> Self {
        let cache_blocks = usize::try_from(config.cache_bytes / config.block_size.bytes64()).unwrap_or(usize::MAX);
        let durable = Tid(first.0.wrapping_sub(1));
        let mut core = Core::new(cache_blocks, first);
        if matches!(config.style.records(), Some(Records::DataRanges | Records::Ranges)) {
            core.keep_bases = (cache_blocks / 2).max(64);
        }
        Journal {
            core: Mutex::new(core),
            released: Condvar::new(),
            unchosen: Condvar::new(),
            commit: Mutex::new(CommitState::new(durable)),
            committed: Condvar::new(),
            checkpointing: Mutex::new(()),
            gate,
            log,
            config,
            counters: Mutex::new(Counters::default()),
            limit,
            waker: Mutex::new(None),
            leader_waker: Mutex::new(None),
        }
    }

    /// Who does the background work ([`Journal::checkpoint_step`]) is to be woken so when there is some that should not
    /// wait.
    pub fn on_work(&self, waker: impl Fn() + Send + Sync + 'static) {
        *lock(&self.waker) = Some(Arc::new(waker));
    }

    /// Wakes who does the background work.
    pub fn wake(&self) {
        let waker = lock(&self.waker).clone();
        if let Some(waker) = waker {
            waker();
        }
    }

    /// Who calls [`Journal::lead_suspended`] is to be woken so when suspended callers are left and nobody leads.
    pub fn on_suspended(&self, waker: impl Fn() + Send + Sync + 'static) {
        *lock(&self.leader_waker) = Some(Arc::new(waker));
    }

    /// Nobody is to be woken any more for suspended callers: whoever commits serves them.
    pub fn forget_suspended_waker(&self) {
        *lock(&self.leader_waker) = None;
        self.lead_suspended();
    }

    /// Begins a set of changes. The handle holds the core's lock: no I/O until it ends.
    pub fn handle(&self) -> Handle<'_> {
        Handle::new(lock(&self.core), self.limit)
    }

    /// Reads blocks that are not in memory. Neighbours are read at once.
    ///
    /// # Errors
    /// The device failed, or a block lies outside it.
    pub fn load(&self, blocks: &[BlockNo]) -> Result<Loaded, Error> {
        let mut wanted: Vec<BlockNo> = blocks.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let mut loaded = 0;
        loop {
            let load = {
                let mut core = lock(&self.core);
                wanted.retain(|b| core.image(*b).is_none());
                if wanted.is_empty() {
                    return Ok(Loaded { blocks: loaded });
                }
                core.begin_load(&wanted)
            };
            let read = self.read_home(&wanted);
            let mut core = lock(&self.core);
            match read {
                Ok(images) => {
                    loaded += images.len();
                    wanted = core.end_load(load, images);
                }
                Err(e) => {
                    core.end_load(load, Vec::new());
                    return Err(e);
                }
            }
        }
    }

    /// Says that file data was written to the homes of these runs of blocks, besides the journal: complete, or failed.
    /// What memory, or a load under way, holds of them is void (J3). Discards count as writes.
    pub fn written_in_place(&self, runs: impl IntoIterator<Item = (BlockNo, u32)>) {
        let mut core = lock(&self.core);
        let stamp = self.gate.stamp();
        for (start, len) in runs {
            core.note_unflushed(start, len, stamp);
            (0..u64::from(len)).for_each(|n| core.written_in_place(start.plus(n)));
        }
    }

    fn read_home(&self, sorted: &[BlockNo]) -> Result<Vec<(BlockNo, Image)>, Error> {
        let bs = self.config.block_size;
        let runs: Vec<&[BlockNo]> = sorted.chunk_by(|a, b| a.0 + 1 == b.0).flat_map(|r| r.chunks(RUN)).collect();
        let batch = (runs.iter())
            .map(|r| Io::Read { at: bs.offset(r[0]), buf: Buf::zeroed(r.len() * bs.bytes()), region: Region::Metadata })
            .collect();
        let done = self.gate.device().run(batch)?;
        let mut images = Vec::with_capacity(sorted.len());
        for (run, buf) in runs.iter().zip(&done.reads) {
            for (b, bytes) in run.iter().zip(buf.chunks_exact(bs.bytes())) {
                images.push((*b, Arc::new(Buf::copy_of(bytes))));
            }
        }
        Ok(images)
    }

    /// The transaction that is open now.
    #[must_use]
    pub fn running(&self) -> Tid {
        lock(&self.core).running.tid
    }

    /// True if the open transaction holds changes.
    #[must_use]
    pub fn has_changes(&self) -> bool {
        !lock(&self.core).running.is_empty()
    }

    /// The newest durable transaction.
    #[must_use]
    pub fn durable(&self) -> Tid {
        lock(&self.commit).durable
    }

    /// Keeps the running transaction open until the hold is dropped, so that several operations share it.
    pub fn hold(&self) -> TxnHold<'_> {
        let mut core = lock(&self.core);
        let owner = thread::current().id();
        core.running.holders.push(owner);
        TxnHold { journal: self, tid: core.running.tid, owner }
    }

    /// True if the calling thread keeps the running transaction open: a commit would wait for it for ever.
    #[must_use]
    pub fn is_held_here(&self) -> bool {
        lock(&self.core).running.holders.contains(&thread::current().id())
    }

    /// True if the calling thread keeps transaction `tid` open.
    pub(crate) fn is_open_here(&self, tid: Tid) -> bool {
        let core = lock(&self.core);
        core.running.holders.contains(&thread::current().id()) && tid.at_or_after(core.running.tid)
    }

    /// For data written in place that a transaction is going to name: waits for it to become durable where a commit
    /// that names it would have to flush it first (Q5). The flush of a commit does, unless none begins for so long or
    /// the wait is called off ([`FlushGate::await_others`]); where commits leave this device alone, one is begun. False
    /// if it was waited for in vain.
    pub fn await_flush(&self, stamp: Epoch, patience: Duration, called_off: impl Fn() -> bool) -> bool {
        match &self.log {
            _ if !self.names_cost_a_flush() => true,
            Some(log) if log.nvram().is_none() && Arc::ptr_eq(&self.gate, &log.gate) => {
                self.gate.await_others(stamp, patience, called_off)
            }
            // A failure meets the commit.
            _ => self.gate.ensure(stamp).is_ok(),
        }
    }

    /// True if a commit that names data which is not durable yet flushes it first, besides its own flush (Q5).
    #[must_use]
    pub fn names_cost_a_flush(&self) -> bool {
        let barrier = matches!(self.config.style, Style::Jbd2 | Style::Quire { commit: CommitBy::Barrier, .. });
        self.log.is_some() && !barrier
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
        lock(&self.commit).failed.get_or_insert(e.clone());
    }

    /// Why the journal was stopped, if it was.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        lock(&self.commit).failed.clone()
    }

    /// The newest transaction whose freed blocks may be used again: it is durable, and no checkpoint that began
    /// before may still write them (J9).
    #[must_use]
    pub fn reusable(&self) -> Tid {
        if Mutant::FreedReusedEarly.is_on() {
            return Tid(u32::MAX / 2);
        }
        let s = lock(&self.commit);
        s.checkpoint_floor.filter(|_| !Mutant::ReusedUnderCheckpoint.is_on()).unwrap_or(s.durable)
    }

    /// Returns when what was freed up to transaction `tid` may be used again: it is durable, and a checkpoint that may
    /// still write those blocks has ended.
    ///
    /// # Errors
    /// As [`Journal::commit`].
    pub fn make_reusable(&self, tid: Tid) -> Result<(), Error> {
        self.commit(tid)?;
        drop(lock(&self.checkpointing));
        Ok(())
    }

    /// As the leader: waits for holds and closes the running transaction. `None` if there is nothing in it.
    pub(crate) fn close_running(&self) -> Option<InFlight> {
        let mut core = lock(&self.core);
        while !core.running.holders.is_empty() {
            core = wait(&self.released, core);
        }
        (!core.running.is_empty()).then(|| core.close())
    }

    /// True if commits go through a log.
    #[must_use]
    pub fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Most blocks that a transaction may hold.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// What became of data that rode in commits.
    #[must_use]
    pub fn rides(&self) -> Rides {
        lock(&self.core).rides
    }

    /// The flush gate of the file system's device.
    #[must_use]
    pub fn gate(&self) -> &Arc<FlushGate> {
        &self.gate
    }
}

/// Keeps a transaction open.
pub struct TxnHold<'a> {
    journal: &'a Journal,
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
        let holders = &mut lock(&self.journal.core).running.holders;
        let mine = holders.iter().position(|h| *h == self.owner);
        holders.swap_remove(mine.expect("each hold is counted"));
        self.journal.released.notify_all();
    }
}
