//! Whether new data of a file is logged with the commit that a caller waits for, or written in place before it.
//!
//! In place it costs a write of its own and, where a commit does not flush the file system's device anyway, a flush. In
//! the log it costs its bytes a second time when a checkpoint writes it home, if it lives that long. The limit is the
//! size at which both cost the same, by what this device was seen to take and by what became of earlier data.

use crate::config::Options;
use quire_device::Pace;
use quire_journal::LoggedNewData;
use quire_layout::BlockSize;
use std::time::Duration;

/// The most new data of one file that is logged, in bytes: two requests of 1 MiB, a transaction of a database that
/// changes a thousand rows. With half of that, large transactions of SQLite's write-ahead log took 1.5 times as long
/// where the log is overwritten soon.
const MAX_LOGGED_BYTES: u64 = 2 << 20;

/// Blocks that count as written home before any outcome is known, so that the first few outcomes do not decide alone.
const ASSUMED_WRITTEN_HOME: u64 = 256;

/// The limit of `data=auto`, and the measurements that it follows from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AutoThreshold {
    /// New data of a file of at most this many bytes is logged with the commit; more goes in place first.
    pub bytes: u64,
    /// The time that a flush takes on this device.
    pub flush: Duration,
    /// The time that a small write takes on this device.
    pub write: Duration,
    /// Bytes that the device writes in a second.
    pub bandwidth: u64,
    /// Percentage of logged new blocks that a checkpoint had to write home; the others were overwritten or freed
    /// before.
    pub home_percent: u64,
}

impl AutoThreshold {
    /// `flushes_anyway`: a commit flushes the file system's device whether or not it names data in place.
    pub(crate) fn new(
        options: &Options,
        bs: BlockSize,
        pace: &Pace,
        outcome: LoggedNewData,
        flushes_anyway: bool,
    ) -> Self {
        let (flush, write, bandwidth) = (pace.flush(), pace.write(), pace.bandwidth());
        let saved = if flushes_anyway { write } else { write + flush };
        let home = outcome.home + ASSUMED_WRITTEN_HOME;
        let break_even = pace.bytes_in(saved).saturating_mul(home + outcome.died) / home;
        let bytes = options.auto_threshold.unwrap_or_else(|| break_even.clamp(bs.bytes64(), MAX_LOGGED_BYTES));
        let home_percent = 100 * home / (home + outcome.died);
        AutoThreshold { bytes, flush, write, bandwidth, home_percent }
    }

    /// The new blocks of a file that may be logged with a commit, where a transaction holds at most `limit`.
    pub(crate) fn blocks(&self, bs: BlockSize, limit: usize) -> usize {
        usize::try_from(self.bytes / bs.bytes64()).unwrap_or(usize::MAX).min(limit / 2)
    }
}
