//! What a replay overwrites, for callers that keep it.

use crate::error::Error;
use quire_device::Buf;
use quire_layout::BlockNo;

/// Which device old content was saved from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SavedFrom {
    /// The file system's.
    Home,
    /// The log's, if it is on a device of its own.
    Log,
}

/// Receives what is about to be overwritten.
pub trait Undo {
    /// Saves the old content of blocks. It must be durable when this returns.
    ///
    /// # Errors
    /// Stops the replay before these blocks are overwritten.
    fn save(&mut self, from: SavedFrom, old: &[(BlockNo, Buf)]) -> Result<(), Error>;
}
