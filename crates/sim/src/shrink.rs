//! Finds a shorter list of calls that fails, too.

use crate::explore::{Config, Effort, Failure, Report, explore_kept};
use quire_device::Image;

/// Leaves out calls, in pieces that halve, as long as something still fails. At most `tries` runs.
#[must_use]
pub fn shrink(config: &Config, base: &Image, failure: Failure, effort: Effort, tries: usize) -> Failure {
    let seed = failure.seed;
    shrink_by(failure, tries, |kept| explore_kept(config, base, seed, kept, effort))
}

/// As [`shrink`], with any way to explore some of the calls.
#[must_use]
pub fn shrink_by(
    failure: Failure,
    tries: usize,
    explore: impl Fn(&[usize]) -> Result<Report, Box<Failure>>,
) -> Failure {
    let mut best = failure;
    let mut left = tries;
    let mut piece = best.kept.len().div_ceil(2);
    while piece > 0 && left > 0 {
        let mut at = 0;
        let mut shorter = false;
        while at < best.kept.len() && left > 0 {
            let mut kept = best.kept.clone();
            kept.drain(at..(at + piece).min(kept.len()));
            left -= 1;
            match explore(&kept) {
                Err(f) => {
                    best = *f;
                    shorter = true;
                }
                Ok(_) => at += piece,
            }
        }
        if !shorter {
            piece /= 2;
        }
    }
    best
}
