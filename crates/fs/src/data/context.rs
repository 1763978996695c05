//! What all work on file data shares.

use super::staged::Updates;
use super::table::Files;
use crate::config::{CommitMode, Route, Without};
use crate::engine::Engine;
use crate::policy::{self, AutoThreshold, CacheShares, CommitRate, WritebackLimits};
use quire_device::sync::{Arc, Mutex, lock};
use quire_device::{Histogram, Pace};
use quire_layout::BlockSize;
use std::time::Duration;

/// Parts of a transaction that one request writes at most: a half. A transaction takes a quarter of the log and half of
/// the cache at most.
const REQUESTS_PER_TRANSACTION: usize = 2;

/// The data of all files of a volume.
pub(crate) struct Data {
    pub engine: Arc<Engine>,
    pub files: Files,
    pub(super) updates: Updates,
    pub limits: WritebackLimits,
    /// The measured speed of the device.
    pub pace: Arc<Pace>,
    /// How long calls of fsync took.
    pub fsync: Histogram,
    /// When a piece of writeback was last complete, by the monotonic clock.
    pub(super) piece_completed: Mutex<Duration>,
    commit_rate: Mutex<CommitRate>,
}

impl Data {
    pub(crate) fn new(engine: Arc<Engine>, pace: Arc<Pace>) -> Self {
        let block_bytes = engine.context.block_size().bytes();
        let shares = CacheShares::new(engine.context.options.cache_bytes, block_bytes);
        Data {
            files: Files::new(&shares, engine.journal.gate().clone()),
            updates: Updates::default(),
            limits: WritebackLimits::new(shares.unwritten_pages(), block_bytes),
            engine,
            pace,
            fsync: Histogram::default(),
            piece_completed: Mutex::default(),
            commit_rate: Mutex::default(),
        }
    }

    pub(super) fn block_size(&self) -> BlockSize {
        self.engine.context.block_size()
    }

    /// True if a crash leaves each write request whole or absent although its data waits in pages (F16).
    pub(super) fn whole_requests(&self) -> bool {
        self.engine.context.route.whole_requests()
    }

    /// The new blocks of a file that may be logged with a commit; 0 where the route writes all of them in place.
    pub(super) fn log_limit(&self) -> usize {
        let limit = self.engine.journal.limit();
        self.auto_threshold().map_or(0, |threshold| threshold.blocks(self.block_size(), limit))
    }

    /// The limit of `data=auto`; `None` where new data goes one way only.
    pub(crate) fn auto_threshold(&self) -> Option<AutoThreshold> {
        let (context, journal) = (&self.engine.context, &self.engine.journal);
        let options = &context.options;
        if options.route != Route::Auto || !context.route.has_log() {
            return None;
        }
        let flushes_anyway = options.commit_mode == CommitMode::Barrier && !journal.log_is_apart();
        let outcome = journal.logged_new_data();
        Some(AutoThreshold::new(options, self.block_size(), &self.pace, outcome, flushes_anyway))
    }

    /// Bytes that one request writes at most; longer writes are split. Where data is journaled, a request is atomic.
    pub(crate) fn request_bytes(&self) -> usize {
        let blocks = (self.engine.journal.limit() / REQUESTS_PER_TRANSACTION).max(1);
        policy::WRITE_BYTES_AT_ONCE.min(blocks * self.block_size().bytes())
    }

    /// Bytes of pages that wait for writeback.
    pub(crate) fn unwritten_bytes(&self) -> u64 {
        (self.files.pages() * self.block_size().bytes()) as u64
    }

    /// Notes that a caller waits for a commit, or a flush.
    pub(super) fn note_commit(&self) {
        lock(&self.commit_rate).note(self.engine.clock.monotonic());
    }

    /// True while callers make small changes durable again and again. Then work that no caller waits for goes in small
    /// pieces.
    pub(crate) fn commits_are_frequent(&self) -> bool {
        lock(&self.commit_rate).is_frequent(self.engine.clock.monotonic())
    }

    /// Heuristics that are off.
    pub(crate) fn without(&self) -> Without {
        self.engine.context.options.without
    }
}
