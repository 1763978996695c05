//! Files and directories over journaled blocks: the [`Volume`].
//!
//! A metadata operation is a function over an [`Op`], run under the one metadata mutex, in memory only; see
//! docs/design.md, "An operation". File data lives in pages outside of it.
#![forbid(unsafe_code)]

pub mod alloc;
pub mod attr;
mod close;
pub mod dir;
pub mod error;
mod fail;
pub mod journal_open;
pub mod map;
mod op;
mod open;
pub mod options;
mod state;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod trim;
mod volume;

pub use attr::Attr;
pub use error::{Error, Result};
pub use op::Op;
pub use open::Devices;
pub use options::Options;
pub use volume::{Batch, Volume};
