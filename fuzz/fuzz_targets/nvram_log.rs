//! Edits of labels, heads and records of logs in NVRAM, checksums mended: recovered, given up, mounted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quire_sim::hostile::nvram_log::NvramHostile;
use std::sync::LazyLock;

static LOGS: LazyLock<Vec<NvramHostile>> = LazyLock::new(NvramHostile::all);

fuzz_target!(init: { LazyLock::force(&LOGS); }, |input: &[u8]| {
    let Some((which, edits)) = input.split_first() else { return };
    if let Err(why) = LOGS[usize::from(*which) % LOGS.len()].recover_edited(edits) {
        panic!("{why}");
    }
});
