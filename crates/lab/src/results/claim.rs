//! A sentence of a paper, the figure it was held against, and what came out.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::number::{rounded, shown};

/// On which side of the limit a figure has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    AtMost,
    AtLeast,
}

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The figure is on the sentence's side of the sentence's number, and of its size.
    Held,
    /// It is not, or it is more than twice as strong as printed, and the cause is known.
    Differs,
    /// It is not, and no cause is known.
    NotHeld,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Held => "held",
            Verdict::Differs => "differs",
            Verdict::NotHeld => "not held",
        })
    }
}

/// A sentence that is held against a measured figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Section, figure or table of the paper.
    pub at: String,
    /// The paper's sentence in our words.
    pub says: String,
    /// What is measured.
    pub what: String,
    /// `None` where it could not be measured.
    pub measured: Option<f64>,
    pub side: Side,
    /// The sentence's number, or the weakest that its words allow.
    pub limit: f64,
    /// The number that the paper prints; none where the sentence has only words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<f64>,
    /// Why ours is another, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    pub verdict: Verdict,
}

/// A figure with as many decimal places as a printed number has.
fn to_places_of(printed: f64, figure: f64) -> f64 {
    let digits = printed.to_string();
    let places = digits.split_once('.').map_or(0, |(_, behind)| behind.len());
    format!("{figure:.places$}").parse().expect("a number")
}

/// So many times what is printed is another result, not the same.
const ANOTHER: f64 = 2.0;

impl Claim {
    fn new(at: &str, says: &str, what: String, measured: f64, side: Side, limit: f64) -> Self {
        let measured = measured.is_finite().then(|| rounded(measured));
        let mut claim = Claim {
            at: at.into(),
            says: says.into(),
            what,
            measured,
            side,
            limit,
            paper: None,
            why: None,
            verdict: Verdict::NotHeld,
        };
        claim.verdict = claim.judge();
        claim
    }

    /// The figure has to be at most the limit.
    pub fn at_most(at: &str, says: &str, what: impl Into<String>, measured: f64, limit: f64) -> Self {
        Claim::new(at, says, what.into(), measured, Side::AtMost, limit)
    }

    /// The figure has to be at least the limit.
    pub fn at_least(at: &str, says: &str, what: impl Into<String>, measured: f64, limit: f64) -> Self {
        Claim::new(at, says, what.into(), measured, Side::AtLeast, limit)
    }

    /// The limit is the number that the paper prints.
    #[must_use]
    pub fn as_printed(self) -> Self {
        let limit = self.limit;
        self.printed(limit)
    }

    /// The paper prints this number.
    #[must_use]
    pub fn printed(mut self, paper: f64) -> Self {
        self.paper = Some(paper);
        self.verdict = self.judge();
        self
    }

    /// The known cause, should ours be another result.
    #[must_use]
    pub fn because(mut self, why: &str) -> Self {
        self.why = Some(why.into());
        self.verdict = self.judge();
        self
    }

    /// A figure that the paper would print as its own number is that number.
    fn judge(&self) -> Verdict {
        let Some(measured) = self.measured else { return Verdict::NotHeld };
        let as_printed = if self.paper == Some(self.limit) { to_places_of(self.limit, measured) } else { measured };
        let on_its_side = match self.side {
            Side::AtMost => as_printed <= self.limit,
            Side::AtLeast => as_printed >= self.limit,
        };
        let another = self.paper.is_some_and(|paper| match self.side {
            Side::AtMost => measured * ANOTHER < paper,
            Side::AtLeast => measured > paper * ANOTHER,
        });
        match (on_its_side, another, &self.why) {
            (true, false, _) => Verdict::Held,
            (false, _, None) => Verdict::NotHeld,
            (true, true, _) | (false, _, Some(_)) => Verdict::Differs,
        }
    }

    /// The cause that goes with the verdict, if it needs one.
    #[must_use]
    pub fn cause(&self) -> Option<&str> {
        match self.verdict {
            Verdict::Held => None,
            Verdict::Differs => Some(self.why.as_deref().unwrap_or("stronger here than printed")),
            Verdict::NotHeld => Some(if self.measured.is_none() { "not measured" } else { "cause not known" }),
        }
    }

    /// The limit with its side.
    #[must_use]
    pub fn bound(&self) -> String {
        let side = match self.side {
            Side::AtMost => "at most",
            Side::AtLeast => "at least",
        };
        format!("{side} {}", shown(self.limit))
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let measured = self.measured.map_or("-".into(), shown);
        write!(f, "{}: {} ({}): {}: {measured}, {}", self.verdict, self.says, self.at, self.what, self.bound())?;
        if let Some(paper) = self.paper {
            write!(f, ", the paper {}", shown(paper))?;
        }
        self.cause().map_or(Ok(()), |why| write!(f, "; {why}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdicts(claims: [Claim; 3]) -> [Verdict; 3] {
        claims.map(|c| c.verdict)
    }

    #[test]
    fn on_its_side_is_held_beyond_it_is_not_and_a_known_cause_makes_it_differ() {
        let least = |m| Claim::at_least("figure 7", "faster", "a / b", m, 5.1).as_printed();
        let (held, differs, not) = (Verdict::Held, Verdict::Differs, Verdict::NotHeld);
        assert_eq!(verdicts([least(5.1), least(5.0), least(5.0).because("so")]), [held, not, differs]);
        assert_eq!(verdicts([least(10.2), least(10.3), least(f64::NAN).because("so")]), [held, differs, not]);
        assert_eq!(verdicts([least(5.049), least(5.051), least(4.9)]), [not, held, not], "printed as 5.0, 5.1, 4.9");
        let words = |m| Claim::at_least("section 3", "several", "a / b", m, 3.0);
        assert_eq!(verdicts([words(2.99), words(3.0), words(3.1).printed(3.2)]), [not, held, held], "no rounding");
        let most = |m| Claim::at_most("table 1", "fewer", "a", m, 2.0);
        assert_eq!(verdicts([most(2.0), most(2.1), most(0.0)]), [held, not, held]);
        assert_eq!(verdicts([most(0.9).as_printed(), most(1.0).as_printed(), most(0.0)]), [differs, held, held]);
    }

    #[test]
    fn a_line_says_what_was_measured_and_why_it_differs() {
        let claim = Claim::at_least("figure 7", "up to 5.1 times", "djfs / ordered", 3.2, 5.1).because("the model");
        assert_eq!(
            claim.to_string(),
            "differs: up to 5.1 times (figure 7): djfs / ordered: 3.20, at least 5.10; the model"
        );
    }
}
