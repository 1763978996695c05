//! What the device layer decides by cost: each constant with its unit, and why it is what it is.

use std::time::Duration;

// How transfers go to the host.

/// Transfers in flight at most, of each ring: four times what a SATA drive queues. More wait in the daemon, in order.
pub(crate) const IN_FLIGHT: usize = 128;

/// Bytes up to which a batch of one piece is transferred by the caller itself: a call costs less than the way through
/// the ring, and nothing else could be in flight with it.
pub(crate) const TRANSFERRED_BY_CALLER: usize = 256 << 10;

/// Bytes at which a piece of a batch is closed, so that what is long is in flight in several pieces.
pub(crate) const PIECE_BYTES: usize = 1 << 20;

// Memory.

/// Sectors of memory that a thread keeps as one buffer: a block of 4 KiB.
pub(crate) const KEPT_SECTORS: usize = 8;

/// Buffers that a thread keeps: 256 KiB at most.
pub(crate) const KEPT_BUFFERS: usize = 64;

/// Parts of a histogram at most, one for each CPU (4.5 KiB each), so that threads on different CPUs do not share one.
pub(crate) const HISTOGRAM_SHARDS: usize = 64;

// What is assumed of a device, and when it is observed.

/// Observations that an estimate is made from: a stall now and then, or a burst into a cache, does not move their
/// median.
pub(crate) const SAMPLES: usize = 31;

/// A small write, in bytes at most: its time is what a request costs.
pub(crate) const SMALL_WRITE: u64 = 16 << 10;

/// A large write, in bytes at least: its time is what its bytes cost.
pub(crate) const LARGE_WRITE: u64 = 256 << 10;

/// What a flush takes until one was seen: a usual SSD.
pub(crate) const FLUSH_ASSUMED: Duration = Duration::from_millis(1);

/// What a small write takes until one was seen: a usual SSD.
pub(crate) const WRITE_ASSUMED: Duration = Duration::from_micros(50);

/// Bytes a second until a large write was seen: a usual SSD.
pub(crate) const BANDWIDTH_ASSUMED: u64 = 400_000_000;

// An image in use.

/// How long an image in use is asked for again before it is refused: a process that was killed lets go of its files
/// some tens of milliseconds later, and the daemon of a mount that umount(8) has just detached still writes.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_secs(1);

/// Between two attempts to have it.
pub(crate) const BUSY_PAUSE: Duration = Duration::from_millis(10);

/// How often a file that was replaced before it could be locked is opened again: each time another program had to
/// finish a whole file in between.
pub(crate) const MAX_REPLACEMENTS: u32 = 8;
