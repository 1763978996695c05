//! Tests of the tests: each deliberately broken log in NVRAM must be found.

use crate::wants;
use quire_device::Mutant;
use quire_fs::{Checkpoint, CommitMode, Record};
use quire_sim::campaign::SMALL;
use quire_sim::explore::{Config, Effort, fresh_image};
use quire_sim::known::Seen;
use quire_sim::mixes::Mix;
use quire_sim::nvram::{NvramConfig, explore_nvram};
use quire_sim::run::{How, Route};

const EFFORT: Effort =
    Effort { calls: 400, outcomes: 3, all: 0, fsck_every: 6, double_every: 9, every_cut: false, moments: 1 };
/// Seeds that a broken engine may survive.
const SEEDS: u64 = 60;

fn hunt(mutant: Mutant, config: &NvramConfig) -> Option<String> {
    let jbd2 = How { record: Record::Block, commit_mode: CommitMode::Barrier, ..config.base.how };
    let image = fresh_image(&Config { how: jbd2, ..config.base.clone() });
    (1..=SEEDS).find_map(|seed| {
        Mutant::set(Some(mutant));
        let found = explore_nvram(config, &image, seed, EFFORT, None, &mut Seen::default()).err();
        Mutant::set(None);
        found.map(|f| format!("seed {seed}: {}", f.why.lines().next().unwrap_or_default()))
    })
}

/// Those that no seed finds.
fn missed<const N: usize>(mutants: [Mutant; N], config: &NvramConfig) -> Vec<Mutant> {
    let found = |mutant: &Mutant| hunt(*mutant, config).inspect(|how| println!("{mutant:?}: {how}")).is_some();
    mutants.into_iter().filter(|m| wants(*m)).filter(|m| !found(m)).collect()
}

#[test]
fn every_broken_log_in_nvram_is_found() {
    let how = How::lazy(Route::Journal, Record::Delta, CommitMode::Nvram);
    let base = Config { name: "nvram_mutants", how, mix: Mix::Overwrite, leave: None, mke2fs: SMALL, size: "8M" };
    let config = NvramConfig { base, checkpoint: Checkpoint::Regions(2), size: 8192 + (152 << 10), one_in: 2 };
    let missed = missed(Mutant::OF_NVRAM, &config);
    assert!(missed.is_empty(), "not found in {SEEDS} seeds: {missed:?}");
}

/// Data in place must be durable before the commit that names it: NVRAM flushes no disk.
#[test]
fn completion_is_not_durability_with_nvram() {
    let how = How::lazy(Route::Ordered, Record::Delta, CommitMode::Nvram);
    let base = Config { name: "nvram_mutants", how, mix: Mix::Overwrite, leave: None, mke2fs: SMALL, size: "8M" };
    let config = NvramConfig { base, checkpoint: Checkpoint::Regions(2), size: 8192 + (152 << 10), one_in: 2 };
    let how = hunt(Mutant::CompletionIsDurable, &config).expect("found");
    println!("CompletionIsDurable: {how}");
}

/// The home writes of an fsync where the log lies in NVRAM: one that is not made, and one of what is not committed.
#[test]
fn every_mutant_of_home_writes_by_fsync_is_found_with_nvram() {
    let how = How::lazy(Route::Journal, Record::Block, CommitMode::Nvram);
    let base = Config { name: "nvram_mutants", how, mix: Mix::Overwrite, leave: None, mke2fs: SMALL, size: "8M" };
    let config = NvramConfig { base, checkpoint: Checkpoint::Fsync, size: 8192 + (304 << 10), one_in: 2 };
    let missed = missed(Mutant::OF_HOME_WRITES_BY_FSYNC, &config);
    assert!(missed.is_empty(), "not found in {SEEDS} seeds: {missed:?}");
}
