//! Quire's log in NVRAM: the same records as in the block log ([`crate::qlog`]), laid out by the byte. All numbers are
//! big-endian.
//!
//! ```text
//! 0x0000  label, slot 0 (128 bytes)      one of the two is valid, at least: the one that is not in use is overwritten
//! 0x1000  label, slot 1
//! 0x2000  region 0 | region 1 | ...      equally long, whole pages
//!
//! a transaction, at a multiple of the granule (64 bytes, or a block):
//!   head (64)  records and their bodies  0..   |  whole images  |  commit word (8) 0..
//!   └────────── whole granules ──────────────┘                  └──── one granule ───┘
//! ```
//! Positions count bytes since the log began and never go back: position `p` lies in region `p / region length` of all
//! that ever were, which is region number modulo their count on the memory. Checksums are seeded with the label's UUID,
//! its use of the log and the region's number: nothing that was written for another log, use or round ever matches.

pub mod head;
pub mod label;

pub use head::{Head, TxnSeed, commit_word};
pub use label::{Label, SLOTS};

/// Where regions begin.
pub const START: u64 = 0x2000;
/// Regions are multiples of this.
pub const PAGE: u64 = 4096;
/// The granule of a log whose descriptors and commits take their real size: a cache line.
pub const LINE: u32 = 64;

/// A label for tests.
#[cfg(test)]
fn sample() -> Label {
    Label {
        granule: 64,
        incompat: 0,
        uuid: [1; 16],
        fs_uuid: [2; 16],
        epoch: 3,
        sequence: 4,
        size: 1 << 20,
        regions: 2,
        block_size: crate::units::BlockSize::K4,
        tail: 640,
        tid: crate::units::Tid(9),
    }
}
