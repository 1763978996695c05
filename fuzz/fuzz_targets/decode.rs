//! Every decoder of the layout crate, on any bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use quire_sim::hostile::{Base, base::RECIPES, decoders::decode_all};
use std::sync::LazyLock;

static BASES: LazyLock<[Base; 2]> = LazyLock::new(|| [Base::new(&RECIPES[0]), Base::new(&RECIPES[1])]);

fuzz_target!(init: { LazyLock::force(&BASES); }, |input: &[u8]| BASES.iter().for_each(|b| decode_all(&b.sb, input)));
