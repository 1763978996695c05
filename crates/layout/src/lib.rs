//! What bytes mean: the on-disk structures of ext4, jbd2 and Quire's own log records.
//!
//! Guarantees: no I/O, no `unsafe`, no panic on any input; every decoder checks bounds and checksums and
//! names the structure that is wrong ([`Corrupt`]). Numbers that count or address something have a type
//! ([`units`]). Kernel field names appear here and nowhere above.
#![forbid(unsafe_code)]

pub mod acl;
pub mod bitmap;
pub mod bytes;
pub mod checksum;
pub mod descriptors;
pub mod dir;
pub mod error;
pub mod extent;
pub mod features;
pub mod group_desc;
pub mod indirect;
pub mod inline_data;
pub mod inode;
pub mod jbd2;
pub mod number_map;
pub mod nvlog;
pub mod orphan_file;
pub mod qlog;
pub mod recognise;
pub mod superblock;
pub mod units;
pub mod xattr;

pub use error::{Corrupt, Structure, Unsupported};
pub use recognise::{NotExt4, recognise};
pub use units::{BlockNo, BlockSize, FileBlock, GroupNo, Ino, LogBlock, Tid};
