//! The file-system superblock: 1024 bytes at byte offset 1024 of the image.
//!
//! ```text
//! 0x000 inodes  blocks_lo  reserved_lo  free_blocks_lo | 0x010 free_inodes first_data log_bs log_cs
//! 0x020 blocks/group clusters/group inodes/group mtime | 0x030 wtime mnt_count magic state errors ...
//! 0x054 first_ino inode_size block_group_nr            | 0x05C compat incompat ro_compat
//! 0x068 uuid  0x0E0 journal_inum journal_dev last_orphan hash_seed[4] hash_version desc_size
//! 0x150 blocks_hi ... 0x178 kbytes_written  0x194 error_count 0x270 checksum_seed 0x3FC checksum
//! ```
//! The bytes are kept whole: what is not understood is written back as it was read.
//! Source: kernel documentation, "ext4: super block".

mod decode;
mod geometry;
mod growth;
mod identity;
mod record;
mod special;
mod usage;

pub use geometry::Geometry;
pub use growth::{Growth, backup_of};
pub use record::{Superblock, add_features};
pub use special::is_special;

use crate::error::{Corrupt, Structure};

/// Bytes of a superblock.
pub const SIZE: usize = 1024;
/// Where the primary superblock is, in bytes from the start of the image.
pub const OFFSET: u64 = 1024;
/// Bytes of the label.
pub const LABEL_BYTES: usize = 16;
/// `s_magic`.
pub const MAGIC: u16 = 0xEF53;

/// `s_state` bits.
pub mod state {
    pub const VALID: u16 = 1;
    pub const ERROR: u16 = 2;
    pub const ORPHAN: u16 = 4;
}

/// `s_default_mount_opts` bits.
pub mod default_opts {
    pub const DEBUG: u32 = 0x1;
    pub const BSDGROUPS: u32 = 0x2;
    pub const XATTR_USER: u32 = 0x4;
    pub const ACL: u32 = 0x8;
    pub const UID16: u32 = 0x10;
    pub const JMODE: u32 = 0x60;
    pub const JMODE_DATA: u32 = 0x20;
    pub const JMODE_ORDERED: u32 = 0x40;
    pub const JMODE_WBACK: u32 = 0x60;
    pub const NOBARRIER: u32 = 0x100;
    pub const BLOCK_VALIDITY: u32 = 0x200;
    pub const DISCARD: u32 = 0x400;
    pub const NODELALLOC: u32 = 0x800;
}

/// What to do when corruption is found (`s_errors`, mount option `errors=`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnError {
    Continue,
    RemountReadOnly,
    Panic,
}

/// The system that made the file system (`s_creator_os`), as far as it makes a difference.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreatorOs {
    Linux,
    /// Inodes have a translator's block where Linux has the version, and more bits of the mode where it has the upper
    /// half of the attribute block's number.
    Hurd,
    Other,
}

fn bad(why: &'static str) -> Corrupt {
    Corrupt::new(Structure::Superblock, why)
}
