//! A sentence of a paper, the figure it was held against, and what came out.

use std::fmt;
use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use super::number::{rounded, shown};

/// "About", and a number that is printed: a tenth of it more or less.
pub const ABOUT: f64 = 0.1;

/// On which side of the limit a figure has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    AtMost,
    AtLeast,
    /// Less than the limit by more than `TIE`.
    Below,
    /// More than the limit by more than `TIE`.
    Above,
    /// From the limit to the claim's upper limit.
    Within,
}

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The figure is on the sentence's side of the sentence's number, or is that number.
    Held,
    /// It is not, and a known cause explains a figure of that size.
    Differs,
    /// It is not, and no known cause explains a figure of that size.
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

/// A number that the paper prints, with its places (from `"3.0"`), or one that its words mean (from `3.0`).
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    value: f64,
    printed: Option<String>,
}

impl From<f64> for Number {
    fn from(value: f64) -> Self {
        Number { value, printed: None }
    }
}

impl From<&str> for Number {
    fn from(printed: &str) -> Self {
        Number { value: printed.parse().expect("a printed number"), printed: Some(printed.into()) }
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
    /// The other end, where the figure has to be between two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upper: Option<f64>,
    /// The number that the paper prints; none where the sentence has only words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<f64>,
    /// That number with the places that it is printed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub printed: Option<String>,
    /// Why ours is another, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The figures that the cause explains, from the least to the most. Older results have a cause without a range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explains: Option<[f64; 2]>,
    /// An aim of Quire's, not a sentence of the study's paper.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ours: bool,
    pub verdict: Verdict,
}

/// A figure with as many decimal places as a printed number has.
fn to_places_of(printed: &str, figure: f64) -> f64 {
    let places = printed.split_once('.').map_or(0, |(_, behind)| behind.len());
    format!("{figure:.places$}").parse().expect("a number")
}

/// The least and the most of what is a number.
fn ends(figures: impl Iterator<Item = f64>) -> [f64; 2] {
    let numbers = figures.filter(|v| v.is_finite());
    numbers.fold([f64::INFINITY, f64::NEG_INFINITY], |[a, b], v| [a.min(v), b.max(v)])
}

/// A figure that is closer than this to the limit, in parts of the limit, is a tie: neither below nor above.
pub const TIE: f64 = 0.005;

/// The range of a cause that explains no figure.
const NOTHING: [f64; 2] = [1.0, 0.0];

/// What begins a cause that no run has measured.
const SUPPOSED: &str = "the cause is supposed, and not measured: ";
/// What begins the range behind a cause.
const WHICH_EXPLAINS: &str = " (which explains ";
/// What begins the range of a calibration behind a cause.
const BY_IT: &str = "; by it the figure goes from ";
/// The same where it does not go anywhere.
const STAYS: &str = "; by it the figure does not change";

impl Claim {
    fn new(at: &str, says: &str, what: String, measured: f64, side: Side, limit: Number) -> Self {
        let claim = Claim {
            at: at.into(),
            says: says.into(),
            what,
            measured: measured.is_finite().then(|| rounded(measured)),
            side,
            limit: limit.value,
            upper: None,
            paper: limit.printed.as_ref().map(|_| limit.value),
            printed: limit.printed,
            why: None,
            explains: None,
            ours: false,
            verdict: Verdict::NotHeld,
        };
        claim.judged()
    }

    /// The figure has to be at most the limit.
    pub fn at_most(at: &str, says: &str, what: impl Into<String>, measured: f64, limit: impl Into<Number>) -> Self {
        Claim::new(at, says, what.into(), measured, Side::AtMost, limit.into())
    }

    /// The figure has to be at least the limit.
    pub fn at_least(at: &str, says: &str, what: impl Into<String>, measured: f64, limit: impl Into<Number>) -> Self {
        Claim::new(at, says, what.into(), measured, Side::AtLeast, limit.into())
    }

    /// The figure has to be less than the limit; a tie is not.
    pub fn below(at: &str, says: &str, what: impl Into<String>, measured: f64, limit: impl Into<Number>) -> Self {
        Claim::new(at, says, what.into(), measured, Side::Below, limit.into())
    }

    /// The figure has to be more than the limit; a tie is not.
    pub fn above(at: &str, says: &str, what: impl Into<String>, measured: f64, limit: impl Into<Number>) -> Self {
        Claim::new(at, says, what.into(), measured, Side::Above, limit.into())
    }

