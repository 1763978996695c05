//! Seed after seed until enough states are seen, as the environment asks: `QUIRE_SIM_SEED` for one seed only,
//! `QUIRE_SIM_FIRST` for seeds from there on, `QUIRE_SIM_MIX` for one kind of workload, `QUIRE_SIM_KEEP` for some of
//! its calls.

use crate::explore::{Failure, Report};
use crate::known::Seen;
use crate::mixes::Mix;
use crate::shrink::shrink;

/// mke2fs options of an image with as little as has all structures, and a log that goes round soon.
pub const SMALL: &[&str] = &["-t", "ext4", "-b", "1024", "-N", "256", "-J", "size=1", "-m", "0"];

/// Runs that a failure may be made shorter in.
const TRIES: usize = 60;

/// A number in the environment.
#[must_use]
pub fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Distinct states that a configuration is explored for, which has a share of 60 in all of `sixtieths`: of
/// `QUIRE_SIM_TOTAL`, or else `QUIRE_SIM_STATES`, or `usual`.
#[must_use]
pub fn share(sixtieths: u64, usual: u64) -> u64 {
    match number("QUIRE_SIM_TOTAL") {
        Some(total) => (total * 60).div_ceil(sixtieths),
        None => number("QUIRE_SIM_STATES").unwrap_or(usual),
    }
}

/// One in how many states e2fsck judges: `QUIRE_SIM_FSCK`, or `usual`.
#[must_use]
pub fn fsck_every(usual: u64) -> u64 {
    number("QUIRE_SIM_FSCK").unwrap_or(usual)
}

/// True unless only another mix is asked for.
#[must_use]
pub fn wants(mix: Mix) -> bool {
    std::env::var("QUIRE_SIM_MIX").map_or(true, |only| only == format!("{mix:?}"))
}

/// Explores seeds, all calls or those given, until `wanted` distinct states are seen, and prints what there was under
/// `name`.
///
/// # Panics
/// With the first failure: made shorter, or as it is if its seed was asked for.
pub fn explore_seeds(
    name: &str,
    mix: Mix,
    wanted: u64,
    explore: impl Fn(u64, Option<&[usize]>, &mut Seen) -> Result<Report, Box<Failure>>,
) {
    let only = number("QUIRE_SIM_SEED");
    let first = number("QUIRE_SIM_FIRST").unwrap_or(1);
    let kept = std::env::var("QUIRE_SIM_KEEP").ok();
    let kept = kept.map(|k| k.split(',').map(|i| i.parse().expect("numbers of calls")).collect::<Vec<usize>>());
    let (mut report, mut seen) = (Report::default(), Seen::default());
    for seed in only.map_or(first..u64::MAX, |s| s..s + 1) {
        match explore(seed, kept.as_deref(), &mut seen) {
            Ok(r) => report.add(&r),
            Err(f) if only.is_some() => panic!("{f}"),
            Err(f) => panic!("{}", shrink(*f, TRIES, |kept| explore(seed, Some(kept), &mut Seen::default()))),
        }
        if report.distinct >= wanted {
            break;
        }
    }
    println!("{name} {mix:?}: {report:?}");
}
