//! File data, from a write to durable.
//!
//! ```text
//!            in place (none, writeback, ordered)                         journal, chattr +j
//! write ──> pages ──round──> data blocks, complete ──> operation ─┐   write ──> operation: data and metadata
//!                                                                 └──> transaction <──┘
//! ```
//! Pages live by (inode, file block) outside the metadata mutex; blocks for new ones are chosen when they are written back.
//! What each step guarantees (F) stands at the head of its file and in docs/invariants.md.

mod background;
mod clean;
mod copy;
mod direct;
mod fallocate;
mod fsync;
mod journaled;
mod lane;
mod pending;
mod read;
mod round;
mod route;
mod seek;
mod state;
mod table;
#[cfg(test)]
mod tests;
mod truncate;
mod write;
mod writeback;

pub(crate) use background::Ticks;
pub use background::{Background, Step, Stop};
pub use fallocate::Falloc;
pub use route::AutoFigures;
pub use seek::{FileExtent, Seek};
pub(crate) use table::Files;
pub use write::WriteFlags;
pub(crate) use write::is_journaled_file;

use crate::error::{Error, Result};
use crate::volume::Volume;

impl Volume {
    /// Waits while the volume is frozen.
    ///
    /// # Errors
    /// The volume is read-only, and why.
    pub(crate) fn may_write(&self) -> Result<()> {
        loop {
            match self.inner.check_writable() {
                Err(Error::Frozen) => self.inner.wait_thawed(),
                result => return result,
            }
        }
    }
}
