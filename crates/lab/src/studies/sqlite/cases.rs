//! JoJ's cases: what its tables have a line of, and which figure shows them.

use super::plan::OPERATIONS;
use crate::served::Kind;
use crate::work::sqlite::{Protection, STEPS};

/// A line of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) protection: Protection,
    pub(super) operations: u64,
    pub(super) step: usize,
}

impl Case {
    /// A write-ahead log takes new blocks: later cases overwrite what the inserts have made.
    pub(super) fn is_growing_log(self) -> bool {
        self.protection == Protection::Wal && self.step == 0
    }
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
