//! Writeback: dirty pages go to the disk, and what names them into a transaction.

mod batch;
mod collect;
mod place;
mod record;
mod schedule;
mod submit;

pub(super) use collect::{Collected, Destination, Piece};
pub(super) use place::{claim_hole, must_be_journaled, unreserve};
pub(super) use record::record;
pub(crate) use schedule::{Which, or_after_writeback, should_write_back, write_back_all, write_back_oldest};
pub(super) use schedule::{limit_writer, write_back, write_back_exclusive};
