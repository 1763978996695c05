//! Seeds. `QUIRE_SEED=N` repeats one, `QUIRE_SEEDS=N` asks for that many.

/// Runs `test` for seeds; a failure tells how to repeat it.
pub(crate) fn seeds(name: &str, count: u64, test: impl Fn(u64)) {
    let number = |v: &str| std::env::var(v).ok().and_then(|s| s.parse().ok());
    let range = match (number("QUIRE_SEED"), number("QUIRE_SEEDS")) {
        (Some(seed), _) => seed..seed + 1,
        (None, n) => 0..n.unwrap_or(count),
    };
    for seed in range {
        if let Err(panic) = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| test(seed))) {
            eprintln!("repeat with: QUIRE_SEED={seed} cargo test -p quire-journal --test it {name}");
            std::panic::resume_unwind(panic);
        }
    }
}
