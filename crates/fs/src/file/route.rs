//! Which way the data of a file goes, and what a write request is promised.
//!
//! Guarantees F16: where requests are whole, what is pending of a file fits one transaction, so that a round can make all of it
//! durable at once.
//!
//! With `selective` (Okeanos) the updates of one block make sequences. The first of a sequence decides for all: if it is smaller than
//! the threshold they are journaled, else none is. A journaled sequence ends when the last record of the block is dead (until then
//! the block is live: [`crate::Op::is_journaled`]), one in place ends with its write-back (until then there is a page). The
//! paper ends a sequence with the home write; with the record still in the log, a later write in place would be undone by a replay.

use super::state::{File, FileState};
use crate::choices::CommitMode;
use crate::error::Result;
use crate::options::Route;
use crate::volume::{Inner, Volume};
use quire_device::sync::MutexGuard;
use std::time::Duration;

/// Most that rides, in bytes: two requests' worth, a transaction of a database that changes a thousand rows. (Half of that made large
/// transactions of SQLite's write-ahead log 1.5 times as slow where the log is overwritten soon.)
const MOST_RIDING: u64 = 2 << 20;

impl Inner {
    /// True if a crash leaves each write request whole or absent, though data waits in pages.
    pub(crate) fn whole_requests(&self) -> bool {
        matches!(self.options.route, Route::Overwrite | Route::Auto) && self.journal.has_log()
    }
}

/// The boundary of `data=auto`, and what it follows from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AutoFigures {
    /// New data of a file of at most so many bytes rides in the commit that somebody waits for; more goes in place first.
    pub threshold: u64,
    /// What a flush, and a small write, take on this device.
    pub flush: Duration,
    pub write: Duration,
    /// Bytes that it writes in a second.
    pub bandwidth: u64,
    /// Of a hundred blocks that rode, so many had to be written home; the others were overwritten or freed before.
    pub home_percent: u64,
}

/// Blocks that are taken to have been written home before any ride has ended.
const EXPECTED_HOME: u64 = 256;

impl Inner {
    /// `selective`: an update of a block that is smaller begins a sequence that is journaled, in bytes.
    pub(crate) fn write_threshold(&self) -> Option<u64> {
        let on = self.options.route == Route::Selective && self.journal.has_log();
        on.then(|| self.options.write_threshold.unwrap_or(self.sb.block_size().bytes64()))
    }

    /// True if bytes of a block are zeroed as part of an operation whatever the file's mode.
    pub(crate) fn zeroes_in_operations(&self) -> bool {
        self.whole_requests() || self.write_threshold().is_some()
    }

    /// In place, new data costs a write of its own and, where a commit does not flush before it is valid, a flush; in the
    /// log it costs its bytes once more when it is written home, if it lives that long. How often it does is what became of the data
    /// that rode before. So what can be written in the time of the one is the boundary, the larger the less often the other has to be
    /// paid, within [`MOST_RIDING`].
    pub(crate) fn auto_figures(&self) -> AutoFigures {
        let (flush, write, bandwidth) = (self.pace.flush(), self.pace.write(), self.pace.bandwidth());
        let saved = if self.options.commit_mode == CommitMode::Barrier { write } else { write + flush };
        let (least, most) = (self.sb.block_size().bytes64(), MOST_RIDING);
        let rides = self.journal.rides();
        let home = rides.home + EXPECTED_HOME;
        let break_even = self.pace.bytes_in(saved).saturating_mul(home + rides.died) / home;
        let threshold = self.options.auto_threshold.unwrap_or_else(|| break_even.clamp(least, most));
        let home_percent = 100 * home / (home + rides.died);
        AutoFigures { threshold, flush, write, bandwidth, home_percent }
    }

    /// New blocks of a file that may ride in a commit.
    pub(crate) fn ride_blocks(&self) -> usize {
        let rides = match self.options.route {
            Route::Auto => true,
            // JoJ: growth of an ordered file is journaled where that saves a flush.
            Route::Adaptive => self.options.commit_mode != CommitMode::Barrier,
            _ => false,
        };
        if !rides || !self.journal.has_log() {
            return 0;
        }
        let blocks = self.auto_figures().threshold / self.sb.block_size().bytes64();
        usize::try_from(blocks).unwrap_or(usize::MAX).min(self.journal.limit() / 2)
    }
}

impl Volume {
    /// The boundary of `data=auto`; `None` where new data goes one way only.
    #[must_use]
    pub fn auto_figures(&self) -> Option<AutoFigures> {
        (self.inner.ride_blocks() > 0).then(|| self.inner.auto_figures())
    }

    /// Bytes of a write request that is all or nothing after a crash, page-aligned; longer ones are split. `None`: the route
    /// promises nothing of the kind.
    #[must_use]
    pub fn atomic_bytes(&self) -> Option<usize> {
        let whole = self.inner.options.route == Route::Journal && self.inner.journal.has_log();
        (whole || self.inner.whole_requests()).then(|| self.request_bytes())
    }

    /// Locks a file for a write of `len` bytes. Where requests are whole, its pages that overwrite data, these included, take at most
    /// half a transaction; what is too much is written back first.
    pub(super) fn lock_with_room<'f>(&self, file: &'f File, len: usize) -> Result<MutexGuard<'f, FileState>> {
        let most = self.inner.journal.limit() / 2;
        let more = len / self.inner.sb.block_size().bytes() + 2;
        loop {
            let s = file.lock();
            // A request alone always fits: it takes half.
            if !self.inner.whole_requests() || s.overwrites() == 0 || s.overwrites() + more <= most {
                return Ok(s);
            }
            drop(s);
            self.write_back(file.ino, false, 0)?;
        }
    }
}
