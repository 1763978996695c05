//! Okeanos, section 6: what the paper says of the time to recover, of any way to measure it.

use crate::results::{Claim, TIE};
use crate::stats::float;

/// "More than 20 % less".
const LESS: f64 = 0.8;

/// What is claimed of the longer recovery of wasteless and selective in parts of data journaling's, with each number of
/// streams; NaN where it was not measured. `what` is measured.
pub(in crate::studies) fn claims(at: &str, what: &str, parts: &[f64]) -> [Claim; 2] {
    let count = |with: fn(f64) -> bool| float(parts.iter().filter(|part| with(**part)).count() as u64);
    // What is not measured is not less than anything.
    let shorter = count(|part| part < 1.0 - TIE) / count(|part| !part.is_nan());
    [
        // Tend to: of the numbers of streams, more than half.
        Claim::above(
            at,
            "selective and wasteless tend to reduce the recovery time",
            format!("of all numbers of streams, with how many it is shorter: {what}"),
            shorter,
            0.5,
        ),
        Claim::below(
            at,
            "wasteless and selective recover in more than 20 % less time in some cases",
            format!("of all numbers of streams, the least of {what}"),
            // `f64::min` passes over what is not measured.
            parts.iter().copied().fold(f64::INFINITY, f64::min),
            LESS,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict::{self, Held, NotHeld};

    fn verdicts(parts: &[f64]) -> [Verdict; 2] {
        claims("section 6", "the longer / journal", parts).map(|claim| claim.verdict)
    }

    #[test]
    fn recovery_tends_to_be_shorter_where_it_is_so_with_most_numbers_of_streams() {
        assert_eq!(verdicts(&[1.0, 0.9, 0.7]), [Held, Held]);
        assert_eq!(verdicts(&[1.0, 0.9, 0.85]), [Held, NotHeld]);
        assert_eq!(verdicts(&[1.1, 1.0, 0.7]), [NotHeld, Held]);
        assert_eq!(verdicts(&[1.0, 0.7]), [NotHeld, Held], "half is no tendency");
        assert_eq!(verdicts(&[f64::NAN, 0.7]), [Held, Held]);
        assert_eq!(verdicts(&[f64::NAN, f64::NAN]), [NotHeld; 2], "nothing was measured");
    }
}
