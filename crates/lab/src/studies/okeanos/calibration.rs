//! Okeanos: what its figures would be with other values of what the studies assume.

use std::time::Duration;

use anyhow::Result;

use super::super::streams::{MBIT, Outcome, PERIOD, Streams};
use super::runs::of_modes;
use super::series::{JOURNAL, ORDERED, SELECTIVE, SERIES, WASTELESS};
use crate::results::{Claim, Effort, Figure, with_one_row};

/// "Orders of magnitude".
pub const ORDERS: f64 = 100.0;

/// A mode's latency, in parts of the longer of data journaling's and wasteless's.
pub(super) fn times_the_others(outcomes: &[Outcome], mode: usize) -> f64 {
    let mean = |n: usize| outcomes[n].latency.mean;
    mean(mode) / mean(JOURNAL).max(mean(WASTELESS))
}

/// Figure 4c by how many blocks of a file lie side by side.
pub struct ByRun {
    pub figure: Figure,
    /// Each number of blocks, and what else was tried, in words.
    pub values: Vec<String>,
    /// Ordered's and selective's latency in parts of the others' with it.
    pub parts: Vec<[f64; 2]>,
}

/// The figure by how many blocks lie side by side, empty, and the numbers to try; the names are those of ordered, data
/// journaling, wasteless and selective. The least number is what ext3 reserves first for a file
/// (`EXT3_DEFAULT_RESERVE_BLOCKS`).
#[must_use]
pub fn figure_of_runs(
    id: &str,
    effort: Effort,
    count: &str,
    [ordered, journal, wasteless, selective]: [&str; 4],
) -> (Figure, &'static [u64]) {
    let runs: &[u64] = effort.pick(&[8, 32], &[8, 16, 32], &[8, 16, 32, 64]);
    let title = format!("Latency by the blocks that lie side by side, {count} streams of 1 Mbit/s (calibration)");
    let y = format!("times the higher of {journal}, {wasteless}");
    (Figure::lines(id, "figure 4c", title, "blocks", &y).of_series([ordered, selective]).logarithmic(), runs)
}

impl ByRun {
    /// Of numbers of blocks.
    #[must_use]
    pub fn new(figure: Figure, runs: &[u64], parts: Vec<[f64; 2]>) -> Self {
        ByRun { figure, values: runs.iter().map(|run| format!("runs of {run} blocks")).collect(), parts }
    }

    /// What else was tried, which the figure does not show.
    pub fn with(&mut self, others: impl IntoIterator<Item = (String, [f64; 2])>) {
        for (value, parts) in others {
            self.values.push(value);
            self.parts.push(parts);
        }
    }

    /// Ordered's and selective's claims, with one of these values as their cause.
    #[must_use]
    pub fn judged(&self, claims: [Claim; 2]) -> Vec<Claim> {
        with_one_row(WINDOW, &self.values, claims, &self.parts)
    }
}

/// Runs streams of 1 Mbit/s whose files have space before, so many blocks of each in turn: as many streams as ordered's
/// claim is of, and as many as selective's.
///
/// # Errors
/// A file system failed.
pub fn of_run(effort: Effort, [of_ordered, of_selective]: [u64; 2], time: Duration) -> Result<ByRun> {
    let modes = [ORDERED, JOURNAL, WASTELESS, SELECTIVE];
    let both = format!("{of_ordered} (ordered) and {of_selective} (selective)");
    let count = if of_ordered == of_selective { of_ordered.to_string() } else { both };
    let (mut figure, runs) = figure_of_runs("okeanos-4c-run", effort, &count, modes.map(|mode| SERIES[mode].0));
    let mut parts = Vec::new();
    for run in runs {
        let outcomes =
            |count| of_modes(modes, Streams { run: Some(*run), spread: PERIOD, ..Streams::new(count, MBIT, time) });
        let with_first = outcomes(of_ordered)?;
        let ordered = times_the_others(&with_first, ORDERED);
        let with_second = if of_ordered == of_selective { with_first } else { outcomes(of_selective)? };
        let row = [ordered, times_the_others(&with_second, SELECTIVE)];
        figure.place(run, row);
        parts.push(row);
    }
    Ok(ByRun::new(figure, runs, parts))
}

/// Why modes that write in place wait less here.
const WINDOW: &str = "a write of 125 KB is one run of blocks here, so going in place costs one or two movements of the \
    head; ext3 reserves 8 blocks for a file at first and up to 1027 as it grows, so the 31 blocks of a write may lie in \
    five runs among those of other streams; how long the paper's runs were is not known \
    (okeanos-4c-run); nor is the number of streams; on mounts one disk has data and journal, and the kernel's data \
    journaling writes home at each fsync (okeanos-4c-disks-mounts; with such runs okeanos-4c-disks-run-mounts)";
