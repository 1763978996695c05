//! Archives that no program would write, imported into an image in memory.
#![no_main]

#[path = "../../crates/quire/tests/it/archive_case.rs"]
mod archive_case;

use archive_case::{changed, import_and_walk};
use libfuzzer_sys::fuzz_target;
use quire::{CreateOptions, FileSystem};
use std::sync::LazyLock;

static IMAGE: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let fs = CreateOptions::new().size(16 << 20).in_memory().expect("mke2fs");
    fs.into_bytes().expect("closed").expect("in memory")
});

fuzz_target!(init: { LazyLock::force(&IMAGE); }, |input: &[u8]| {
    let fs = FileSystem::options().open_bytes(IMAGE.as_slice()).expect("a fresh image");
    let whiteouts = input.first().is_some_and(|byte| byte & 2 != 0);
    if let Err(why) = import_and_walk(fs, changed(input), whiteouts) {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        panic!("{why}\nrepeat: QUIRE_ARCHIVE_CASE={hex} cargo test -p quire-ext4 --test it hostile_archives");
    }
});
