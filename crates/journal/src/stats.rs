//! Figures of a journal, as `/proc/fs/jbd2/DEV/info` has them, and more.

use crate::core::{CoreStats, InFlight};
use crate::journal::Journal;
use crate::nvram::{NvramLog, NvramLogFigures};
use crate::run::Kinds;
use quire_device::sync::lock;
use std::time::Duration;

/// Sums since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counters {
    transactions: u64,
    handles: u64,
    blocks: u64,
    revokes: u64,
    log_blocks: u64,
    commit_time: Duration,
    checkpoints: u64,
    home_blocks: u64,
    kinds: Kinds,
    data_flushes: u64,
}

impl Counters {
    /// A transaction of Quire's log was written.
    pub(crate) fn encoded(&mut self, kinds: Kinds, flushed_first: bool) {
        self.kinds.whole += kinds.whole;
        self.kinds.ranges += kinds.ranges;
        self.kinds.deltas += kinds.deltas;
        self.kinds.packed_bytes += kinds.packed_bytes;
        self.data_flushes += u64::from(flushed_first);
    }

    pub(crate) fn committed(&mut self, txn: &InFlight, log_blocks: u32, took: Duration) {
        self.transactions += 1;
        self.handles += txn.handles;
        self.blocks += txn.blocks.len() as u64;
        self.revokes += txn.revokes.len() as u64;
        self.log_blocks += u64::from(log_blocks);
        self.commit_time += took;
    }

    pub(crate) fn checkpointed(&mut self, home_blocks: usize) {
        self.checkpoints += 1;
        self.home_blocks += home_blocks as u64;
    }
}

/// Figures of a journal since the mount.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    pub transactions: u64,
    /// Most blocks that one transaction may hold.
    pub max_blocks: u64,
    /// Operations in all transactions.
    pub handles: u64,
    /// Blocks in all transactions.
    pub blocks: u64,
    pub revokes: u64,
    /// Log blocks written: images, descriptors, revokes, commits.
    pub log_blocks: u64,
    /// Time from closing a transaction to its being durable, summed.
    pub commit_time: Duration,
    pub checkpoints: u64,
    /// Blocks that checkpoints wrote home.
    pub home_blocks: u64,
    /// Records of Quire's log: whole images, ranges, deltas; and the bytes of those that were packed.
    pub whole_records: u64,
    pub range_records: u64,
    pub delta_records: u64,
    pub packed_bytes: u64,
    /// Flushes that a commit to Quire's log needed before it, for data in place.
    pub data_flushes: u64,
    /// Log blocks in use, and how many there are.
    pub log_used: u64,
    pub log_capacity: u64,
    /// Of a log in NVRAM.
    pub nvram: Option<NvramLogFigures>,
    pub memory: CoreStats,
}

impl Journal {
    /// Figures since the mount.
    #[must_use]
    pub fn stats(&self) -> JournalStats {
        let c = *lock(&self.counters);
        let memory = lock(&self.core).stats();
        JournalStats {
            transactions: c.transactions,
            max_blocks: self.limit() as u64,
            handles: c.handles,
            blocks: c.blocks,
            revokes: c.revokes,
            log_blocks: c.log_blocks,
            commit_time: c.commit_time,
            checkpoints: c.checkpoints,
            home_blocks: c.home_blocks,
            whole_records: c.kinds.whole,
            range_records: c.kinds.ranges,
            delta_records: c.kinds.deltas,
            packed_bytes: c.kinds.packed_bytes,
            data_flushes: c.data_flushes,
            log_used: self.log.as_ref().map_or(0, |l| u64::from(l.used())),
            log_capacity: self.log.as_ref().map_or(0, |l| u64::from(l.capacity())),
            nvram: self.log.as_ref().and_then(|l| l.nvram()).map(NvramLog::figures),
            memory,
        }
    }
}
