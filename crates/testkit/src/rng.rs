//! Random numbers and file contents from a seed, the same on every machine and for ever: splitmix64 (Steele, Lea and
//! Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).

/// A repeatable source of random numbers.
#[derive(Clone, Debug)]
pub struct Rng(u64);

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// A source for a seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A source that depends on every part of the seed.
    #[must_use]
    pub fn from_parts(parts: &[u64]) -> Self {
        Self(parts.iter().fold(0x9e37_79b9_7f4a_7c15, |state, part| mix(state ^ mix(*part))))
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in `0..n`; 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.bits() % n }
    }

    /// A number in `0..n` that counts things in memory.
    pub fn index(&mut self, n: usize) -> usize {
        usize::try_from(self.below(n as u64)).expect("below n, which is a usize")
    }

    /// A byte.
    pub fn byte(&mut self) -> u8 {
        self.bits().to_le_bytes()[0]
    }

    /// Fills `b`.
    pub fn fill(&mut self, b: &mut [u8]) {
        b.chunks_mut(8).for_each(|c| c.copy_from_slice(&self.bits().to_le_bytes()[..c.len()]));
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// The bytes `[offset, offset + len)` of the endless content named `key`. No two keys share content, no two offsets
/// repeat: a block that turns up in the wrong place is seen.
#[must_use]
pub fn content(key: u64, offset: u64, len: usize) -> Vec<u8> {
    let end = offset + len as u64;
    let mut out = Vec::with_capacity(len + 16);
    for word in offset / 8..end.div_ceil(8) {
        out.extend_from_slice(&mix(mix(key) ^ word.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_le_bytes());
    }
    let skip = usize::try_from(offset % 8).expect("below 8");
    out.drain(..skip);
    out.truncate(len);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_does_not_depend_on_how_it_is_cut() {
        let whole = content(7, 0, 100);
        for (at, len) in [(0, 100), (1, 9), (8, 8), (13, 50), (99, 1), (5, 0)] {
            let from = usize::try_from(at).unwrap();
            assert_eq!(content(7, at, len), whole[from..from + len]);
        }
        assert_ne!(content(8, 0, 100), whole);
    }

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let draw = |seed: &[u64]| {
            (0..4)
                .map({
                    let mut r = Rng::from_parts(seed);
                    move |_| r.bits()
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(draw(&[1, 2]), draw(&[1, 2]));
        assert_ne!(draw(&[1, 2]), draw(&[2, 1]));
    }
}
