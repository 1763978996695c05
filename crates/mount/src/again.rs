//! Requests that are answered again, from the beginning: what they missed is in memory now.
//!
//! ```text
//! answer ─> metadata is missing ─> suspended; the device reads ─> Again ─> a worker answers it
//! ```
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

/// Requests that can be answered again.
pub(crate) type Again = SessionQueue<Kept>;
