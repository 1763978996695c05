//! What a study is held to: a measured figure, a limit, and whether it is kept.

use std::fmt;

/// On which side of the limit a figure has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    AtMost,
    AtLeast,
}

/// One claim of an issue or a paper, and what came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    pub what: String,
    pub measured: f64,
    pub side: Side,
    pub limit: f64,
}

impl Claim {
    pub fn at_most(what: impl Into<String>, measured: f64, limit: f64) -> Self {
        Claim { what: what.into(), measured, side: Side::AtMost, limit }
    }

    pub fn at_least(what: impl Into<String>, measured: f64, limit: f64) -> Self {
        Claim { what: what.into(), measured, side: Side::AtLeast, limit }
    }

    /// True if the figure is on its side of the limit. What could not be measured is not.
    #[must_use]
    pub fn held(&self) -> bool {
        match self.side {
            Side::AtMost => self.measured <= self.limit,
            Side::AtLeast => self.measured >= self.limit,
        }
    }
}

impl fmt::Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.held() { "held" } else { "not held" };
        let side = match self.side {
            Side::AtMost => "<=",
            Side::AtLeast => ">=",
        };
        write!(f, "{verdict}: {}: {:.3}, limit {side} {:.3}", self.what, self.measured, self.limit)
    }
}

/// Prints them, if there are any, under a title; returns how many are not held.
pub fn print(title: &str, claims: &[Claim]) -> usize {
    if claims.is_empty() {
        return 0;
    }
    println!("\nClaims of {title}:");
    claims.iter().for_each(|c| println!("  {c}"));
    let missed = claims.iter().filter(|c| !c.held()).count();
    println!("  {} held, {missed} not held", claims.len() - missed);
    missed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_knows_its_side_and_says_so() {
        assert!(Claim::at_most("a", 0.5, 0.5).held());
        assert!(!Claim::at_least("a", 0.4, 0.5).held());
        assert!(!Claim::at_most("a", f64::NAN, 0.5).held());
        assert_eq!(Claim::at_least("x", 2.0, 3.0).to_string(), "not held: x: 2.000, limit >= 3.000");
    }
}
