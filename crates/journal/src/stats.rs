//! Statistics of a journal, as `/proc/fs/jbd2/DEV/info` has them, and more.

use crate::core::{CoreStats, InFlight};
use crate::log::Log;
use crate::nvram::{NvramLog, NvramLogStats};
use crate::run::Kinds;
use quire_device::{Histogram, Latencies};
use std::time::Duration;

/// How long the journal's work took.
#[derive(Default)]
pub(crate) struct Timings {
    pub commit: Histogram,
    pub checkpoint: Histogram,
    pub checkpoint_stall: Histogram,
}

/// How long the journal's work took, since the mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalLatencies {
    /// From closing a transaction to its being durable.
    pub commit: Latencies,
    /// From choosing what goes home to the free log space.
    pub checkpoint: Latencies,
    /// Commits that had to wait for log space, or memory, that a checkpoint made.
    pub checkpoint_stall: Latencies,
}

impl Timings {
    pub(crate) fn snapshot(&self) -> JournalLatencies {
        JournalLatencies {
            commit: self.commit.snapshot(),
            checkpoint: self.checkpoint.snapshot(),
            checkpoint_stall: self.checkpoint_stall.snapshot(),
        }
    }
}

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
    pub(crate) fn encoded(&mut self, kinds: Kinds) {
        self.kinds.whole += kinds.whole;
        self.kinds.ranges += kinds.ranges;
        self.kinds.deltas += kinds.deltas;
        self.kinds.packed_bytes += kinds.packed_bytes;
    }

    /// Data in place took a flush before the commit that names it.
    pub(crate) fn flushed_data(&mut self) {
        self.data_flushes += 1;
    }

    pub(crate) fn committed(&mut self, txn: &InFlight, log_blocks: u32, took: Duration) {
        self.transactions += 1;
        self.handles += txn.handles;
        self.blocks += txn.blocks.len() as u64;
        self.revokes += txn.revokes.len() as u64;
        self.log_blocks += u64::from(log_blocks);
        self.commit_time += took;
    }

    pub(crate) fn written_home(&mut self, home_blocks: usize) {
        self.home_blocks += home_blocks as u64;
    }

    pub(crate) fn checkpointed(&mut self, home_blocks: usize) {
        self.checkpoints += 1;
        self.written_home(home_blocks);
    }
}

/// Statistics of a journal since the mount.
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
    /// Flushes that a commit needed before it, for data in place: to Quire's log, or to one on another device.
    pub data_flushes: u64,
    /// Log blocks in use, and how many there are.
    pub log_used: u64,
    pub log_capacity: u64,
    /// Of a log in NVRAM.
    pub nvram: Option<NvramLogStats>,
    pub memory: CoreStats,
}

impl Counters {
    /// With what the log, memory and the limit of a transaction are now.
    pub(crate) fn stats(self, limit: usize, log: Option<&Log>, memory: CoreStats) -> JournalStats {
        JournalStats {
            transactions: self.transactions,
            max_blocks: limit as u64,
            handles: self.handles,
            blocks: self.blocks,
            revokes: self.revokes,
            log_blocks: self.log_blocks,
            commit_time: self.commit_time,
            checkpoints: self.checkpoints,
            home_blocks: self.home_blocks,
            whole_records: self.kinds.whole,
            range_records: self.kinds.ranges,
            delta_records: self.kinds.deltas,
            packed_bytes: self.kinds.packed_bytes,
            data_flushes: self.data_flushes,
            log_used: log.map_or(0, |l| u64::from(l.used())),
            log_capacity: log.map_or(0, |l| u64::from(l.capacity())),
            nvram: log.and_then(Log::nvram).map(NvramLog::stats),
            memory,
        }
    }
}