    /// The figure has to be between these two, or be one of them.
    pub fn between(
        at: &str,
        says: &str,
        what: impl Into<String>,
        measured: f64,
        (low, high): (impl Into<Number>, f64),
    ) -> Self {
        Claim { upper: Some(high), ..Claim::new(at, says, what.into(), measured, Side::Within, low.into()) }.judged()
    }

    /// The figure has to be this number, up to so many parts of it on either side ([`ABOUT`] of most).
    pub fn about(
        at: &str,
        says: &str,
        what: impl Into<String>,
        measured: f64,
        (number, parts): (impl Into<Number>, f64),
    ) -> Self {
        let number = number.into();
        let ends = (number.value * (1.0 - parts), number.value * (1.0 + parts));
        let claim = Claim::between(at, says, what, measured, ends);
        if number.printed.is_some() { claim.printed(number) } else { claim }
    }

    /// What the paper prints as so many per cent more (or less: negative) is a ratio that is as many per cent more, a
    /// tenth of them on either side.
    pub fn by_percent(
        at: &str,
        says: &str,
        what: impl Into<String>,
        ratio: f64,
        (percent, printed): (f64, &str),
    ) -> Self {
        let with = |parts: f64| 1.0 + percent * parts / 100.0;
        let (one, other) = (with(1.0 - ABOUT), with(1.0 + ABOUT));
        Claim::between(at, says, what, ratio, (one.min(other), one.max(other))).printed(printed)
    }

    /// The paper prints this number.
    #[must_use]
    pub fn printed(mut self, paper: impl Into<Number>) -> Self {
        let paper = paper.into();
        self.paper = Some(paper.value);
        self.printed = paper.printed;
        self.judged()
    }

    /// The known cause, which explains figures of this range and no others.
    #[must_use]
    pub fn because_within(mut self, explains: RangeInclusive<f64>, why: &str) -> Self {
        let (least, most) = (rounded(*explains.start()), rounded(*explains.end()));
        let is_range = least.is_finite() && most.is_finite() && least <= most;
        self.explains = Some(if is_range { [least, most] } else { NOTHING });
        let reach = if least < most { format!("{} to {}", shown(least), shown(most)) } else { shown(least) };
        self.why = Some(if is_range { format!("{why}{WHICH_EXPLAINS}{reach})") } else { why.into() });
        self.judged()
    }

    /// The cause is a parameter that is assumed, and no value of it serves this claim: these are its figures.
    #[must_use]
    pub(crate) fn calibrated_in_vain(mut self, sweep: &[f64], why: &str) -> Self {
        let [least, most] = ends(sweep.iter().copied().chain(self.measured)).map(shown);
        self.explains = Some(NOTHING);
        self.why = Some(match (sweep.iter().any(|figure| figure.is_finite()), least == most) {
            (false, _) => why.into(),
            (true, true) => format!("{why}{STAYS} (calibration)"),
            (true, false) => format!("{why}{BY_IT}{least} to {most} (calibration)"),
        });
        self.judged()
    }

    /// With a cause that is supposed, and that no run has measured: it explains nothing.
    #[must_use]
    pub(crate) fn supposedly(mut self, why: &str) -> Self {
        self.explains = Some(NOTHING);
        self.why = Some(format!("{SUPPOSED}{why}"));
        self.judged()
    }

    /// Whether the claim would hold if this were measured.
    #[must_use]
    pub fn would_hold(&self, figure: f64) -> bool {
        figure.is_finite() && self.is_on_its_side(figure)
    }

    /// An aim of Quire's in a study of a paper.
    #[must_use]
    pub fn ours(self) -> Self {
        Claim { ours: true, ..self }
    }

    fn judged(mut self) -> Self {
        self.verdict = self.judge();
        self
    }

    /// A figure that the paper would print as its own number is that number.
    fn is_on_its_side(&self, measured: f64) -> bool {
        let as_printed = self.printed.as_ref().map_or(measured, |printed| to_places_of(printed, measured));
        match self.side {
            Side::AtMost => measured <= self.limit || self.paper == Some(self.limit) && as_printed <= self.limit,
            Side::AtLeast => measured >= self.limit || self.paper == Some(self.limit) && as_printed >= self.limit,
            Side::Below => measured < self.limit * (1.0 - TIE),
            Side::Above => measured > self.limit * (1.0 + TIE),
            Side::Within => {
                let is_between = self.limit <= measured && self.upper.is_some_and(|upper| measured <= upper);
                is_between || self.printed.is_some() && self.paper == Some(as_printed)
            }
        }
    }

