//! How a log is written: jbd2's format, or Quire's with its records and commits.

use crate::nvram::NvramLayout;
use quire_layout::BlockSize;
use quire_layout::qlog::signature::incompat;

/// The format of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Style {
    /// Whole blocks, a barrier, a commit block: what the kernel and e2fsck replay.
    #[default]
    Jbd2,
    /// Transactions that check themselves (docs/format.md, "Quire's block log").
    Quire { records: Records, commit: CommitBy },
    /// The same records in NVRAM (docs/format.md, "Quire's NVRAM log").
    Nvram { records: Records, reclaim: Reclaim },
}

/// How the space of a log in NVRAM is used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reclaim {
    /// It goes round; the oldest transactions go home when room is needed.
    Lazily,
    /// So many regions; one that is filled goes home at once.
    ByRegions(u8),
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

impl Records {
    /// What readers must know of them.
    pub(crate) fn features(self) -> u32 {
        match self {
            Records::Whole | Records::DataRanges | Records::Ranges => incompat::RANGES,
            Records::Deltas => incompat::RANGES | incompat::DELTAS,
        }
    }
}

impl Style {
    /// How a log in NVRAM is laid out for file systems of such blocks. `None`: it is not there.
    #[must_use]
    pub fn nvram_layout(self, block_size: BlockSize) -> Option<NvramLayout> {
        let Style::Nvram { records, reclaim } = self else { return None };
        let regions = match reclaim {
            Reclaim::Lazily => 1,
            Reclaim::ByRegions(n) => n,
        };
        let whole_blocks = records == Records::Whole;
        Some(NvramLayout { block_size, regions, whole_blocks, incompat: records.features() })
    }

    /// A filled region goes home at once.
    pub(crate) fn by_regions(self) -> bool {
        matches!(self, Style::Nvram { reclaim: Reclaim::ByRegions(_), .. })
    }

    /// The records of Quire's log.
    pub(crate) fn records(self) -> Option<Records> {
        match self {
            Style::Jbd2 => None,
            Style::Quire { records, .. } | Style::Nvram { records, .. } => Some(records),
        }
    }
}
