//! Errors of the journal.

use quire_device::DeviceError;
use quire_layout::{Corrupt, Unsupported};

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
    /// A transaction that can never fit into the log.
    #[error("transaction of {blocks} blocks does not fit into a log of {limit}")]
    TooLarge { blocks: usize, limit: usize },
    /// The log is too short to work with.
    #[error("journal of {blocks} blocks is too small")]
    TooSmall { blocks: u32 },
}
