//! Requests that are answered later, from the beginning: what they missed is in memory now, or the freeze is over.
//!
//! ```text
//! answer ─┬─> metadata is missing ─> suspended; the device reads ─┬─> Again ─> a worker answers it
//!         └─> the volume is frozen ─> kept for the thaw ──────────┘
//! ```
//! A worker takes one of them at a time: with one that it leads commits for, it may be busy for as long as others sync.
//!
//! *Guarantees* L7: a request whose metadata the device reads before it has changed anything takes no worker. What it
//! did before it missed something has changed nothing ([`quire_fs::without_waiting`]).

use crate::meter::Suspended;
use crate::session_queue::SessionQueue;
use quire_device::WaitFor;

/// A request that was suspended before it was carried out.
pub(crate) struct Kept {
    /// Whole, as the kernel sent it.
    pub request: Vec<u8>,
    pub suspended: Suspended,
    /// What it has waited for.
    pub reason: WaitFor,
    /// How many times it found no space.
    pub refusals: usize,
    /// How many times it missed metadata.
    pub misses: usize,
}

/// A request that can be answered.
pub(crate) enum Due {
    /// For the second time.
    Again(Box<Kept>),
    /// Whole, after the thaw that it was kept for.
    Thawed(Vec<u8>),
}

/// Requests that can be answered.
pub(crate) type Again = SessionQueue<Due>;
