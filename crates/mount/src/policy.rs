//! What the mount decides by cost: each constant with its unit, and why it is what it is.

use std::time::Duration;

/// Pauses after which a change that found no space is tried again, while the kernel may be giving up a removed file:
/// its RELEASE and FORGET come 1 to 5 ms after rm(1) has returned, and on a busy machine up to a few hundred. Together
/// 300 ms, because a program that fills a disk on purpose waits for all of them once.
pub(crate) const WAITS_FOR_SPACE: [Duration; 5] = [
    Duration::from_millis(2),
    Duration::from_millis(8),
    Duration::from_millis(30),
    Duration::from_millis(60),
    Duration::from_millis(200),
];

/// How long after a removal a removed file that seems to be open may be closed already: close(2) does not wait for the
/// RELEASE that tells of it, which comes tens of milliseconds later while many processes want the processors (seen
/// with two processors and a load of 12). A program that fills the disk beside a removed file that it keeps open waits
/// all of [`WAITS_FOR_SPACE`] for nothing so long after the removal, and not later.
pub(crate) const CLOSE_IS_TOLD: Duration = Duration::from_secs(1);

// How many workers answer.

/// Workers at most, besides one for each CPU or each queue: so many requests can wait for a lock, or for the device
/// where they have changed something already. Those that wait for a commit, a thaw, metadata or a small read take none.
pub(crate) const MAX_BLOCKED: usize = 16;

/// How often what a worker is to take is looked at by who waits for that, at the end of a mount.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Threads at most that wait for the kernel to hand over a file's pages: on a frozen volume each may wait until the
/// thaw, and requests beyond them wait too. As many files have dirty pages that somebody looks at; elsewhere two do.
pub(crate) const PAGE_THREADS: usize = 16;

/// Bytes of a READ that never takes a worker while the device reads, and whose bytes are copied into its reply. A
/// larger one is read by its worker over rings and while fewer workers than CPUs are blocked, and else into memory that
/// is its reply: one stream, or one reader of 128 KiB at a time, gets up to a fifth less where another thread replies
/// (on a loop device in memory, the worst case; docs/performance.md).
pub(crate) const MAX_COPIED_READ: usize = 32 << 10;

/// READs of more than [`MAX_COPIED_READ`] that are suspended at once, at most: each has memory of one huge page (2
/// MiB), which stays with the mount. As many as the kernel sends at once ([`MAX_BACKGROUND`]); those of handles that
/// bypass its cache come besides, and wait with workers.
pub(crate) const SUSPENDED_LARGE_READS: usize = MAX_BACKGROUND as usize;

/// How many times a request that misses metadata is suspended. What one load brings into memory may be driven out
/// before the request is answered again; then a worker waits for the next load, and answers at once. A name in a
/// deep directory whose blocks a deep tree maps misses about ten, one after the other.
pub(crate) const MAX_MISSES: usize = 12;

/// Requests of write-back, readahead and O_DIRECT that the kernel sends at once, at most; callers with O_DIRECT wait in
/// the kernel for a place among them. As many as workers may block ([`MAX_BLOCKED`]): with 8 places 16 random readers
/// read a fifth to a third less, and with 32 no more. A write-back may fill a worker's buffer of 1 MiB.
pub(crate) const MAX_BACKGROUND: u16 = 16;

/// Requests that a reader takes without waiting for one, before another worker reads beside it: so many that a burst
/// of a few callers wakes no other thread.
pub(crate) const REQUESTS_BEFORE_ANOTHER_READER: u32 = 16;

/// Workers that take requests from `/dev/fuse` at once, at most, where `readers=` does not say: half of the CPUs are
/// left to callers. On two CPUs a second reader takes up to 17 % from eight clients that create and delete, and brings
/// fdatasyncs nothing where a flush takes time (docs/performance.md).
pub(crate) fn usual_readers(cpus: usize) -> usize {
    (cpus / 2).max(1)
}

// How a reader of /dev/fuse or of a ring waits.

/// The spin window: a program's own work between two calls.
pub(crate) const SPIN_WINDOW: Duration = Duration::from_micros(50);

/// A spinning reader does not yield before so long: a yield costs more than the read itself.
pub(crate) const SPIN_BEFORE_YIELD: Duration = Duration::from_micros(10);

/// A reader spins after a request for which it waited less than this. A CPU that has halted takes a part of it to wake.
pub(crate) const SPIN_AFTER: Duration = Duration::from_micros(200);

/// A yield that took longer gave the CPU to a thread that needs it: the kernel's own short work takes less, a slice of
/// the scheduler more.
pub(crate) const CPU_TAKEN: Duration = Duration::from_micros(500);

