//! How a set of block changes becomes durable at once.
//!
//! A [`Handle`] changes block images in memory and either joins the running transaction whole or leaves no
//! trace. [`Journal::commit`] makes a transaction durable; the caller that needs it does it. A checkpoint
//! writes committed images home and moves the tail. This crate knows blocks; it knows no inode.
//!
//! ```text
//! running ──close──> committing ──run or commit block durable──> live in the log ──home, flush, tail──> gone
//! ```
#![forbid(unsafe_code)]

mod choices;
mod core;
pub mod dump;
mod encode;
mod engine;
mod error;
pub mod geometry;
mod handle;
mod journal;
mod load;
mod log;
mod log_map;
pub mod nvram;
mod policy;
pub mod recover;
mod run;
mod stats;

pub use crate::choices::{Checkpoint, CommitMode, Format, LogChoices, Record, UnknownValue};
pub use crate::core::{CoreStats, InFlight, LoggedNewData};
pub use crate::engine::{BatchTime, Completion, EmptyLog, JournalConfig, Lead, Need, SyncError};
pub use crate::error::{Error, NvramProblem};
pub use crate::handle::{Full, Handle, Touch};
pub use crate::journal::{Journal, TxnHold};
pub use crate::load::{Load, Loaded};
pub use crate::log::{Log, MIN_LOG_BLOCKS};
pub use crate::log_map::{LogMap, LogRun};
pub use crate::nvram::{NvramLayout, NvramLog, NvramLogStats};
pub use crate::stats::{JournalLatencies, JournalStats};
pub use quire_cache::{BlockKind, Image};
