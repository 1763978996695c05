//! Quire's block log: transactions that check themselves as a whole. All numbers are big-endian.
//!
//! ```text
//! the journal's superblock   jbd2's, with one more incompat bit and a signature in its padding ([`Signature`])
//! a transaction              a run of log blocks, contiguous but for the wrap:
//!
//!   block 0            blocks 1 .. h                blocks h .. len
//!   +------+---------+ +--+-----------------------+ +-----------------------+
//!   | head | packed  | |00| packed records        | | whole images, one to  |
//!   | 64 B | records | |  | go on            | 0  | | a block, as they are  |
//!   +------+---------+ +--+-----------------------+ +-----------------------+
//! ```
//! Guarantees:
//! - Q1: a block of the log begins with the magic only if it is the first of a transaction: packed blocks begin with
//!   a zero byte, and an image that begins with the magic is packed. So what users write is never taken for a head,
//!   wherever a reader looks, and nothing needs to be escaped;
//! - decoders never panic and never read outside of what they are given, whatever the bytes; what a checksum covers is
//!   believed only when it matches.
//!
//! Records know nothing of blocks: a log that is not made of blocks may hold the same.

pub mod delta;
pub mod head;
pub mod pack;
pub mod ranges;
pub mod record;
pub mod signature;
mod sparse;

pub use head::{Head, RunSum};
pub use record::{Kind, RECORD, Record};
pub use signature::Signature;

/// `h_blocktype` of a transaction's first block: none that jbd2 knows.
pub const BLOCK_TYPE: u32 = 0x5155_4C31;
