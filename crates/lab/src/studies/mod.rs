//! The papers' experiments, and ours: workloads on modelled devices, their tables with the papers' numbers beside ours, and the claims
//! that they are held to. Most run in virtual time ([`crate::rig`]): exact, cheap, the same on every machine.
//!
//! - [`streams`], [`okeanos`]: synchronous small appends on a 15,000 rpm disk.
//! - [`fileserver`]: RFJ's file server on a 7,200 rpm disk.
//! - [`sqlite`]: JoJ's 24 cases, on mounts.
//! - [`isolation`]: one thread's fsync beside another's stream.
//! - [`table1`]: what TPC-C on SQLite makes a journal do; on a mount, by counts.

pub mod claims;
pub mod fileserver;
pub mod isolation;
pub mod okeanos;
pub mod sqlite;
pub mod streams;
pub mod table1;
