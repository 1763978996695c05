//! Hash maps whose keys are numbers with a unit ([`crate::units`]): two multiplications instead of a hash of bytes. The
//! seed is drawn at random, so that nobody who makes an image knows which block or inode numbers meet in one place.

/// A map from block numbers, inode numbers and the like.
pub type NumberMap<K, V> = foldhash::HashMap<K, V>;
