//! The engine of metadata: runs operations, loads the blocks that they miss, and deals with errors of the disk.

mod core;
mod discard;
mod failure;
mod run;

pub use core::Batch;
pub(crate) use core::{Engine, Manner, Misses};
