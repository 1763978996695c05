//! Figures of a journal, as `/proc/fs/jbd2/DEV/info` has them, and more.

use crate::core::{CoreStats, InFlight};
use crate::journal::Journal;
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
}

impl Counters {
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
    /// Log blocks in use, and how many there are.
    pub log_used: u64,
    pub log_capacity: u64,
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
            log_used: self.log.as_ref().map_or(0, |l| u64::from(l.used())),
            log_capacity: self.log.as_ref().map_or(0, |l| u64::from(l.capacity())),
            memory,
        }
    }
}
