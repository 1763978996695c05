//! How far recovery has come, for callers that show it.

/// How far recovery has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    pub phase: Phase,
    /// Blocks done, of `total`. While scanning the total is the log's length: the scan may end earlier.
    pub done: u64,
    pub total: u64,
}

/// A part of recovery that may take long.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Scan,
    Replay,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Phase::Scan => "reading the journal",
            Phase::Replay => "replaying",
        })
    }
}
