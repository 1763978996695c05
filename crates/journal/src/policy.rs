//! What the journal decides by cost: each constant with its unit, and why it is what it is.
//!
//! *Guarantees*: a different value changes how long work takes or how much memory it needs, and nothing that
//! docs/invariants.md promises. Sizes that the format or a proof needs stand with the code that keeps them.

use std::time::Duration;

// Transactions.

/// A transaction takes one part in so many of the log at most, as jbd2's: commits need not wait for checkpoints.
pub(crate) const TRANSACTION_PART: u32 = 4;

/// And one part in so many of the cache: what it holds stays in memory while it is open and while it is written.
pub(crate) const TRANSACTION_CACHE_PART: u64 = 2;

/// Bytes of images that a transaction may hold where the log has space for them, however small the cache is: some write
/// requests of 1 MiB.
pub(crate) const LEAST_LIMIT: u64 = 4 << 20;

/// Largest transaction without a log, in blocks.
pub(crate) const LIMIT_WITHOUT_LOG: usize = 8192;

/// Blocks of a transaction that are many: to copy a block's bytes costs more than to write a few that did not change.
pub(crate) const MANY_BLOCKS: usize = 16;

// Callers that are waited for.

/// A commit waits for callers that come again within this part of a commit's time. Two groups that take turns have a
/// commit each in twice that time, so a wait of three quarters still gains a seventh.
pub(crate) const GATHER_WITHIN: (u32, u32) = (3, 4);

/// A commit that takes less begins at once: to sleep and to be woken takes some 50 us on a guest, a tenth of this.
/// (With commits of 0.2 ms 16 clients lost a tenth of their fsyncs by waiting.)
pub(crate) const LEAST_GATHERING_COMMIT: Duration = Duration::from_micros(500);

/// It waits for so many times as long as they took the last time, but for a commit's time at most.
pub(crate) const GATHER_TIMES: u32 = 2;

/// Commits that begin at once after waits that gained too few, at most: such waits cost one part in so many then.
pub(crate) const MOST_COMMITS_AT_ONCE: u32 = 64;

// Memory.

/// Images that a log may pin whatever the cache's size, in bytes.
pub(crate) const LEAST_PINNED: u64 = 1 << 20;

/// One part in so many of the cache keeps the content that blocks have at home, for records of ranges; but at least
/// [`LEAST_BASES`] blocks.
pub(crate) const BASES_PART: usize = 2;
/// See [`BASES_PART`].
pub(crate) const LEAST_BASES: usize = 64;

/// Blocks of new data of which it is remembered what became of them; then each counts half.
pub(crate) const NEW_DATA_REMEMBERED: u64 = 16_384;

// Checkpoints.

/// A checkpoint passes one part in so many of the log, so that it is rare, and others get the device between two.
pub(crate) const CHECKPOINT_PART: u32 = 4;

/// The background begins one when more than one part in so many of the log is in use.
pub(crate) const CHECKPOINT_BEGINS: u32 = 2;

/// Blocks to a device read or write of images, at most: 1 MiB of 4 KiB blocks.
pub(crate) const BLOCKS_TO_A_TRANSFER: usize = 256;

/// Bytes of home writes that are under way at once. A commit's write to the log waits behind them on a device that
/// serves in order: 1 MiB takes 2 ms at 500 MB/s, a flush of such a device about as long.
pub(crate) const HOME_BYTES_AT_ONCE: usize = 1 << 20;

/// A commit that finds no space in a log with one region frees this share of it, the least that helps, as jbd2's
/// explicit checkpoint; or less if [`LAZY_BATCH`] blocks had to go home for it. (DJFS' NVJ frees about 1/30 with each
/// flush: table 1, 0.4 % of one for each of its commits of some 18 KB.)
pub(crate) const LAZY_SHARE: u64 = 32;
/// Blocks that such a commit writes home at most: a batch of jbd2's (`JBD2_NR_BATCH`).
pub(crate) const LAZY_BATCH: usize = 64;

// Recovery.

/// Bytes of bodies that the scan keeps, so that it need not read them again.
pub(crate) const MAX_BODIES_IN_MEMORY: usize = 32 << 20;

/// Bytes of images that are made of records at once.
pub(crate) const IMAGES_AT_ONCE: usize = 32 << 20;

/// Bytes of whole images that are read and written home at once; a log that makes no more keeps them in memory from its
/// judgement to its replay.
pub(crate) const REPLAYED_AT_ONCE: usize = 8 << 20;
