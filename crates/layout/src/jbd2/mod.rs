//! The log that jbd2 writes: its superblock and its four kinds of block. All numbers are big-endian, except in
//! the fast-commit area ([`fast_commit`]).
//!
//! ```text
//! log block 0        superblock                                              (journal on a device: block 1, or 2 of 1 KiB)
//! s_first ..         descriptor  image image ..  revoke ..  commit  | the next transaction ... (wraps to s_first)
//! the last blocks    fast-commit area, if the feature is set
//!
//! every block but the images:
//! 0x0 magic C03B3998   0x4 type   0x8 transaction   0xC ..
//! ```
//!
//! Guarantees: decoders never panic and never read outside their block, whatever the bytes; encoders make what
//! the kernel and e2fsck replay. How a block is laid out depends on the features of the journal's superblock:
//! [`LogFormat`] says it.
//! Source: kernel documentation, "ext4: journal (jbd2)".

pub mod checksum;
pub mod commit;
pub mod descriptor;
pub mod fast_commit;
pub mod format;
pub mod revoke;
pub mod superblock;

pub use checksum::{LogSeed, escape, needs_escape, unescape};
pub use commit::{Commit, encode_commit};
pub use descriptor::{DescriptorBuilder, Tag, Tags};
pub use format::{BlockKind, Checksums, Header, LogFormat, TagChecksum};
pub use revoke::{RevokeBuilder, Revokes};
pub use superblock::{JournalFeatures, JournalSuperblock};

/// `h_magic` of every log block that is not an image.
pub const MAGIC: u32 = 0xC03B_3998;

/// Bytes of the header at the start of a log block.
pub const HEADER: usize = 12;
