//! JoJ's cases: what its tables have a line of, and which figure shows them.

use super::plan::{OPERATIONS, Plan};
use crate::served::Kind;
use crate::stats::geometric_mean;
use crate::work::sqlite::{Protection, STEPS};

/// Of the paper's 24 cases.
pub(super) const PROTECTIONS: [Protection; 2] = [Protection::Wal, Protection::Delete];

/// A line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) protection: Protection,
    pub(super) operations: u64,
    pub(super) step: usize,
}

/// Pages of the write-ahead log after which SQLite begins it anew (`wal_autocheckpoint`).
const LOG_PAGES: u64 = 1000;
/// Bytes of a page that a row takes: a key and 100 characters.
const BYTES_OF_A_ROW: u64 = 124;

impl Case {
    /// The write-ahead log takes new blocks: in the inserts, and as long as it was not begun anew by the end of the
    /// case; later cases overwrite it. A small transaction is a page or more, a large one of random rows all pages.
    fn is_growing_log(self, rows: u64, page: u32) -> bool {
        let database = rows / (u64::from(page) / BYTES_OF_A_ROW);
        let (inserts, each) = match self.operations {
            1 => (rows, rows),
            n => (database, rows / n * database),
        };
        let pages = inserts + self.step as u64 * each;
        self.protection == Protection::Wal && (self.step == 0 || pages <= LOG_PAGES)
    }
}

/// In which cases the write-ahead log takes new blocks.
pub(super) fn growing(cases: &[Case], plan: &Plan) -> Vec<bool> {
    cases.iter().map(|c| c.is_growing_log(if c.operations == 1 { plan.small } else { plan.large }, plan.page)).collect()
}

pub(super) fn cases(protections: &[Protection]) -> Vec<Case> {
    let mut all = Vec::new();
    for protection in protections {
        for operations in OPERATIONS {
            all.extend((0..STEPS.len()).map(|step| Case { protection: *protection, operations, step }));
        }
    }
    all
}

/// Which figure of the paper's is of this device, or comes next to it.
pub(super) fn of_paper(kind: &Kind) -> &'static str {
    match kind.to_string().as_str() {
        "emmc" => "figure 2",
        "intel311" => "figure 3",
        _ => "figures 2 and 3 on mounts",
    }
}

/// Those of the cases of so many operations.
pub(super) fn of_operations(cases: &[Case], values: &[f64], operations: u64) -> Vec<f64> {
    cases.iter().zip(values).filter(|(c, _)| c.operations == operations).map(|(_, v)| *v).collect()
}

/// The geometric mean over the cases of so many operations.
pub(super) fn mean_of(cases: &[Case], values: &[f64], operations: u64) -> f64 {
    geometric_mean(&of_operations(cases, values, operations))
}

pub(super) fn ratio(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a / b).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::work::sqlite::PAGE;

    #[test]
    fn the_log_grows_in_inserts_and_while_it_is_short() {
        let growing = |operations, rows| {
            [0, 1, 2].map(|step| Case { protection: Protection::Wal, operations, step }.is_growing_log(rows, PAGE))
        };
        assert_eq!((growing(1, 300), growing(1, 2000)), ([true; 3], [true, false, false]));
        assert_eq!((growing(1000, 5000), growing(1000, 10_000)), ([true, true, false], [true, false, false]));
        assert!(!Case { protection: Protection::Delete, operations: 1, step: 0 }.is_growing_log(300, PAGE));
    }
}
