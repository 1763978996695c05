//! Several writers at once, their interleaving and everything else decided by a seed: `cargo test -p quire-sim
//! --features shuttle --test writers`. `QUIRE_SIM_STATES`, `QUIRE_SIM_SEED`, `QUIRE_SIM_FIRST` as for `crash`.

use quire_fs::{CommitMode, Record};
use quire_sim::campaign::{SMALL, number, wants};
use quire_sim::explore::{Config, Effort, Report, fresh_image};
use quire_sim::mixes::Mix;
use quire_sim::run::{How, Route};
use quire_sim::writers::explore;

const EFFORT: Effort =
    Effort { calls: 24, moments: 0, outcomes: 4, all: 8, fsck_every: 40, double_every: 0, every_cut: false };

fn config(name: &'static str, how: How, mix: Mix) -> Config {
    Config { name, how, mix, leave: None, mke2fs: SMALL, size: "8M" }
}

fn explore_config(name: &'static str, how: impl Into<How>) {
    let how = how.into();
    let wanted = number("QUIRE_SIM_STATES").unwrap_or(1500) / 2;
    let only = number("QUIRE_SIM_SEED");
    let first = number("QUIRE_SIM_FIRST").unwrap_or(1);
    for mix in [Mix::General, Mix::Reuse] {
        if !wants(mix) {
            continue;
        }
        let config = config(name, how, mix);
        let base = fresh_image(&config);
        let mut report = Report::default();
        for seed in only.map_or(first..u64::MAX, |s| s..s + 1) {
            match explore(&config, &base, seed, EFFORT, 2 + seed % 2) {
                Ok(r) => report.add(&r),
                Err(f) => panic!("{f}"),
            }
            if report.distinct >= wanted {
                break;
            }
        }
        println!("writers {name} {mix:?}: {report:?}");
    }
}

#[test]
fn ordered() {
    explore_config("ordered", Route::Ordered);
}

#[test]
fn journal() {
    explore_config("journal", Route::Journal);
}

#[test]
fn auto() {
    explore_config("auto", Route::Auto);
}

/// Quire's log, where writers append records to runs that others are writing.
fn quire(route: Route, record: Record) -> How {
    How::lazy(route, record, CommitMode::Checksum)
}

#[test]
fn ordered_range_checksum() {
    explore_config("ordered_range_checksum", quire(Route::Ordered, Record::Range));
}

#[test]
fn journal_delta_checksum() {
    explore_config("journal_delta_checksum", quire(Route::Journal, Record::Delta));
}

#[test]
fn auto_range_checksum() {
    explore_config("auto_range_checksum", quire(Route::Auto, Record::Range));
}

/// The same seed gives the same calls, the same interleaving, and the same crash states.
#[test]
fn one_seed_determines_all() {
    let config = config("ordered", Route::Ordered.into(), Mix::General);
    let base = fresh_image(&config);
    let report = |seed| explore(&config, &base, seed, EFFORT, 3).unwrap();
    assert_eq!(report(5), report(5));
    assert_ne!(report(5), report(6));
}

/// Broken engines are found with several writers, too.
#[cfg(feature = "mutants")]
#[test]
fn mutants_are_found() {
    use quire_device::Mutant;
    let config = config("ordered", Route::Ordered.into(), Mix::General);
    let base = fresh_image(&config);
    for mutant in [Mutant::FsyncEarly, Mutant::NoFlushBeforeCommit] {
        let found = (1..30).find(|seed| {
            Mutant::set(Some(mutant));
            let result = explore(&config, &base, *seed, EFFORT, 2);
            Mutant::set(None);
            result.is_err()
        });
        assert!(found.is_some(), "{mutant:?} is not found");
    }
}
