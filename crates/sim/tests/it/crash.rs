//! Explores crash states of each configuration. `QUIRE_SIM_STATES` asks for more of each than the default,
//! `QUIRE_SIM_TOTAL` for so many of all together, `QUIRE_SIM_FSCK=1` for e2fsck on every state, not on a sample,
//! `QUIRE_SIM_FIRST` for seeds from there on; `QUIRE_SIM_SEED` for one seed only, `QUIRE_SIM_MIX` for one kind of
//! workload, `QUIRE_SIM_KEEP` for some of its calls.

use quire_fs::{Checkpoint, CommitMode, Record};
use quire_sim::campaign::{SMALL, explore_seeds, fsck_every, share, wants};
use quire_sim::explore::{Config, Effort, explore, explore_kept, fresh_image};
use quire_sim::known::Seen;
use quire_sim::mixes::Mix;
use quire_sim::run::{How, Route};

/// A log in which a request of 1 MiB is atomic.
const MKE2FS_LARGE: &[&str] = &["-t", "ext4", "-b", "4096", "-N", "256", "-J", "size=16", "-m", "0"];
const EFFORT: Effort =
    Effort { calls: 60, moments: 0, outcomes: 6, all: 16, fsck_every: 40, double_every: 9, every_cut: false };

/// Parts of a share that each configuration of a kind gets: a whole one, or one in so many.
const EXHAUSTIVE: u64 = 3;
const LONG: u64 = 20;
const ATOMIC: u64 = 20;
const LIFECYCLE: u64 = 4;
const UPDATES: u64 = 20;
const PATCHES: u64 = 20;

/// Distinct states wanted of a configuration that gets one in `part` of a share.
fn wanted(part: u64) -> u64 {
    let sixtieths = 60 * (CONFIGURATIONS.len() + FSYNC_CONFIGURATIONS)
        + 6 * 60 / 3
        + 6 * 60 / 20
        + 3 * 60 / 20
        + 3 * 60 / 4
        + 6 * 60 / 20
        + 4 * 60 / 20;
    share(u64::try_from(sixtieths).expect("few"), 2_400).div_ceil(part)
}

fn effort() -> Effort {
    Effort { fsck_every: fsck_every(EFFORT.fsck_every), ..EFFORT }
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
    explore_states(config, wanted(1).div_ceil(4), effort());
}

fn explore_states(config: &Config, wanted: u64, effort: Effort) {
    let base = fresh_image(config);
    explore_seeds(config.name, config.mix, wanted, |seed, kept, seen| match kept {
        Some(kept) => explore_kept(config, &base, seed, kept, effort, seen),
        None => explore(config, &base, seed, effort, seen),
    });
}

/// Short runs: every outcome of every moment whose doubtful writes have at most eight sectors (else every set of up to
/// eight writes, and some tears), each judged by e2fsck; one in nine loses power again at every step of its recovery,
/// and then again.
#[test]
fn exhaustive() {
    let effort =
        Effort { calls: 24, moments: 0, outcomes: 12, all: 1 << 8, fsck_every: 1, double_every: 9, every_cut: true };
    let quire = |route, record| How::lazy(route, record, CommitMode::Checksum);
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
            explore_states(&config, wanted(EXHAUSTIVE).div_ceil(4), effort);
        }
    }
}

/// L1: the volume is frozen, thawed and mounted again between calls, and the power goes at each step of that. In use it
/// is never marked clean; frozen it is, and everything is there.
#[test]
fn lifecycle() {
    let quire = |route, record| How::lazy(route, record, CommitMode::Checksum);
    let effort = Effort { all: 1 << 8, ..effort() };
    for (name, how) in [
        ("ordered", Route::Ordered.into()),
        ("journal", Route::Journal.into()),
        ("auto", quire(Route::Auto, Record::Range)),
    ] {
        let config = Config { how, mix: Mix::Lifecycle, ..config(name, Route::Ordered) };
        if wants(config.mix) {
            explore_states(&config, wanted(LIFECYCLE), effort);
        }
    }
}

/// What was once found, by seeds that are far away.
#[test]
fn known() {
    let quire = |route, record| How::lazy(route, record, CommitMode::Checksum);
    let found = [
        // Overwritten without pages, then moved: the mapping was durable first (F10, Q5).
        (quire(Route::Ordered, Record::Block), Mix::Ranges, 2_898_100_000, [3, 14, 31, 44, 48]),
        (quire(Route::Adaptive, Record::Range), Mix::Ranges, 2_898_100_000, [3, 14, 31, 44, 48]),
    ];
    for (how, mix, seed, kept) in found {
        let config = Config { how, mix, ..config("known", Route::Ordered) };
        let base = fresh_image(&config);
        explore_kept(&config, &base, seed, &kept, EFFORT, &mut Seen::default()).unwrap_or_else(|f| panic!("{f}"));
    }
}

