//! Claims that have one assumed parameter as their cause, with their figures by its values.
//!
//! *Guarantees*: the parameter is a cause only of what one of its values brings, and only if with that value all claims
//! of the group still hold that hold with what is assumed ([`with_one_value`]). So two claims that need two values have
//! no cause.

use super::{Claim, Verdict};

/// A claim, and its figure with each value that was tried; NaN where the value has none. A claim that the parameter
/// does not touch has no figures.
#[derive(Clone, Debug)]
pub struct Swept {
    claim: Claim,
    figures: Option<Vec<f64>>,
}

impl From<Claim> for Swept {
    fn from(claim: Claim) -> Self {
        Swept { claim, figures: None }
    }
}

impl Claim {
    /// With its figures by the values of a parameter.
    #[must_use]
    pub fn swept(self, figures: impl IntoIterator<Item = f64>) -> Swept {
        Swept { claim: self, figures: Some(figures.into_iter().collect()) }
    }
}

impl Swept {
    /// It is one that the parameter touches, and holds with what is assumed.
    fn holds_here(&self) -> bool {
        self.figures.is_some() && self.claim.verdict == Verdict::Held
    }

    fn holds_with(&self, n: usize) -> bool {
        self.with(n).is_some_and(|figure| self.claim.would_hold(figure))
    }

    fn with(&self, n: usize) -> Option<f64> {
        self.figures.as_ref()?.get(n).copied()
    }
}

/// The value with which the most claims hold, if all hold with it that hold here, and more do; of two the first.
fn better_value(group: &[Swept], count: usize) -> Option<(usize, usize)> {
    let keeps = |n: &usize| group.iter().all(|of| !of.holds_here() || of.holds_with(*n));
    let hold = |n: usize| (n, group.iter().filter(|of| of.holds_with(n)).count());
    let here = group.iter().filter(|of| of.holds_here()).count();
    let better = (0..count).filter(keeps).map(hold).filter(|(_, held)| *held > here);
    better.fold(None, |best, with| if best.is_some_and(|(_, held)| held >= with.1) { best } else { Some(with) })
}

/// These claims, of which `why` says that a parameter is assumed, and `values` names those that were tried. A claim
/// that does not hold here and holds with the best of them differs; one that differs for another cause keeps that if it
/// is not served, and that no value helps is said beside the others.
#[must_use]
pub fn with_one_value(why: &str, values: &[String], group: Vec<Swept>) -> Vec<Claim> {
    let better = better_value(&group, values.len());
    let here = group.iter().filter(|of| of.holds_here()).count();
    let all = group.iter().filter(|of| of.figures.is_some()).count();
    let served = |claim: Claim, measured: f64, (n, held): (usize, usize), with: f64| {
        let value = &values[n];
        let why = format!("{why}; with {value} {held} of the {all} claims about it hold, {here} with what is assumed");
        claim.because_within(measured.min(with)..=measured.max(with), &why)
    };
    let judged = |of: Swept| {
        if of.holds_here() {
            return of.claim;
        }
        let by =
            better.filter(|(n, _)| of.holds_with(*n)).and_then(|by| Some((by, of.with(by.0)?, of.claim.measured?)));
        match (by, of.figures) {
            (Some((by, with, measured)), _) => served(of.claim, measured, by, with),
            (None, Some(figures)) if of.claim.verdict == Verdict::NotHeld => {
                let why = format!("{why}; no value of those tried serves this claim and all that hold");
                of.claim.calibrated_in_vain(&figures, &why)
            }
            (None, _) => of.claim,
        }
    };
    group.into_iter().map(judged).collect()
}

/// The same, where each value has the figures of all claims, in their order.
#[must_use]
pub fn with_one_row(
    why: &str,
    values: &[String],
    claims: impl IntoIterator<Item = Claim>,
    rows: &[impl AsRef<[f64]>],
) -> Vec<Claim> {
    let swept = claims.into_iter().enumerate().map(|(n, claim)| claim.swept(rows.iter().map(|row| row.as_ref()[n])));
    with_one_value(why, values, swept.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{Differs, Held, NotHeld};

    fn faster(measured: f64) -> Claim {
        Claim::at_least("figure 7", "three times as fast", "a / b", measured, "3.0")
    }

    fn verdicts(group: Vec<Swept>) -> Vec<Verdict> {
        with_one_value("assumed", &["1 ms".into(), "2 ms".into()], group).iter().map(|c| c.verdict).collect()
    }

    #[test]
    fn one_value_serves_all_claims_or_is_the_cause_of_those_it_serves() {
        let two = |a: [f64; 2], b: [f64; 2]| verdicts(vec![faster(1.0).swept(a), faster(2.0).swept(b)]);
        assert_eq!(two([3.5, 1.0], [3.1, 9.0]), [Differs; 2]);
        assert_eq!(two([3.5, 1.0], [1.0, 3.5]), [Differs, NotHeld], "the second needs another value");
        assert_eq!(two([1.0, 1.0], [2.0, 2.9]), [NotHeld; 2], "no value serves either");
        assert_eq!(two([f64::NAN, 3.0], [1.0, 3.0]), [Differs; 2]);
    }

    #[test]
    fn a_value_that_loses_what_holds_here_is_no_cause() {
        let group = |kept: f64| vec![faster(1.0).swept([3.5]), faster(1.0).swept([3.5]), faster(3.0).swept([kept])];
        assert_eq!(verdicts(group(2.0)), [NotHeld, NotHeld, Held]);
        assert_eq!(verdicts(group(3.0)), [Differs, Differs, Held]);
        assert_eq!(verdicts(vec![faster(1.0).swept([3.5]), faster(3.0).into()]), [Differs, Held], "untouched");
        assert_eq!(verdicts(vec![faster(1.0).swept([3.5]), faster(3.0).swept([f64::NAN])]), [NotHeld, Held], "unknown");
        assert_eq!(verdicts(vec![faster(f64::NAN).swept([4.0])]), [NotHeld], "nothing was measured");
    }

    #[test]
    fn a_claim_that_no_value_serves_keeps_its_own_cause() {
        let own = faster(1.0).because_within(1.0..=2.0, "its own");
        let claims = with_one_value("assumed", &["1 ms".into()], vec![own.clone().swept([2.0]), own.swept([3.0])]);
        assert_eq!(claims[0].shared_cause().as_deref(), Some("its own"));
        assert!(claims[1].shared_cause().unwrap().starts_with("assumed; with 1 ms"), "{}", claims[1]);
    }

    #[test]
    fn a_cause_names_the_value_and_how_many_claims_hold_with_it() {
        let group = vec![faster(1.0).swept([1.0, 3.5]), faster(3.0).swept([3.0, 3.0]), faster(1.0).swept([1.0, 2.0])];
        let claims = with_one_value("the flush", &["1 ms".into(), "2 ms".into()], group);
        let cause = |n: usize| claims[n].shared_cause();
        assert_eq!(cause(0).unwrap(), "the flush; with 2 ms 2 of the 3 claims about it hold, 1 with what is assumed");
        assert_eq!((claims[0].explains, cause(1)), (Some([1.0, 3.5]), None));
        assert!(cause(2).unwrap().ends_with("no value of those tried serves this claim and all that hold"));
    }
}
