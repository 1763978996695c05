//! File data, from a write to durable.
//!
//! ```text
//!            in place (none, writeback, ordered)                             journal, chattr +j
//! write ──> pages ──writeback──> data blocks, complete ──> operation ─┐   write ──> operation: data and metadata
//!                                                                     └──> transaction <──┘
//! ```
//! Pages live by (inode, file block) outside of the metadata mutex. Writeback chooses blocks for new pages. The head of
//! each file says which guarantees (F) it upholds; docs/invariants.md lists them.

mod begun;
mod blocks;
mod checks;
mod clean;
mod context;
mod copy;
mod direct;
mod failure;
mod fallocate;
mod file;
mod flags;
mod foresight;
mod fsync;
mod inline;
mod journaled;
mod pages;
mod preallocated;
mod read;
mod reservations;
mod seek;
mod settle;
mod staged;
mod steps;
mod table;
#[cfg(test)]
mod tests;
mod truncate;
mod update;
mod write;
mod writeback;
mod zero;

pub(crate) use begun::{Begun, DeviceRuns, begin_read, end_read, end_read_into};
pub(crate) use context::Data;
pub use copy::FilePlace;
pub(crate) use copy::copy_range;
pub(crate) use failure::{check_any_error, check_file_error};
pub use fallocate::Falloc;
pub(crate) use fallocate::fallocate;
pub use flags::WriteFlags;
pub(crate) use foresight::{coming_write, foresee_truncate};
pub(crate) use fsync::{begin_fsync, begin_sync, end_fsync, end_sync, fsync, sync};
pub(crate) use read::{Intent, read};
pub use seek::{FileExtent, Seek};
pub(crate) use seek::{extents, seek};
pub(crate) use settle::{DiskAttr, closed, drop_pages, write_back_pending};
pub(crate) use staged::Staged;
pub(crate) use truncate::truncate;
pub(crate) use update::{begin_update, can_update, commit_update, end_update, stage};
pub(crate) use write::{append, write};
pub(crate) use writeback::{Which, should_write_back, write_back_all, write_back_oldest};
