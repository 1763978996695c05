//! What is decided by cost, apart from the mechanism that carries a decision out.
//!
//! *Guarantees*: every decision here is safe either way: a different one changes how long work takes, and nothing that
//! docs/invariants.md promises. The tuning constants of this crate stand in this folder, each with its unit
//! and reason; what can be turned off is named in [`Without`](crate::Without).
//!
//! *Relies on* nothing but numbers: the functions take measurements and return decisions, and hold no locks. The
//! exception is [`RoutePolicy`], which states what a route promises; the code that keeps the promise cites it.

mod allocation;
mod background;
mod commit_rate;
mod held_back;
mod memory;
mod new_data;
mod route;
mod steps;
mod writeback;

pub(crate) use allocation::{GROUPS_TO_EXAMINE, MIN_LONG_FILE_BLOCKS, MIN_RUN_AT_GOAL};
pub(crate) use background::{CHECKPOINT_AGE, MAX_IDLE_PAUSE, MIN_IDLE_PAUSE, closed_long_ago};
pub(crate) use commit_rate::CommitRate;
pub use held_back::{may_hold_back, nearly_full};
pub(crate) use memory::CacheShares;
pub use new_data::AutoThreshold;
pub(crate) use route::RoutePolicy;
pub(crate) use steps::{
    BLOCKS_TO_REMEMBER, DIR_BLOCKS_AT_ONCE, DIR_READAHEAD_BLOCKS, DIR_SIZE_TO_REMEMBER_SCANS, EXTENTS_PER_OPERATION,
    EXTENTS_TO_FORESEE, MAX_WAITS_FOR_SPACE, NAMES_PER_OPERATION, ORPHAN_BLOCKS_PER_OPERATION, READ_BYTES_AT_ONCE,
    WRITE_BYTES_AT_ONCE, step_budget, trim_budget,
};
pub(crate) use writeback::{
    BATCH_FILES, FILES_PER_OPERATION, JOURNALED_BLOCKS_PER_PIECE, KEEP_CLEAN_PAGES, PAGES_PER_WRITE, PIECE_DEVICE_TIME,
    PIECES_AT_ONCE, RECORDS_PER_OPERATION, WritebackLimits,
};
