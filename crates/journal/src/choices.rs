//! What can be chosen about a log: how a block is recorded, what makes a transaction durable, how space is reclaimed.
//!
//! The format of the log follows from these choices ([`LogChoices::format`]).

use quire_layout::qlog::signature::incompat;
use std::fmt;
use std::str::FromStr;

/// How is a journaled block written down? (`record=`)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Record {
    /// Whole.
    Block,
    /// File data as the byte ranges that changed, metadata whole (Okeanos' multiwrite blocks).
    RangeData,
    /// The byte ranges that changed, metadata too.
    Range,
    /// The difference to the image that was logged last, compressed (DJFS).
    Delta,
}

/// What makes a transaction durable? (`commit_mode=`)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CommitMode {
    /// Body, flush, then the block that makes it valid.
    Barrier,
    /// One write that checks itself, one flush.
    Checksum,
    /// Stores and fences.
    Nvram,
}

/// How is log space reclaimed? (`checkpoint=`)
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Checkpoint {
    /// When space is needed, oldest transactions first.
    Lazy,
    /// As `Lazy`; and an fsync first writes home what earlier transactions hold of the file, as ext4's does with
    /// `data=journal` (JoJ, section 2.1).
    Fsync,
    /// By so many regions, each written home when it is full (DJFS).
    Regions(u8),
}

/// The format of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Format {
    /// Whole blocks, a barrier, a commit block: what the kernel and e2fsck replay.
    Jbd2,
    /// Transactions that check themselves (docs/format.md, "Quire's block log").
    Quire,
    /// The same records in NVRAM (docs/format.md, "Quire's NVRAM log").
    Nvram,
}

/// One value of each choice that concerns the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogChoices {
    pub record: Record,
    pub commit: CommitMode,
    pub checkpoint: Checkpoint,
}

impl LogChoices {
    /// What jbd2 does.
    pub const JBD2: LogChoices =
        LogChoices { record: Record::Block, commit: CommitMode::Barrier, checkpoint: Checkpoint::Lazy };

    /// Choices for a log on a block device, which is reclaimed lazily.
    #[must_use]
    pub const fn on_device(record: Record, commit: CommitMode) -> Self {
        LogChoices { record, commit, checkpoint: Checkpoint::Lazy }
    }

    /// Choices for a log in NVRAM.
    #[must_use]
    pub const fn in_nvram(record: Record, checkpoint: Checkpoint) -> Self {
        LogChoices { record, commit: CommitMode::Nvram, checkpoint }
    }

    /// The format that the log has.
    #[must_use]
    pub const fn format(self) -> Format {
        match (self.record, self.commit) {
            (_, CommitMode::Nvram) => Format::Nvram,
            (Record::Block, CommitMode::Barrier) => Format::Jbd2,
            _ => Format::Quire,
        }
    }

    /// The features of Quire's log that a reader of such records must know. `None`: the log is jbd2's.
    pub(crate) fn features(self) -> Option<u32> {
        let deltas = if self.record == Record::Delta { incompat::DELTAS } else { 0 };
        (self.format() != Format::Jbd2).then_some(incompat::RANGES | deltas)
    }

    /// True if a record may be ranges over what lies at home.
    pub(crate) fn uses_home_bases(self) -> bool {
        matches!(self.record, Record::RangeData | Record::Range)
    }

    /// True if a filled region goes home at once.
    pub(crate) fn by_regions(self) -> bool {
        self.format() == Format::Nvram && matches!(self.checkpoint, Checkpoint::Regions(_))
    }
}

/// No value of a choice has this name.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("one of {expected} is expected")]
pub struct UnknownValue {
    expected: String,
}

impl UnknownValue {
    /// `expected`: the values that there are, separated by commas.
    #[must_use]
    pub fn new(expected: String) -> Self {
        UnknownValue { expected }
    }
}

/// Gives an enum of unit values a name for each: `ALL`, `name`, `Display` and `FromStr`.
#[macro_export]
#[doc(hidden)]
macro_rules! named_values {
    ($type:ident: $($value:ident = $name:literal),+ $(,)?) => {
        impl $type {
            pub const ALL: [$type; [$($name),+].len()] = [$($type::$value),+];

            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $($type::$value => $name),+ }
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $type {
            type Err = $crate::UnknownValue;
            fn from_str(s: &str) -> Result<Self, $crate::UnknownValue> {
                let named = $type::ALL.into_iter().find(|v| v.name() == s);
                named.ok_or_else(|| $crate::UnknownValue::new($type::ALL.map(|v| v.name()).join(", ")))
            }
        }
    };
}

named_values!(Record: Block = "block", RangeData = "range=data", Range = "range", Delta = "delta");
named_values!(CommitMode: Barrier = "barrier", Checksum = "checksum", Nvram = "nvram");

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Checkpoint::Lazy => f.pad("lazy"),
            Checkpoint::Fsync => f.pad("fsync"),
            Checkpoint::Regions(n) => write!(f, "regions:{n}"),
        }
    }
}

impl FromStr for Checkpoint {
    type Err = UnknownValue;
    fn from_str(s: &str) -> Result<Self, UnknownValue> {
        let regions = || s.strip_prefix("regions:")?.parse().ok().map(Checkpoint::Regions);
        let known = match s {
            "lazy" => Some(Checkpoint::Lazy),
            "fsync" => Some(Checkpoint::Fsync),
            _ => regions(),
        };
        known.ok_or_else(|| UnknownValue::new("lazy, fsync, regions:N".to_owned()))
    }
}
