//! Engines that are broken where the device fails. tests/it/faults.rs has such runs with the engine as it is.

use crate::wants;
use quire_device::Mutant;
use quire_fs::{CommitMode, Record};
use quire_sim::campaign::SMALL;
use quire_sim::explore::{Config, fresh_image};
use quire_sim::faults::{Rig, device_fails};
use quire_sim::mixes::Mix;
use quire_sim::run::{How, Route};
use quire_testkit::FaultKind;

/// It takes a write of a transaction with deltas that fails and is there all the same, and a checkpoint behind it: one
/// seed in some hundred.
const SEEDS: std::ops::Range<u64> = 999_050..999_070;

#[test]
fn every_mutant_of_faults_is_found() {
    for mutant in Mutant::OF_FAULTS.into_iter().filter(|m| wants(*m)) {
        let how = How::lazy(Route::Ordered, Record::Delta, CommitMode::Checksum);
        let config = Config { name: "mutants", how, mix: Mix::General, leave: None, mke2fs: SMALL, size: "8M" };
        let base = fresh_image(&config);
        let rig = Rig { config, nvram: None };
        let broken = |seed| {
            Mutant::set(Some(mutant));
            let run = device_fails(&rig, &base, seed, 80, FaultKind::Torn { sectors: 1 });
            Mutant::set(None);
            run.err().map(|why| format!("seed {seed}: {why}"))
        };
        let found = SEEDS.into_iter().find_map(broken);
        println!("{mutant:?}: {}", found.unwrap_or_else(|| panic!("{mutant:?} is not found in {SEEDS:?}")));
    }
}
