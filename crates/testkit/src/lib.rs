//! What tests, the simulator and the lab share, and the product does not contain.
//!
//! | module            | what it has                                                                          |
//! |-------------------|--------------------------------------------------------------------------------------|
//! | [`rng`]           | the one pseudorandom number generator of the workspace                               |
//! | [`clock`]         | time that passes only on demand                                                      |
//! | [`virtual_threads`] | real threads of which one runs at a time, on such a clock                          |
//! | [`image`]         | the bytes of a device, shared between versions                                       |
//! | [`crash`], [`powerloss`] | a device with a volatile write cache, and what a power cut leaves of it       |
//! | [`nvram`]         | byte-addressable memory whose power can go                                           |
//! | [`fault`]         | a device that fails on demand                                                        |
//! | [`model`]         | a device with modelled costs                                                         |
//! | [`tools`]         | mke2fs, e2fsck, and mounts by the kernel                                             |
//! | [`tar`]           | parts of tar archives, byte by byte                                                  |
//! | [`harness`]       | the runner of integration tests, which reports skipped tests as such                 |
//! | [`needs`]         | what tests need, and how a test without it is skipped                                |
//! | `interleave`      | explored interleavings of threads (feature `shuttle`)                                |
//!
//! Of the workspace, it relies on quire-device alone, so that the tests of every crate above it can use this one.
#![forbid(unsafe_code)]

pub mod clock;
pub mod crash;
pub mod fault;
pub mod harness;
pub mod image;
#[cfg(feature = "shuttle")]
pub mod interleave;
pub mod model;
pub mod needs;
pub mod nvram;
pub mod powerloss;
pub mod rng;
pub mod tar;
pub mod tools;
pub mod virtual_threads;

pub use clock::VirtualClock;
pub use crash::{CachedWrite, Crash, CrashPoint};
pub use fault::{Fault, FaultKind, Faulty};
pub use image::Image;
pub use model::{Model, Modelled};
pub use needs::{has, is_root, needs_mounts, needs_root, needs_tools, skip};
pub use nvram::{NvramCrashPoint, NvramModel, NvramRecording};
pub use powerloss::{Completion, DiscardAs, PowerLossDevice, PowerLossOptions, Recording};
pub use quire_device::MemDevice;
pub use quire_testkit_macros::test;
pub use rng::Rng;
pub use tools::{Mounted, fsck, mke2fs, run};
pub use virtual_threads::VirtualThreads;