/// Long runs, of which some moments are looked at: the log goes round, and checkpoints pass parts of it (and of chains
/// of deltas).
#[test]
fn long_runs() {
    let effort = Effort { calls: 3000, moments: 40, ..effort() };
    let quire = |route, record| How::lazy(route, record, CommitMode::Checksum);
    for (name, how) in [
        ("ordered", Route::Ordered.into()),
        ("journal", Route::Journal.into()),
        ("auto", Route::Auto.into()),
        ("ordered_delta_checksum", quire(Route::Ordered, Record::Delta)),
        ("journal_delta_checksum", quire(Route::Journal, Record::Delta)),
        ("auto_range_checksum", quire(Route::Auto, Record::Range)),
    ] {
        let config = Config { how, mix: Mix::Long, ..config(name, Route::Ordered) };
        explore_states(&config, wanted(LONG), effort);
    }
}

/// Requests of 1 MiB are whole or absent where requests are.
#[test]
fn atomic_requests() {
    let effort =
        Effort { calls: 24, moments: 0, outcomes: 4, all: 16, fsck_every: 60, double_every: 9, every_cut: false };
    for (name, route) in [("journal", Route::Journal), ("overwrite", Route::Overwrite), ("auto", Route::Auto)] {
        let config = Config { mix: Mix::Large, mke2fs: MKE2FS_LARGE, size: "64M", ..config(name, route) };
        explore_states(&config, wanted(ATOMIC), effort);
    }
}

/// F22: an atomic update is whole or absent, on every route, and nothing of one that was undone is ever there.
#[test]
fn atomic_updates() {
    let quire = |route, record| How::lazy(route, record, CommitMode::Checksum);
    for (name, how) in [
        ("ordered", Route::Ordered.into()),
        ("writeback", Route::Writeback.into()),
        ("journal", Route::Journal.into()),
        ("ordered_delta_checksum", quire(Route::Ordered, Record::Delta)),
        ("auto_range_checksum", quire(Route::Auto, Record::Range)),
        ("selective_range_data_checksum", quire(Route::Selective, Record::RangeData)),
    ] {
        let config = Config { how, mix: Mix::Updates, ..config(name, how.route) };
        if wants(config.mix) {
            explore_states(&config, wanted(UPDATES), effort());
        }
    }
}

/// Q3: a few bytes are logged over what lies at home only where that is durable.
#[test]
fn patches() {
    for (name, route, record) in [
        ("selective_range_data", Route::Selective, Record::RangeData),
        ("selective_range", Route::Selective, Record::Range),
        ("adaptive_range", Route::Adaptive, Record::Range),
        ("auto_range", Route::Auto, Record::Range),
    ] {
        let how = How::lazy(route, record, CommitMode::Checksum);
        let config = Config { how, mix: Mix::Patches, ..config(name, route) };
        if wants(config.mix) {
            explore_states(&config, wanted(PATCHES), Effort { calls: 220, ..effort() });
        }
    }
}

/// Configurations of [`journal_fsync_barrier`] and [`journal_fsync_checksum`].
const FSYNC_CONFIGURATIONS: usize = 2;

/// `checkpoint=fsync`: an fsync writes home what earlier transactions hold of the file, and the log keeps it.
fn explore_fsync_checkpoints(name: &'static str, commit_mode: CommitMode) {
    let how = How { checkpoint: Checkpoint::Fsync, ..How::lazy(Route::Journal, Record::Block, commit_mode) };
    explore_config(&Config { how, ..config(name, Route::Journal) });
}

#[test]
fn journal_fsync_barrier() {
    explore_fsync_checkpoints("journal_fsync_barrier", CommitMode::Barrier);
}

#[test]
fn journal_fsync_checksum() {
    explore_fsync_checkpoints("journal_fsync_checksum", CommitMode::Checksum);
}

/// Each gets a share.
macro_rules! configurations {
    ($($name:ident: $route:ident, $record:ident, $commit:ident;)+) => {
        const CONFIGURATIONS: &[&str] = &[$(stringify!($name)),+];
        $(#[test]
        fn $name() {
            let how = How::lazy(Route::$route, Record::$record, CommitMode::$commit);
            explore_config(&Config { how, ..config(stringify!($name), Route::$route) });
        })+
    };
}

configurations! {
    ordered: Ordered, Block, Barrier;
    journal: Journal, Block, Barrier;
    writeback: Writeback, Block, Barrier;
    overwrite: Overwrite, Block, Barrier;
    adaptive: Adaptive, Block, Barrier;
    selective: Selective, Block, Barrier;
    auto: Auto, Block, Barrier;
    // Quire's log: routes x records x commits.
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
