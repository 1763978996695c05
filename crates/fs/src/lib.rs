//! Files and directories over journaled blocks: the [`Volume`].
//!
//! A metadata operation is a function over an [`Op`], run under the one metadata mutex, in memory only; see
//! docs/design.md, "An operation". File data lives in pages outside of it.
#![forbid(unsafe_code)]

mod acl;
pub mod alloc;
pub mod attr;
mod changes;
pub mod choices;
mod close;
pub mod dir;
pub mod error;
mod evict;
mod fail;
pub mod file;
pub mod flags;
pub mod inode_ops;
pub mod journal_open;
mod kinds;
pub mod map;
mod mode;
mod mounted;
pub mod namei;
mod op;
mod open;
pub mod options;
pub mod orphan;
#[cfg(test)]
mod quire_log_tests;
mod state;
pub mod statfs;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod trim;
mod volume;
pub mod xattr;

pub use attr::Attr;
pub use choices::{Choices, Profile};
pub use error::{Error, Result};
pub use inode_ops::{Cred, New, NewKind, Privileges, SetAttr, SetTime};
pub use mode::{FileMode, ModeRule};
pub use namei::RenameFlags;
pub use op::Op;
pub use open::{Devices, first_superblock};
pub use options::Options;
pub use quire_journal::JournalStats;
pub use statfs::StatFs;
pub use volume::{Batch, Volume};
pub use xattr::XattrFlags;
