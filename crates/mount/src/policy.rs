//! What the mount decides by cost: each constant with its unit, and why it is what it is.

use std::time::Duration;

/// Pauses after which a change that found no space is tried again, while the kernel may be giving up a removed file:
/// its RELEASE and FORGET come 1 to 5 ms after rm(1) has returned, later on a busy machine. Together 100 ms, because a
/// program that fills a disk on purpose waits for all of them once.
pub(crate) const WAITS_FOR_SPACE: [Duration; 4] =
    [Duration::from_millis(2), Duration::from_millis(8), Duration::from_millis(30), Duration::from_millis(60)];

/// Bytes of a request from which on another worker takes the requests behind it at once: copying and checksums of as
/// many bytes take a tenth of a millisecond, the wake-up of a worker some 10 us.
pub(crate) const LONG_REQUEST: usize = 256 << 10;
