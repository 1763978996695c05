//! Hostile images: small real ones are damaged, their checksums mended, and then they are mounted, walked and written
//! to.
//!
//! Whatever the bytes say, there are only typed errors: no panic, no overflow, no hang, no unbounded memory, and no
//! write where none belongs.
//!
//! ```text
//! mke2fs, Volume ──> Base: image, places of its metadata ─┐
//! seed ──> Case: edits of bytes, seal or not ─────────────┴─> damaged image ──drive──> what it said
//! ```
//! A case prints as one line (`ext4:5124=00ff,2048=ffffffff:seal`), which parses back: that line repeats it.

pub mod base;
mod case;
mod census;
pub mod decoders;
pub mod drive;
mod history;
pub mod judge;
mod make;
mod mutate;
pub mod nvram_log;
mod places;
pub mod quire_log;
mod seal;
mod watch;

pub use base::Base;
pub use case::{Case, Edit};
pub use mutate::{field_cases, flip_count, flip_of, from_bytes, random_case};
pub use places::{Kind, Place};
