//! Seeded numbers. `QUIRE_SEED=N` repeats one seed, `QUIRE_SEEDS=N` asks for that many.

pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Rng(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ z >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ z >> 31
    }

    /// Below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    pub(crate) fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn fill(&mut self, b: &mut [u8]) {
        b.chunks_mut(8).for_each(|c| c.copy_from_slice(&self.next().to_le_bytes()[..c.len()]));
    }
}

/// Runs `test` for seeds; a failure tells how to repeat it.
pub(crate) fn seeds(name: &str, count: u64, test: impl Fn(u64)) {
    let number = |v: &str| std::env::var(v).ok().and_then(|s| s.parse().ok());
    let range = match (number("QUIRE_SEED"), number("QUIRE_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, n) => 0..n.unwrap_or(count),
    };
    for seed in range {
        if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(seed))) {
            eprintln!("repeat with: QUIRE_SEED={seed} cargo test -p quire-journal --test recovery {name}");
            std::panic::resume_unwind(panic);
        }
    }
}
