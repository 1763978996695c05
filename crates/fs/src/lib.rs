//! Files and directories over journaled blocks: the [`Volume`].
//!
//! The modules form layers; a module uses only those above it in this list (`layers.toml` has the order, and
//! `quire-tidy` checks it).
//!
//! | module    | what it has                                                                              |
//! |-----------|------------------------------------------------------------------------------------------|
//! | `error`   | errors, each with an errno                                                               |
//! | `config`  | mount options and the four choices                                                       |
//! | `policy`  | what is decided by cost, and every tuning constant                                       |
//! | `tables`  | tables in memory: space, orphans, references, changes                                    |
//! | `txn`     | one metadata operation over block images                                                 |
//! | `records` | the superblock, group descriptors and inodes as records of such an operation             |
//! | `engine`  | the loop that runs operations, and errors of the disk                                    |
//! | `space`   | allocation of blocks and inodes                                                          |
//! | `map`     | extents and indirect blocks                                                              |
//! | `xattr`   | extended attributes on disk                                                              |
//! | `dir`     | directory blocks, hashed trees                                                           |
//! | `inode`   | inodes: made, described, changed                                                         |
//! | `names`   | lookup, create, link, unlink, rename, listings, orphans, eviction                        |
//! | `data`    | pages, locks of files, read, write, direct I/O, writeback                                |
//! | `volume`  | open, close, freeze, and the thin API                                                    |
//!
//! docs/design.md follows one write through them.
#![forbid(unsafe_code)]

mod config;
mod data;
pub mod dir;
mod engine;
mod error;
mod inode;
mod map;
mod names;
mod policy;
#[cfg(test)]
mod quire_log_tests;
mod records;
mod space;
mod tables;
#[cfg(test)]
mod testing;
mod txn;
mod volume;
mod xattr;

pub use config::{
    Atime, BatchTime, Checkpoint, Choices, CommitMode, Illegal, JournalingMode, ModeRule, Options, Profile, Record,
    Route, RuntimeOptions, UnknownValue, Without, name_matches,
};
pub use data::{Falloc, FileExtent, FilePlace, Seek, WriteFlags};
pub use dir::DirItem;
pub use engine::Batch;
pub use error::{Error, Result};
pub use inode::{Attr, Cred, New, NewKind, Privileges, SetAttr, SetTime};
pub use names::{Attributes, MAX_LINKS, RenameFlags};
pub use policy::{AutoThreshold, may_hold_back, nearly_full};
pub use quire_journal::{JournalStats, Lead};
#[cfg(any(test, feature = "shortage"))]
pub use space::shortage_for_tests as shortage;
pub use volume::{
    Admitted, Background, DeviceRead, Devices, FileUpdate, InodeFlags, Inspect, Limits, Maintenance, Outlook, Phase,
    ReadBegun, Shutdown, StatFs, Status, Step, Stop, Volume, VolumeBatch, VolumeLatencies, Xattrs, append,
    attr_before_write, begin_read, closed, commit_left, commit_then, create_alone, finish_orphans, first_superblock,
    fsync_then, leaving_commits, load_then, look, peek, read_to_change, recovery, sync_then, without_waiting,
};
pub use xattr::XattrFlags;
