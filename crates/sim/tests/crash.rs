//! Explores crash states of each configuration. `QUIRE_SIM_STATES` asks for more than the default, `QUIRE_SIM_FIRST` for seeds from there
//! on; `QUIRE_SIM_SEED` for one seed only, `QUIRE_SIM_MIX` for one kind of workload, `QUIRE_SIM_KEEP` for some of its calls.

use quire_fs::choices::{CommitMode, Record};
use quire_sim::campaign::{SMALL, explore_seeds, number, wants};
use quire_sim::explore::{Config, Effort, explore, explore_kept, fresh_image};
use quire_sim::ops::Mix;
use quire_sim::run::{How, Route};

/// A log in which a request of 1 MiB is atomic.
const MKE2FS_LARGE: &[&str] = &["-t", "ext4", "-b", "4096", "-N", "256", "-J", "size=16", "-m", "0"];
const EFFORT: Effort =
    Effort { calls: 60, moments: 0, outcomes: 6, all: 16, fsck_every: 40, double_every: 9, every_cut: false };

/// What the environment asks for: `QUIRE_SIM_FSCK=1`, e2fsck for every state, not for a sample.
fn effort() -> Effort {
    match number("QUIRE_SIM_FSCK") {
        Some(every) => Effort { fsck_every: every, ..EFFORT },
        None => EFFORT,
    }
}

fn config(name: &'static str, route: Route) -> Config {
    Config { name, how: route.into(), mix: Mix::General, leave: None, mke2fs: SMALL, size: "8M" }
}

/// Each mix in turn, a quarter of the states each.
fn explore_config(config: &Config) {
    for (mix, leave) in [(Mix::General, None), (Mix::Overwrite, None), (Mix::Reuse, Some(220)), (Mix::Ranges, None)] {
        if !wants(mix) {
            continue;
        }
        explore_mix(&Config { mix, leave, ..config.clone() });
    }
}

fn explore_mix(config: &Config) {
    explore_states(config, number("QUIRE_SIM_STATES").unwrap_or(5_200) / 4, effort());
}

fn explore_states(config: &Config, wanted: u64, effort: Effort) {
    let base = fresh_image(config);
    explore_seeds(config.name, config.mix, wanted, |seed, kept| match kept {
        Some(kept) => explore_kept(config, &base, seed, kept, effort),
        None => explore(config, &base, seed, effort),
    });
}

#[test]
fn ordered() {
    explore_config(&config("ordered", Route::Ordered));
}

#[test]
fn journal() {
    explore_config(&config("journal", Route::Journal));
}

#[test]
fn writeback() {
    explore_config(&config("writeback", Route::Writeback));
}

#[test]
fn overwrite() {
    explore_config(&config("overwrite", Route::Overwrite));
}

#[test]
fn adaptive() {
    explore_config(&config("adaptive", Route::Adaptive));
}

#[test]
fn selective() {
    explore_config(&config("selective", Route::Selective));
}

#[test]
fn auto() {
    explore_config(&config("auto", Route::Auto));
}

/// Short runs: every outcome of every moment whose doubtful writes have at most eight sectors (else every set of up to eight
/// writes, and some tears), each judged by e2fsck; one in nine loses power again at every step of its recovery, and then again.
#[test]
fn exhaustive() {
    let effort =
        Effort { calls: 24, moments: 0, outcomes: 12, all: 1 << 8, fsck_every: 1, double_every: 9, every_cut: true };
    let quire = |route, record| How { route, record, commit_mode: CommitMode::Checksum };
    for (name, how) in [
        ("ordered", Route::Ordered.into()),
        ("journal", Route::Journal.into()),
        ("auto", Route::Auto.into()),
        ("ordered_range_checksum", quire(Route::Ordered, Record::Range)),
        ("journal_delta_checksum", quire(Route::Journal, Record::Delta)),
        ("auto_range_checksum", quire(Route::Auto, Record::Range)),
    ] {
        for mix in [Mix::General, Mix::Overwrite, Mix::Reuse, Mix::Ranges] {
            if !wants(mix) {
                continue;
            }
            let config = Config { how, mix, ..config(name, Route::Ordered) };
            explore_states(&config, number("QUIRE_SIM_STATES").unwrap_or(5_200) / 12, effort);
        }
    }
}

/// Long runs, of which some moments are looked at: the log goes round, and checkpoints pass parts of it (and of chains of deltas).
#[test]
fn long_runs() {
    let effort = Effort { calls: 3000, moments: 40, ..effort() };
    let quire = |route, record| How { route, record, commit_mode: CommitMode::Checksum };
    for (name, how) in [
        ("ordered", Route::Ordered.into()),
        ("journal", Route::Journal.into()),
        ("auto", Route::Auto.into()),
        ("ordered_delta_checksum", quire(Route::Ordered, Record::Delta)),
        ("journal_delta_checksum", quire(Route::Journal, Record::Delta)),
        ("auto_range_checksum", quire(Route::Auto, Record::Range)),
    ] {
        let config = Config { how, mix: Mix::Long, ..config(name, Route::Ordered) };
        explore_states(&config, number("QUIRE_SIM_STATES").unwrap_or(5_200) / 20, effort);
    }
}

/// Requests of 1 MiB are whole or absent where requests are.
#[test]
fn atomic_requests() {
    let effort =
        Effort { calls: 24, moments: 0, outcomes: 4, all: 16, fsck_every: 60, double_every: 9, every_cut: false };
    for (name, route) in [("journal", Route::Journal), ("overwrite", Route::Overwrite), ("auto", Route::Auto)] {
        let config = Config { mix: Mix::Large, mke2fs: MKE2FS_LARGE, size: "64M", ..config(name, route) };
        explore_states(&config, number("QUIRE_SIM_STATES").unwrap_or(3_000) / 10, effort);
    }
}

/// Quire's log: routes x records x commits.
fn explore_quire(name: &'static str, route: Route, record: Record, commit_mode: CommitMode) {
    explore_config(&Config { how: How { route, record, commit_mode }, ..config(name, route) });
}

macro_rules! quire_log {
    ($($name:ident: $route:ident, $record:ident, $commit:ident;)+) => {
        $(#[test]
        fn $name() {
            explore_quire(stringify!($name), Route::$route, Record::$record, CommitMode::$commit);
        })+
    };
}

quire_log! {
    ordered_block_checksum: Ordered, Block, Checksum;
    ordered_range_data_checksum: Ordered, RangeData, Checksum;
    ordered_range_checksum: Ordered, Range, Checksum;
    ordered_delta_checksum: Ordered, Delta, Checksum;
    ordered_range_barrier: Ordered, Range, Barrier;
    journal_block_checksum: Journal, Block, Checksum;
    journal_range_data_checksum: Journal, RangeData, Checksum;
    journal_range_checksum: Journal, Range, Checksum;
    journal_delta_checksum: Journal, Delta, Checksum;
    journal_range_barrier: Journal, Range, Barrier;
    overwrite_range_checksum: Overwrite, Range, Checksum;
    auto_range_checksum: Auto, Range, Checksum;
    adaptive_block_checksum: Adaptive, Block, Checksum;
    selective_range_data_checksum: Selective, RangeData, Checksum;
}
