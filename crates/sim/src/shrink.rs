//! Finds a shorter list of calls that fails, too.

use crate::explore::{Failure, Report};

/// Leaves out calls, in pieces that halve, as long as something still fails. At most `tries` runs of `explore`, which
/// explores some of the calls.
#[must_use]
pub fn shrink(failure: Failure, tries: usize, explore: impl Fn(&[usize]) -> Result<Report, Box<Failure>>) -> Failure {
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
