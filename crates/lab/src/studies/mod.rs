//! The papers' experiments, and ours: workloads on modelled devices, their tables with the papers' numbers beside ours,
//! and the claims that they are held to. Most run in virtual time ([`crate::rig`]): exact, cheap, the same on every
//! machine.
//!
//! - [`streams`], [`okeanos`]: synchronous small appends on a 15,000 rpm disk.
//! - [`fileserver`]: RFJ's file server on a 7,200 rpm disk.
//! - [`sqlite`]: JoJ's 24 cases, on mounts.
//! - [`mounts`]: the papers' workloads on mounts, beside the kernel's ext4.
//! - [`isolation`]: one thread's fsync beside another's stream.
//! - [`latency`]: one small durable write, journaled in NVRAM; in memory, through library, FUSE and kernel.
//! - [`randwrite`]: DJFS' random writes, with an fsync never to always.
//! - [`figure10`]: what DJFS' base images cost the page cache.
//! - `device`: what the models take, in words.
//! - [`tpcc`], [`table1`]: DJFS' TPC-C on SQLite on the library ([`crate::work::vfs`]): how fast, and what the journal
//!   does.

mod device;
pub mod figure10;
pub mod fileserver;
pub mod isolation;
pub mod latency;
pub mod mounts;
pub mod okeanos;
pub mod randwrite;
pub mod sqlite;
pub mod streams;
pub mod table1;
pub mod tpcc;
pub mod ways;

/// Whether the kernel has NILFS2, with which Okeanos compares in figures 4c and 4d.
const NILFS: &str =
    "NILFS2 (figures 4c, 4d): the kernel here has no such file system (/proc/filesystems), nor a module of it";
