//! How a volume divides its memory.

/// Shares of the memory that a volume may use (`cache_size=`), in bytes or pages.
pub(crate) struct CacheShares {
    cache_bytes: u64,
    block_bytes: usize,
}

/// The share of block images: one half. Metadata is read again and again; data has the kernel's cache above it.
const IMAGES: u64 = 2;
/// The share of clean pages: one sixteenth. They only spare an appender the reading of its last block.
const CLEAN_PAGES: u64 = 16;
/// The fewest clean pages.
const MIN_CLEAN_PAGES: usize = 16;
/// The share of pages that are not clean, in eighths: what images and clean pages leave, but for one sixteenth that
/// writers may take beyond the limit.
const UNWRITTEN_PAGES_EIGHTHS: u64 = 3;
/// The fewest pages that are not clean: several requests of a small block size.
const MIN_UNWRITTEN_PAGES: usize = 64;

impl CacheShares {
    pub(crate) fn new(cache_bytes: u64, block_bytes: usize) -> Self {
        CacheShares { cache_bytes, block_bytes }
    }

    /// Bytes of block images.
    pub(crate) fn image_bytes(&self) -> u64 {
        self.cache_bytes / IMAGES
    }

    /// Clean pages.
    pub(crate) fn clean_pages(&self) -> usize {
        self.pages(self.cache_bytes / CLEAN_PAGES).max(MIN_CLEAN_PAGES)
    }

    /// Pages that are not clean; a writer beyond this limit writes back itself.
    pub(crate) fn unwritten_pages(&self) -> usize {
        self.pages(self.cache_bytes / 8 * UNWRITTEN_PAGES_EIGHTHS).max(MIN_UNWRITTEN_PAGES)
    }

    fn pages(&self, bytes: u64) -> usize {
        usize::try_from(bytes).unwrap_or(usize::MAX) / self.block_bytes
    }
}
