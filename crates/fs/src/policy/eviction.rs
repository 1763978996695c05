//! When unlinked inodes are freed.

/// Inodes without links and references that may wait to be freed together. Neighbours share an inode table block,
/// bitmaps and descriptors, each copied once per operation; with 64 the request that freed them took 160 us
/// (bench/results, `delete`), with 16 about 40.
pub(crate) const MAX_PENDING: usize = 16;

/// Space of an inode that may wait, in sectors of 512 bytes: 8 MiB. Freeing it takes an operation or two, so that the
/// caller that frees all pending inodes is not delayed.
pub(crate) const MAX_DEFERRED_SECTORS: u64 = (8 << 20) >> 9;
