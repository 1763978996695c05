//! Errors of the journal.

use quire_device::DeviceError;
use quire_layout::{Corrupt, Tid, Unsupported};

/// What can go wrong with a journal.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The device failed.
    #[error("{0}")]
    Device(#[from] DeviceError),
    /// A structure of the journal breaks its rules.
    #[error("{0}")]
    Corrupt(#[from] Corrupt),
    /// A legal journal that this version cannot read.
    #[error("{0}")]
    Unsupported(#[from] Unsupported),
    /// An earlier failure has stopped the journal; nothing more becomes durable.
    #[error("journal aborted: {0}")]
    Aborted(Box<Error>),
    /// Whoever runs the volume has stopped the journal.
    #[error("shut down")]
    ShutDown,
    /// A transaction that can never fit into the log.
    #[error("transaction of {blocks} blocks does not fit into a log of {limit}")]
    TooLarge { blocks: usize, limit: usize },
    /// The log is too short to work with.
    #[error("journal of {blocks} blocks is too small")]
    TooSmall { blocks: u32 },
    /// The memory that holds the log, or should.
    #[error("{0}")]
    Nvram(#[from] NvramProblem),
}

/// Why a log in NVRAM cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NvramProblem {
    #[error(
        "the journal is in NVRAM (UUID {}): name it with nvram=PATH; if it is lost, `quire recover --discard-nvram` goes on without it",
        hex(.uuid)
    )]
    NotGiven { uuid: [u8; 16] },
    #[error("this NVRAM holds no log of Quire's")]
    NoLabel,
    #[error("this NVRAM holds something else; zero its first 8192 bytes if nobody needs it")]
    SomethingElse,
    #[error("this NVRAM is another one (UUID {}); the journal is in {}", hex(.found), hex(.wanted))]
    Another { found: [u8; 16], wanted: [u8; 16] },
    #[error("the log in this NVRAM is that of file system {}", hex(.found))]
    OtherFileSystem { found: [u8; 16] },
    #[error("the log in this NVRAM is of another time than the image's: one of the two is an older or newer copy")]
    OtherUse,
    #[error("the image is an older copy: it needs the log from transaction {} on, which begins with {} in this NVRAM", .image.0, .log.0)]
    OlderImage { image: Tid, log: Tid },
    #[error("this NVRAM is an older copy: its log ends before transaction {}, and the image has all up to {}", .log.0, .image.0)]
    OlderMemory { image: Tid, log: Tid },
    #[error(
        "this NVRAM holds transactions that {} needs (file system {}): recover that one first, or give them up with `quire recover --discard-nvram`",
        if *.same { "another copy of this image" } else { "another image" },
        hex(.uuid)
    )]
    Needed { uuid: [u8; 16], same: bool },
    #[error("this NVRAM has {have} bytes; its log needs {need}")]
    Shortened { have: u64, need: u64 },
    #[error("the NVRAM has lost bytes while it was in use: was its file truncated?")]
    Lost,
    #[error("an NVRAM of {have} bytes is too small for {regions} region(s) of transactions of at least 32 blocks")]
    TooSmall { have: u64, regions: u32 },
}

/// As UUIDs are written.
fn hex(bytes: &[u8; 16]) -> String {
    let part = |r: std::ops::Range<usize>| bytes[r].iter().map(|b| format!("{b:02x}")).collect::<String>();
    [part(0..4), part(4..6), part(6..8), part(8..10), part(10..16)].join("-")
}
