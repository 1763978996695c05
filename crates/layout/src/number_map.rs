//! Hash maps whose keys are numbers with a unit ([`crate::units`]): a multiplication instead of a hash of bytes.
//!
//! The multiplier's other factor is drawn at random for each process, as the standard library does it, so that nobody who makes an
//! image knows which block or inode numbers meet in one place.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::OnceLock;

/// A map from block numbers, inode numbers and the like.
pub type NumberMap<K, V> = HashMap<K, V, Numbers>;
/// A set of them.
pub type NumberSet<K> = HashSet<K, Numbers>;

/// Odd, with bits all over: 2^64 divided by the golden ratio.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// Makes the hashers of a map.
#[derive(Clone, Copy, Debug)]
pub struct Numbers(u64);

impl Default for Numbers {
    fn default() -> Self {
        static SEED: OnceLock<u64> = OnceLock::new();
        Numbers(*SEED.get_or_init(|| RandomState::new().hash_one(0)))
    }
}

impl BuildHasher for Numbers {
    type Hasher = NumberHasher;

    fn build_hasher(&self) -> NumberHasher {
        NumberHasher(self.0)
    }
}

/// The hash of a number; several are mixed.
#[derive(Debug)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    /// Both halves of a product of 128 bits: each bit of the number reaches those by which a map chooses.
    fn write_u64(&mut self, n: u64) {
        let product = u128::from(self.0 ^ n) * u128::from(FACTOR ^ self.0.rotate_left(32) | 1);
        let low = u64::try_from(product & u128::from(u64::MAX)).expect("masked");
        let high = u64::try_from(product >> 64).expect("shifted");
        self.0 = low ^ high;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{BlockNo, Ino};

    #[test]
    fn neighbours_and_multiples_spread() {
        let numbers = Numbers::default();
        for step in [1, 8, 4096, 32768, 1 << 32] {
            let hashes: Vec<u64> = (0..4096u64).map(|n| numbers.hash_one(BlockNo(n * step))).collect();
            // By the lowest bits and by the highest: a map uses both.
            for part in [0, 57] {
                let places: HashSet<u64> = hashes.iter().map(|h| h >> part & 127).collect();
                assert!(places.len() > 100, "step {step}: {} places of 128", places.len());
            }
        }
    }

    #[test]
    fn it_is_a_map() {
        let mut m = NumberMap::default();
        (0..1000).for_each(|n| assert_eq!(m.insert(Ino(n), n), None));
        assert!((0..1000).all(|n| m.get(&Ino(n)) == Some(&n)));
        assert_ne!(Numbers::default().hash_one((Ino(1), Ino(2))), Numbers::default().hash_one((Ino(2), Ino(1))));
    }
}
