//! What of the transport is decided by cost: how many ring entries there are, and what memory they keep.
//!
//! An entry costs a page for its header, and address space of [`PAYLOAD`](super::entry::PAYLOAD) bytes of which only
//! what was touched takes memory. So a mount with 64 CPUs keeps at most 64 x [`FIRST_ENTRIES`] headers (512 KiB) and
//! [`KEPT_PAYLOADS`] x 1 MiB of payload when nothing is suspended; each suspended request adds one page, and its data
//! until it is written to the volume.

/// Entries of a queue at the beginning. With two, a request that comes while another is served finds a free one.
pub(crate) const FIRST_ENTRIES: usize = 2;

/// Entries of a mount at most: so many requests can be suspended at once (waiting for a commit or a thaw). Their
/// headers take 16 MiB. Beyond it requests wait in the kernel until one of these is answered.
pub(crate) const MAX_ENTRIES: usize = 4096;

/// Queues at most: a thread waits at each. A host that may have more CPUs is served over /dev/fuse.
pub(crate) const MAX_QUEUES: usize = 128;

/// Payload buffers of a mount that keep their memory after a large request (1 MiB each). Giving it back and touching
/// it anew costs about as much as copying its content; the rest is given back.
pub(crate) const KEPT_PAYLOADS: usize = 64;

/// Payload buffers of one queue that keep their memory: the kernel hands out the entry that was used last.
pub(crate) fn kept_payloads(queues: usize) -> usize {
    (KEPT_PAYLOADS / queues.max(1)).clamp(1, 8)
}

/// Bytes of payload up to which a request is copied out of its entry, so that its reply can be made in place. Larger
/// ones (WRITE) stay where they are, and their replies, which are short, are copied.
pub(crate) const COPIED_OUT: usize = 4096;

/// Bytes of payload from which on an entry's memory is worth giving back.
pub(crate) const GIVEN_BACK: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_payloads_are_bounded_for_any_number_of_cpus() {
        for queues in 1..=MAX_QUEUES {
            let kept = kept_payloads(queues);
            assert!(kept >= 1 && kept * queues <= KEPT_PAYLOADS.max(queues), "{queues} queues keep {kept} each");
        }
    }
}
