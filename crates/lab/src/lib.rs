//! The laboratory: workloads that know what they were promised, crash campaigns, comparisons with the kernel and with
//! e2fsprogs, and benchmarks. Acceptance tests and benchmarks use Quire as its users do, through the `quire` command
//! and the mount; studies in virtual time use the library on modelled devices. The judges are `e2fsck`, `debugfs` and
//! the kernel's own ext4.
//!
//! - [`mounter`]: one way to mount an image with the kernel, with fuse2fs or with Quire, and to kill it.
//! - [`interrupt`]: what a signal that ends a study leaves behind: nothing.
//! - [`served`], [`power`]: devices under mounts, with a model's latency or with a power cut on demand.
//! - [`work`]: the bank (SQLite), the storm (names), the appenders (bytes); each logs, outside of the mount, what was
//!   acknowledged.
//! - [`tree`], [`walk`]: make a tree from a seed; compare two trees.
//! - [`accept`]: the acceptance tests, each skipped by name where it cannot run.
//! - [`rig`]: the library on modelled devices in virtual time; [`studies`]: the papers' experiments on it and on
//!   mounts; [`stage`]: what an application needs of either.
//! - [`laboratory`]: the studies by name; [`runner`]: runs them; [`results`]: what they write; [`report`]: the page
//!   that is made of it.
//! - [`pages`]: power cuts under PostgreSQL and MariaDB, whose pages must not tear; [`servers`] starts them.
//! - [`mod@bench`]: rotated rounds on one loop device, medians; [`heuristics`]: on and off.

pub mod accept;
pub mod bench;
pub mod cmd;
mod dirty_limit;
pub mod heuristics;
pub mod image;
pub mod images;
pub mod interrupt;
pub mod judges;
pub mod laboratory;
pub mod mounter;
pub mod pages;
pub mod power;
pub mod powercut;
pub mod regions;
pub mod report;
pub mod results;
pub mod rig;
pub mod runner;
pub mod served;
pub mod servers;
pub mod stage;
pub mod stats;
pub mod stock;
pub mod studies;
pub mod trace;
pub mod tree;
pub mod turns;
pub mod walk;
pub mod work;
