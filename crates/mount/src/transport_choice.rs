//! Which way requests come: over `/dev/fuse`, or by io_uring (FUSE_OVER_IO_URING, Linux 6.14), and what is told of it.

use quire_device::sync::Arc;
use quire_device::sync::atomic::{AtomicUsize, Ordering};
use serde::{Deserialize, Serialize};

/// The kernel's parameter that allows FUSE over io_uring.
pub(crate) const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";
/// The CPUs that the kernel may have: it has a queue for each.
const POSSIBLE_CPUS: &str = "/sys/devices/system/cpu/possible";

/// What `transport=` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TransportChoice {
    /// `/dev/fuse`: it answers more requests a second on two CPUs
    /// (docs/performance.md).
    #[default]
    Auto,
    Dev,
    Uring,
}

/// Why requests cannot come by io_uring.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    #[error("transport=uring: {PARAMETER} is N: root can write Y to it; or mount with transport=dev")]
    Disabled,
    #[error("transport=uring: this kernel has no {PARAMETER} (Linux 6.14 or newer has it); mount with transport=dev")]
    NoKernel,
    #[error("transport=uring: the kernel did not offer it, although {PARAMETER} says so; mount with transport=dev")]
    NotOffered,
    #[error("transport=uring: {0} ({PARAMETER} is Y); mount with transport=dev")]
    NoRings(std::io::Error),
}

/// Whether the kernel offers io_uring.
///
/// # Errors
/// Why it does not.
pub(crate) fn offered() -> Result<(), TransportError> {
    match std::fs::read_to_string(PARAMETER) {
        Ok(text) if text.starts_with(['Y', '1']) => Ok(()),
        Ok(_) => Err(TransportError::Disabled),
        Err(_) => Err(TransportError::NoKernel),
    }
}

/// How many CPUs the kernel may have.
pub(crate) fn possible_cpus() -> Option<usize> {
    count_ranges(std::fs::read_to_string(POSSIBLE_CPUS).ok()?.trim())
}

/// How many numbers are in a list such as `0-3,8`.
fn count_ranges(list: &str) -> Option<usize> {
    let count = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        last.checked_sub(first).map(|n| n + 1)
    };
    list.split(',').map(count).sum()
}

/// What `quire stats` shows of the transport.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransportStats {
    /// `dev` or `uring`.
    pub name: String,
    /// Queues of the kernel, one for each possible CPU; 0 with `dev`.
    pub queues: usize,
    /// Ring entries now: requests that can be in hand at once.
    pub entries: usize,
}

/// The same while it changes. It is made before the handshake, which decides.
#[derive(Debug, Default)]
pub(crate) struct TransportCounters {
    pub(crate) queues: AtomicUsize,
    pub(crate) entries: Arc<AtomicUsize>,
}

impl TransportCounters {
    pub(crate) fn stats(&self) -> TransportStats {
        let queues = self.queues.load(Ordering::Relaxed);
        let name = if queues > 0 { "uring" } else { "dev" };
        TransportStats { name: name.to_owned(), queues, entries: self.entries.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn possible_cpus_are_counted() {
        for (list, count) in [("0", Some(1)), ("0-1", Some(2)), ("0-3,8", Some(5)), ("", None), ("3-1", None)] {
            assert_eq!(count_ranges(list), count, "{list}");
        }
        assert!(possible_cpus().is_none_or(|n| n >= 1));
    }
}
