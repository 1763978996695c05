//! The power cuts find engines that are broken in one place.
#![allow(dead_code, reason = "the modules of the other tests have more than is used here")]

#[path = "it/common.rs"]
mod common;
#[path = "it/cuts.rs"]
mod cuts;

use common::Mode;
use quire_device::Mutant;

#[test]
fn mutants_of_sync_and_of_updates_are_found_by_power_cuts() {
    for (mutant, mode) in [
        (Mutant::FsyncEarly, Mode::Wal),
        (Mutant::FsyncEarly, Mode::Delete),
        (Mutant::FsyncEarly, Mode::DeleteJournal),
        (Mutant::UpdateTorn, Mode::Delete),
    ] {
        Mutant::set(Some(mutant));
        let found = cuts::cut_everywhere(mode);
        Mutant::set(None);
        let why = found.expect_err(&format!("{mutant:?} is not found in mode {mode:?}"));
        println!("{mutant:?}: {why}");
    }
}
