//! The way that file data takes, as far as it is fixed at mount, and what the route promises.
//!
//! With `selective` (Okeanos) the updates of one block make sequences. The first update of a sequence decides for all:
//! if it is smaller than the threshold, the sequence is journaled, else it goes in place. A journaled sequence ends
//! when the block's last record is dead; until then the block is live (`Op::is_journaled`). One in place ends with its
//! writeback; until then the file has a page. The paper ends a sequence with the home write. With the record still in
//! the log, replay would undo a later write in place.

use crate::config::{Options, Record, Route};
use quire_layout::BlockSize;

/// What the route of a mount means for file data.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoutePolicy {
    route: Route,
    has_log: bool,
    record: Record,
    /// `selective`: smaller updates of a block begin a journaled sequence, in bytes.
    threshold: u64,
}

impl RoutePolicy {
    pub(crate) fn new(options: &Options, has_log: bool, bs: BlockSize) -> Self {
        let threshold = options.write_threshold.unwrap_or(bs.bytes64());
        RoutePolicy { route: options.route, has_log, record: options.record, threshold }
    }

    pub(crate) fn has_log(&self) -> bool {
        self.has_log
    }

    /// True if a crash leaves each write request whole or absent although its data waits in pages (F16).
    pub(crate) fn whole_requests(&self) -> bool {
        matches!(self.route, Route::Overwrite | Route::Auto) && self.has_log
    }

    /// True if a crash leaves each write request whole or absent, for whatever reason.
    pub(crate) fn atomic_requests(&self) -> bool {
        self.whole_requests() || self.route == Route::Journal && self.has_log
    }

    /// `selective`: an update of a block that has fewer bytes begins a sequence that is journaled.
    pub(crate) fn write_threshold(&self) -> Option<u64> {
        (self.route == Route::Selective && self.has_log).then_some(self.threshold)
    }

    /// True if an update of a block that holds data may be logged as the byte ranges that it changes, so that what the
    /// block held is worth keeping as their base. (A delta is made over an image in the log, never over the home.)
    pub(crate) fn logs_ranges(&self) -> bool {
        let logs_overwrites =
            matches!(self.route, Route::Journal | Route::Adaptive | Route::Selective | Route::Overwrite | Route::Auto);
        self.has_log && logs_overwrites && matches!(self.record, Record::RangeData | Record::Range)
    }

    /// True if bytes of a block are zeroed as part of an operation, whatever the file's journaling mode.
    pub(crate) fn zeroes_in_operations(&self) -> bool {
        self.whole_requests() || self.write_threshold().is_some()
    }
}
