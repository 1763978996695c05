//! How much writeback does at once, and when it begins.

use std::time::Duration;

/// Bytes that a batch collects at most.
const BATCH_BYTES: usize = 16 << 20;
/// Files that a batch collects at most.
pub(crate) const BATCH_FILES: usize = 1024;
/// Files that one operation of a batch places or records.
pub(crate) const FILES_PER_OPERATION: usize = 32;
/// Changes that one operation of a batch records: a claim or a run in place counts 1, each journaled block 1.
pub(crate) const RECORDS_PER_OPERATION: usize = 256;
/// Journaled blocks in one piece of a file, so that an operation of [`RECORDS_PER_OPERATION`] holds several.
pub(crate) const JOURNALED_BLOCKS_PER_PIECE: u32 = 64;
/// Pages that are merged into one device write: 1 MiB of 4 KiB blocks.
pub(crate) const PAGES_PER_WRITE: usize = 256;
/// A batch of at most this many pages leaves them in memory as clean pages, for the next append or small update.
pub(crate) const KEEP_CLEAN_PAGES: usize = 8;

/// Device time of one piece of a batch, by the device's measured pace. A commit, or a read, waits for a piece and not
/// for the whole batch.
pub(crate) const PIECE_DEVICE_TIME: Duration = Duration::from_millis(2);
/// Pieces of a batch under way: when one completes, the next is there.
pub(crate) const PIECES_AT_ONCE: usize = 2;

/// A file with at most one in this many of the pages that may be dirty is small.
const SMALL_FILE_SHARE: usize = 256;
/// One in this many pages beyond the limit is kept for writers to small files.
const SMALL_FILE_RESERVE: usize = 8;

/// Bounds that follow from the number of pages that may be dirty.
#[derive(Clone, Copy)]
pub(crate) struct WritebackLimits {
    /// Pages that are not clean; a writer beyond it writes back itself (F5).
    pub max_pages: usize,
    block_bytes: usize,
}

impl WritebackLimits {
    pub(crate) fn new(max_pages: usize, block_bytes: usize) -> Self {
        WritebackLimits { max_pages, block_bytes }
    }

    /// Pages that a batch collects at most.
    pub(crate) fn batch_pages(&self) -> usize {
        (BATCH_BYTES / self.block_bytes).min(self.max_pages / 2)
    }

    /// A file with at most this many pages is small. Its writers do not wait for others, and while commits are frequent
    /// a batch that makes room leaves it alone: a caller may be about to sync it, and would have to wait for the batch.
    pub(crate) fn small_file_pages(&self) -> usize {
        self.max_pages / SMALL_FILE_SHARE
    }

    /// Pages up to which writers to small files go on.
    pub(crate) fn max_pages_for_small_files(&self) -> usize {
        self.max_pages + self.max_pages / SMALL_FILE_RESERVE
    }

    /// True if the background should write back although nothing is old: half of the pages that may be dirty are.
    pub(crate) fn should_write_back(&self, pages: usize) -> bool {
        pages > self.max_pages / 2
    }
}
