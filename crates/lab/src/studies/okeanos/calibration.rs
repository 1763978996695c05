//! Okeanos: what its figures would be with other values of what the studies assume.

use std::time::Duration;

use anyhow::Result;

use super::super::streams::{MBIT, Outcome, PERIOD, Streams};
use super::runs::of_modes;
use super::series::{JOURNAL, ORDERED, SELECTIVE, SERIES, WASTELESS};
use crate::results::{Effort, Figure};

/// "Orders of magnitude".
pub const ORDERS: f64 = 100.0;

/// Says whether one value of a parameter serves all claims that share it as their cause: each item is a value of those
/// tried, and says whether all of these claims hold with it.
#[must_use]
pub fn one_serves(claims: &str, values: impl IntoIterator<Item = bool>) -> String {
    let which = if values.into_iter().any(|serves| serves) { "one value" } else { "no value" };
    format!("{which} of those tried serves {claims}")
}

/// A mode's latency, in parts of the longer of data journaling's and wasteless's.
pub(super) fn times_the_others(outcomes: &[Outcome], mode: usize) -> f64 {
    let mean = |n: usize| outcomes[n].latency.mean;
    mean(mode) / mean(JOURNAL).max(mean(WASTELESS))
}

/// Figure 4c by how many blocks of a file lie side by side.
pub struct ByRun {
    pub figure: Figure,
    /// Ordered's and selective's latency in parts of the others', of each number of blocks.
    pub parts: Vec<[f64; 2]>,
}

/// Runs streams of 1 Mbit/s whose files have space before, so many blocks of each in turn. The least is what ext3
/// reserves first for a file (`EXT3_DEFAULT_RESERVE_BLOCKS`).
///
/// # Errors
/// A file system failed.
pub fn of_run(effort: Effort, count: u64, time: Duration) -> Result<ByRun> {
    let runs: &[u64] = effort.pick(&[8, 32], &[8, 16, 32], &[8, 16, 32, 64]);
    let series = [ORDERED, SELECTIVE].map(|mode| SERIES[mode].0);
    let title = format!("Latency by the blocks that lie side by side, {count} streams of 1 Mbit/s (calibration)");
    let y = "times the higher of ext4-journal, wasteless";
    let mut figure = Figure::lines("okeanos-4c-run", "figure 4c", title, "blocks", y).of_series(series).logarithmic();
    let mut parts = Vec::new();
    for run in runs {
        let streams = Streams { run: Some(*run), spread: PERIOD, ..Streams::new(count, MBIT, time) };
        let outcomes = of_modes([ORDERED, JOURNAL, WASTELESS, SELECTIVE], streams)?;
        let row = [ORDERED, SELECTIVE].map(|mode| times_the_others(&outcomes, mode));
        figure.place(run, row);
        parts.push(row);
    }
    Ok(ByRun { figure, parts })
}

/// Why modes that write in place wait less here, and whether one run length serves ordered and selective alike.
#[must_use]
pub fn of_window(parts: &[[f64; 2]]) -> String {
    format!(
        "a write of 125 KB is one run of blocks here, so going in place costs one or two movements of the head; ext3 \
         reserves 8 blocks for a file at first and up to 1027 as it grows, so the 31 blocks of a write may lie in five \
         runs among those of other streams; how long the paper's runs were is not known (okeanos-4c-run); {}",
        one_serves("ordered and selective alike", parts.iter().map(|parts| parts.iter().all(|part| *part >= ORDERS)))
    )
}
