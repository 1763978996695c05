//! Heuristics of the engine, each of which can be turned off.

/// Heuristics of the engine that are off. All are on by default: each makes some work take less time, and a volume
/// without them keeps every promise.
///
/// ```
/// use quire_fs::{Options, Without};
/// let options = Options { without: Without { batched_frees: true, ..Without::default() }, ..Options::default() };
/// assert!(!options.without.throttle);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Without {
    /// While commits are frequent, background writeback gives the device only a few milliseconds of work at once.
    pub throttle: bool,
    /// While commits are frequent, background writeback begins at an eighth of the pages that may be dirty.
    pub early_writeback: bool,
    /// While commits are frequent, large requests of a stream wait in pages instead of going straight to the device.
    pub streams_in_pages: bool,
    /// Writers of small files do not wait for those of large ones, and a batch that makes room leaves small files alone
    /// while commits are frequent.
    pub small_files: bool,
    /// Removed files are freed together.
    pub batched_frees: bool,
}