/// The backoff lasts so many times as long as the yield took. The kernel's own longer work comes alone.
pub(crate) const SHORT_BACKOFF: u32 = 2;

/// The backoff doubles up to so many times while yields take long again and again: spinning then costs a small part of
/// the time.
pub(crate) const LONG_BACKOFF: u32 = 32;

// Ring entries. One costs a page for its header, and address space of 1 MiB for its payload, of which only what was
// touched takes memory. So a mount with 64 CPUs keeps at most 64 x FIRST_ENTRIES headers (512 KiB) and
// KEPT_PAYLOADS x 1 MiB of payload when nothing is suspended; each suspended request adds one page, and its data
// until it is written to the volume.

/// Entries of a queue at the beginning. With two, a request that comes while another is served finds a free one.
pub(crate) const FIRST_ENTRIES: usize = 2;

/// Free entries of a queue that its reader has with the kernel while it serves a request and others are in hand, at
/// most. So many requests may wait for a device operation of it. With none, a lone client's requests went by the keeper
/// in every second run, and tar took up to twice as long
/// (`quire-lab clients --only tar --mounter quire:transport=uring,tune=host`).
pub(crate) const LENT_WHILE_SERVING: u32 = 1;

/// Entries of a mount at most: so many requests can be suspended at once (waiting for a commit or a thaw). Their
/// headers take 16 MiB. Beyond it requests wait in the kernel until one of these is answered.
pub(crate) const MAX_ENTRIES: usize = 4096;

/// Queues at most: a thread waits at each. A host that may have more CPUs is refused `transport=uring`; `auto` takes
/// `/dev/fuse` on every host.
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

/// Places in the submission queue: so many are handed over in one go.
pub(crate) const SUBMITTED_AT_ONCE: usize = 64;

/// Places in the completion queue. If more have completed, the kernel keeps them until there is room.
pub(crate) const COMPLETIONS: u32 = 1024;

/// A pause before the host is asked again for what it did not have.
pub(crate) const RING_RETRY_PAUSE: Duration = Duration::from_millis(1);

/// Parts of the table of requests, so that threads seldom meet.
pub(crate) const REQUEST_TABLES: u64 = 64;

// What the kernel is told.

/// How long the kernel may believe names and attributes. We are the only writer, so only memory pressure limits it.
pub(crate) const NAMES_VALID: Duration = Duration::from_secs(24 * 60 * 60);

/// The same for attributes of a file that is open for writing while the kernel keeps what is written: it does not
/// notice that the file takes more blocks when it hands pages over. With the last close it has handed over all.
pub(crate) const ATTRIBUTES_VALID_WHILE_WRITTEN: Duration = Duration::from_secs(1);

/// Largest answer of one COPY_FILE_RANGE, in bytes; the caller asks again for the rest.
pub(crate) const COPY_STEP: u64 = 16 << 20;

/// Files of which it is remembered that their owner was asked for atomic updates, at most. When there are more, all are
/// forgotten, and asked about again.
pub(crate) const MAX_ASKED: usize = 16 << 10;

/// Files that are made durable after a failed atomic update before its program goes on, at most: SQLite opens one.
pub(crate) const MAX_OPENED_AFTER_FAILURE: usize = 16;

// The host, with `tune=host`.

/// Between two looks at the count of requests while requests come.
pub(crate) const HOST_TICK: Duration = Duration::from_millis(5);

/// Requests in a tick from which on idle CPUs poll.
pub(crate) const BUSY_REQUESTS: u64 = 2;

/// Ticks without a request after which idle CPUs halt again.
pub(crate) const HALT_AFTER: u32 = 3;

/// Between two looks once no request has come for that long.
pub(crate) const HOST_IDLE_TICK: Duration = Duration::from_millis(50);

/// Looks after which the free space of the volume is asked for again: a disk takes longer to fill.
pub(crate) const LOOKS_PER_SPACE: u32 = 8;

/// Dirty pages of the mount that the kernel may keep while commits are frequent, in bytes; it begins to write at half.
pub(crate) const DIRTY_BYTES_BESIDE_COMMITS: u64 = 8 << 20;

// Clients of the control socket, and the end of a mount.

/// Clients at once, at most: so many of root and the mount's user, and so many of all others.
pub(crate) const MAX_CONTROL_CLIENTS: usize = 16;

/// How long a client may take to send its request, and to take the reply.
pub(crate) const CONTROL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a daemon that has too many clients is asked again.
pub(crate) const CONTROL_BUSY_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the daemon waits for the kernel to show `ro` or `rw`, and for the image to be clean or in use.
pub(crate) const REMOUNT_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a stop by signal waits for users of a busy mount, before it takes the mount from them.
pub(crate) const BUSY_MOUNT_TIMEOUT: Duration = Duration::from_secs(5);

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
