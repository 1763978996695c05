//! Numbers of tests, and the line that says them.

use std::fmt;
use std::ops::AddAssign;

/// Numbers of tests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    pub passed: u32,
    pub failed: u32,
    pub skipped: u32,
}

impl Tally {
    /// The tally that a line is, if it is one.
    #[must_use]
    pub fn of(line: &str) -> Option<Tally> {
        let number = |part: &str, word: &str| part.trim().strip_suffix(word)?.trim().parse().ok();
        let [passed, failed, skipped] = line.split(',').collect::<Vec<_>>()[..] else { return None };
        let (passed, failed) = (number(passed, "passed")?, number(failed, "failed")?);
        Some(Tally { passed, failed, skipped: number(skipped, "skipped")? })
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_is_read_as_it_is_written() {
        let tally = Tally { passed: 12, failed: 3, skipped: 40 };
        assert_eq!(Tally::of(&tally.to_string()), Some(tally));
        for line in ["", "12 passed", "a passed, 3 failed, 40 skipped", "12 passed, 3 failed, 40 skipped, 1 more"] {
            assert_eq!(Tally::of(line), None, "{line}");
        }
    }
}
