//! Edits of sound images, checksums mended: mounted, walked, written to, unmounted.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quire_sim::hostile::{Base, drive::drive, from_bytes};
use std::sync::LazyLock;

static BASES: LazyLock<Vec<Base>> = LazyLock::new(Base::all);

fuzz_target!(init: { LazyLock::force(&BASES); }, |input: &[u8]| {
    let Some(case) = from_bytes(&BASES, input) else { return };
    let base = BASES.iter().find(|b| b.name == case.base).expect("one of them");
    if let Err(why) = drive(base, &case, &case.image(base)) {
        panic!("{why}\nrepeat: QUIRE_HOSTILE_CASE='{case}' cargo test -p quire-sim --test it hostile::damaged");
    }
});
