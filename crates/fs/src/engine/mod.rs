//! The engine of metadata: runs operations, loads the blocks that they miss, deals with errors of the disk, and knows
//! which phase the volume is in.

mod core;
mod discard;
mod disk_error;
mod failure;
pub(crate) mod lifecycle;
mod run;
mod unreadable;

pub use core::Batch;
pub(crate) use core::{Engine, Manner, Misses};
pub use lifecycle::Phase;
