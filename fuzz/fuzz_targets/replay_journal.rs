//! Edits of the logs of dirty images, checksums mended: replayed by a mount.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quire_sim::hostile::{Base, drive::replay, from_bytes};
use std::sync::LazyLock;

static BASES: LazyLock<Vec<Base>> = LazyLock::new(|| {
    let mut dirty: Vec<Base> = Base::all().into_iter().filter(|b| b.dirty).collect();
    dirty.iter_mut().for_each(Base::keep_log_only);
    dirty
});

fuzz_target!(init: { LazyLock::force(&BASES); }, |input: &[u8]| {
    let Some(case) = from_bytes(&BASES, input) else { return };
    let base = BASES.iter().find(|b| b.name == case.base).expect("one of them");
    if let Err(why) = replay(base, &case.image(base)) {
        panic!("{why}\nrepeat: QUIRE_HOSTILE_CASE='{case}' cargo test -p quire-sim --test it hostile::damaged");
    }
});
