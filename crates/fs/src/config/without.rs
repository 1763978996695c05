//! Heuristics of the engine, each of which can be turned off.

/// Heuristics of the engine that are off. All are on by default: each makes some work take less time, and a volume
/// without them keeps every promise.
///
/// ```
/// use quire_fs::{Options, Without};
/// let options = Options { without: Without { gathering: true, ..Without::default() }, ..Options::default() };
/// assert!(!options.without.pieces);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Without {
    /// A batch of writeback goes to the device in pieces.
    pub pieces: bool,
    /// A piece that no caller waits for waits for the commit that is being written.
    pub commit_first: bool,
    /// While commits are frequent, large requests of a stream wait in pages instead of going straight to the device.
    pub streams_in_pages: bool,
    /// Writers of small files do not wait for those of large ones, and a batch that makes room leaves small files alone
    /// while commits are frequent.
    pub small_files: bool,
    /// A commit waits for callers that are about to come, where a commit takes long.
    pub gathering: bool,
}
