//! How a log is written: jbd2's format, or Quire's with its records and commits.

/// The format of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Style {
    /// Whole blocks, a barrier, a commit block: what the kernel and e2fsck replay.
    #[default]
    Jbd2,
    /// Transactions that check themselves (docs/format.md, "Quire's block log").
    Quire { records: Records, commit: CommitBy },
}

/// How a block is written down in Quire's log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Records {
    /// Whole.
    Whole,
    /// File data as the byte ranges that changed, metadata whole.
    DataRanges,
    /// The byte ranges that changed.
    Ranges,
    /// The compressed difference to the image logged last.
    Deltas,
}

/// What makes a transaction in Quire's log durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitBy {
    /// All but the first block, flush, then the first block with FUA.
    Barrier,
    /// One write, one flush.
    Checksum,
}

impl Style {
    /// The records of Quire's log.
    pub(crate) fn records(self) -> Option<Records> {
        match self {
            Style::Jbd2 => None,
            Style::Quire { records, .. } => Some(records),
        }
    }
}
