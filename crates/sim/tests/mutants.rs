//! Tests of the tests: each deliberately broken engine must be found.

use quire_device::{Image, Mutant};
use quire_sim::explore::{Config, Effort, explore, fresh_image};
use quire_sim::flip::flipped_log_is_noticed;
use quire_sim::run::Route;

const MKE2FS: &[&str] = &["-t", "ext4", "-b", "1024", "-N", "256", "-J", "size=1"];
const EFFORT: Effort = Effort { calls: 60, outcomes: 6, fsck_every: 6, double_every: 9 };
/// Seeds that a broken engine may survive.
const SEEDS: u64 = 60;

/// Looks for the mutant with one seed after the other; tells how it was found.
fn hunt(mutant: Mutant, config: &Config, base: &Image) -> Option<String> {
    for seed in 1..=SEEDS {
        Mutant::set(Some(mutant));
        let found = if mutant == Mutant::ChecksumIgnored {
            flipped_log_is_noticed(config, base, seed).err()
        } else {
            explore(config, base, seed, EFFORT).err().map(|f| f.why)
        };
        Mutant::set(None);
        if let Some(why) = found {
            return Some(format!("seed {seed}: {}", why.lines().next().unwrap_or_default()));
        }
    }
    None
}

#[test]
fn every_mutant_is_found() {
    let ordered = Config { name: "ordered", route: Route::Ordered, mke2fs: MKE2FS, size: "8M" };
    let journal = Config { name: "journal", route: Route::Journal, ..ordered.clone() };
    let base = fresh_image(&ordered);
    let mut missed = Vec::new();
    for mutant in Mutant::ALL {
        // Data must go through the log for its content to need an escape there.
        let config = if matches!(mutant, Mutant::EscapeForgotten) { &journal } else { &ordered };
        match hunt(mutant, config, &base) {
            Some(how) => println!("{mutant:?}: {how}"),
            None => missed.push(mutant),
        }
    }
    assert!(missed.is_empty(), "not found in {SEEDS} seeds: {missed:?}");
}

#[test]
fn the_engine_as_it_is_notices_flips() {
    let config = Config { name: "journal", route: Route::Journal, mke2fs: MKE2FS, size: "8M" };
    let base = fresh_image(&config);
    let damaged = (1..40).filter(|seed| flipped_log_is_noticed(&config, &base, *seed).unwrap()).count();
    assert!(damaged > 10, "{damaged}");
}
