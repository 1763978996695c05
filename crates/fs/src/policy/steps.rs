//! How much one operation or one request does at once. Operations hold the metadata mutex, so long work goes in steps.

/// Blocks of a directory that one operation examines. The smallest cache holds twice as many.
pub(crate) const DIR_BLOCKS_AT_ONCE: u32 = 32;
/// Blocks of a linear directory, or leaves of an htree, that a miss reads together.
pub(crate) const DIR_READAHEAD_BLOCKS: u32 = 32;
/// A linear directory remembers how far a search has come if it is larger than this share of the cache: a quarter.
/// Block images have half of the cache, and one directory should not take more than half of that.
pub(crate) const DIR_SIZE_TO_REMEMBER_SCANS: u64 = 4;
/// Names that one operation of a listing collects.
pub(crate) const NAMES_PER_OPERATION: usize = 128;
/// Entries of a block map that one operation of a seek examines.
pub(crate) const EXTENTS_PER_OPERATION: usize = 256;
/// Entries of a block map for which a truncate looks before it begins: twelve leaves of 340. Most files have fewer; the
/// metadata mutex is held meanwhile.
pub(crate) const EXTENTS_TO_FORESEE: usize = 4096;
/// Blocks of the orphan file that one operation reads at mount. The file may be larger than the cache.
pub(crate) const ORPHAN_BLOCKS_PER_OPERATION: usize = 64;
/// Bytes that one call of the device reads; larger reads are split, to bound memory.
pub(crate) const READ_BYTES_AT_ONCE: usize = 4 << 20;
/// Blocks that a read may have at most for their images to stay in memory as bases of range records. The kernel reads a
/// page before it changes a part of it; longer reads are streams, which would only drive metadata out of the cache.
pub(crate) const BLOCKS_TO_REMEMBER: usize = 4;
/// Bytes that one request writes under the file's lock; larger writes are split. FUSE sends no more at once.
pub(crate) const WRITE_BYTES_AT_ONCE: usize = 1 << 20;

/// Commits that one operation waits for because they make freed blocks available. Others may take the blocks of one
/// commit meanwhile, and free more; an operation that finds none after so many is refused.
pub(crate) const MAX_WAITS_FOR_SPACE: u32 = 8;

/// Metadata blocks that a step of a long change touches at most. A quarter of a transaction's limit leaves room for
/// other operations.
pub(crate) fn step_budget(transaction_limit: usize) -> usize {
    256.min(transaction_limit / 4).max(1)
}

/// Where users may take fewer blocks, the steps of FITRIM go by what root may take: most of what is free is root's
/// reserve, and a step claims too little of it for the time that it takes.
const MIN_USER_ROOM_OF_TRIM_BLOCKS: u64 = 1024;

/// Blocks that a step of FITRIM claims: at most 32,768, and a quarter of what may be taken, so that a writer beside it
/// does not see a full disk. `user`, `root`: what users and root may take, which is nothing that is reserved (A5).
pub(crate) fn trim_budget(user: u64, root: u64) -> u64 {
    let room = if user >= MIN_USER_ROOM_OF_TRIM_BLOCKS { user } else { root };
    (1 << 15).min(room / 4)
}
