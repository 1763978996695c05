//! Edits of the records of Quire's logs, checksums mended: recovered.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quire_sim::hostile::quire_log::QuireLog;
use std::sync::LazyLock;

static LOGS: LazyLock<Vec<QuireLog>> = LazyLock::new(QuireLog::all);

fuzz_target!(init: { LazyLock::force(&LOGS); }, |input: &[u8]| {
    let Some((which, edits)) = input.split_first() else { return };
    if let Err(why) = LOGS[usize::from(*which) % LOGS.len()].recover_edited(edits) {
        panic!("{why}");
    }
});
