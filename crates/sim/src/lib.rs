//! Power-loss simulator: a seed makes a workload, a device with a volatile cache records it, the power is cut
//! everywhere, and what is recovered must be a state that the model allows.
//!
//! Everything follows from the seed: one thread, a virtual clock, a simulated device.
#![forbid(unsafe_code)]
pub mod ace;
pub mod campaign;
pub mod check;
pub mod explore;
pub mod faults;
pub mod flip;
pub mod hostile;
pub mod known;
pub mod mixes;
pub mod model;
pub mod nvram;
pub mod observe;
pub mod ops;
mod outcomes;
pub mod run;
pub mod shrink;
#[cfg(feature = "shuttle")]
pub mod writers;