    fn is_explained(&self, measured: f64) -> bool {
        self.explains.is_some_and(|[least, most]| least <= measured && measured <= most)
    }

    fn judge(&self) -> Verdict {
        match self.measured {
            None => Verdict::NotHeld,
            Some(m) if self.is_on_its_side(m) => Verdict::Held,
            Some(m) if self.is_explained(m) => Verdict::Differs,
            Some(_) => Verdict::NotHeld,
        }
    }

    /// The cause that goes with the verdict, if it needs one.
    #[must_use]
    pub fn cause(&self) -> Option<&str> {
        match (self.verdict, self.measured) {
            (Verdict::Held, _) => None,
            (Verdict::NotHeld, None) => Some("not measured"),
            (Verdict::NotHeld, _) if self.is_supposed() => self.why.as_deref(),
            (Verdict::NotHeld, _) if self.why.is_some() => Some("the known cause does not explain so much"),
            (Verdict::NotHeld, _) => Some("cause not known"),
            (Verdict::Differs, measured) => {
                let is_cause = self.explains.is_none() || measured.is_some_and(|m| self.is_explained(m));
                let why = self.why.as_deref().filter(|_| is_cause);
                // Older results have no cause for what is more than twice as strong as printed.
                Some(why.unwrap_or("stronger here than printed"))
            }
        }
    }

    fn is_supposed(&self) -> bool {
        self.why.as_ref().is_some_and(|why| why.starts_with(SUPPOSED))
    }

    /// Why, as far as the figure is beyond what is known to explain it.
    fn unexplained(&self) -> Option<&str> {
        let is_so = self.verdict == Verdict::NotHeld && self.measured.is_some() && !self.is_supposed();
        self.why.as_deref().filter(|_| is_so)
    }

    /// The same with what is known of the cause where it does not explain so much.
    #[must_use]
    pub fn cause_in_full(&self) -> Option<String> {
        let cause = self.cause()?;
        Some(self.unexplained().map_or_else(|| cause.to_owned(), |why| format!("{cause}: {why}")))
    }

    /// The cause that goes with the verdict without the figures that it explains, so that claims share it.
    #[must_use]
    pub fn shared_cause(&self) -> Option<String> {
        let cause = self.cause()?;
        let alone = |cause: &str| {
            let ends = [WHICH_EXPLAINS, BY_IT, STAYS].iter().filter_map(|begin| cause.find(begin));
            cause[..ends.min().unwrap_or(cause.len())].to_owned()
        };
        Some(match self.unexplained() {
            Some(why) => {
                let is_range = self.explains.is_some_and(|[least, most]| least <= most);
                format!("{cause}: {}", if is_range { why.to_owned() } else { alone(why) })
            }
            _ => alone(cause),
        })
    }

    /// The limit as the paper prints it, or with three digits.
    fn limit_shown(&self) -> String {
        match &self.printed {
            Some(printed) if self.paper == Some(self.limit) => printed.clone(),
            _ => shown(self.limit),
        }
    }

    /// The limit with its side.
    #[must_use]
    pub fn bound(&self) -> String {
        let side = match self.side {
            Side::AtMost => "at most",
            Side::AtLeast => "at least",
            Side::Below => "below",
            Side::Above => "above",
            Side::Within => return format!("{} to {}", shown(self.limit), shown(self.upper.unwrap_or(self.limit))),
        };
        format!("{side} {}", self.limit_shown())
    }

    /// The paper's number as it is printed; none where the sentence has only words.
    #[must_use]
    pub fn paper_shown(&self) -> Option<String> {
        self.paper.map(|paper| self.printed.clone().unwrap_or_else(|| shown(paper)))
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let measured = self.measured.map_or("-".into(), shown);
        let ours = if self.ours { "Quire's aim, " } else { "" };
        write!(f, "{}: {} ({ours}{}): {}: {measured}, ", self.verdict, self.says, self.at, self.what)?;
        f.write_str(&self.bound())?;
        if let Some(paper) = self.paper_shown() {
            write!(f, ", the paper {paper}")?;
        }
        self.cause_in_full().map_or(Ok(()), |why| write!(f, "; {why}"))
    }
}

#[cfg(test)]
mod tests;
