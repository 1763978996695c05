//! Okeanos: what its figures would be with other values of what the studies assume.

use std::time::Duration;

use anyhow::Result;

use super::super::streams::{KBIT, MBIT, Outcome, PERIOD, Streams, run};
use super::runs::{each, per_second};
use super::series::{JOURNAL, ORDERED, SELECTIVE, SERIES, WASTELESS};
use crate::results::{Effort, Figure, shown};

/// Traffic to the journal, in MB/s.
pub(super) struct Swept {
    pub figures: Vec<Figure>,
    pub journal: Vec<f64>,
    pub wasteless: Vec<f64>,
}

/// Figure 4a by when the streams begin, and then by a turn of the disks.
///
/// # Errors
/// A file system failed.
pub(super) fn of_journal_traffic(effort: Effort, count: u64) -> Result<Swept> {
    let streams = Streams::new(count, KBIT, Duration::from_secs(effort.pick(3, 5, 10)));
    let series = [JOURNAL, WASTELESS].map(|n| SERIES[n].0);
    let figure = |id: &str, title: &str, x: &str| {
        let title = format!("{title}, {count} streams of 1 Kbit/s (calibration)");
        Figure::lines(id, "figure 4a", title, x, "MB/s").of_series(series).logarithmic()
    };
    let spread = figure("okeanos-4a-spread", "Bytes to the journal by when streams begin", "all begin within, ms");
    let turn = figure("okeanos-4a-turn", "Bytes to the journal by a turn of the disk, all begin in 1 s", "turn, ms");
    let mut swept = Swept { figures: vec![spread, turn], journal: vec![], wasteless: vec![] };
    let apart = Streams { spread: PERIOD, ..streams };
    let spreads = [0, 250, 1000].map(|ms| (0, ms, Streams { spread: Duration::from_millis(ms), ..streams }));
    let turns = [4000, 2000, 1000, 500, 250].map(|us| (1, us, Streams { turn: Duration::from_micros(us), ..apart }));
    for (figure, x, streams) in spreads.into_iter().chain(turns) {
        let rate = |n: usize| {
            let o = run(SERIES[n].1, streams)?;
            Ok::<_, anyhow::Error>(per_second(o.traffic.journal, o.time))
        };
        let (journal, wasteless) = (rate(JOURNAL)?, rate(WASTELESS)?);
        let x = if figure == 0 { x.to_string() } else { shown(Duration::from_micros(x).as_secs_f64() * 1e3) };
        swept.figures[figure].place(&x, [journal, wasteless]);
        swept.figures[figure].printed(&x, series[0], 27.0);
        swept.figures[figure].printed(&x, series[1], 4.0);
        swept.journal.push(journal);
        swept.wasteless.push(wasteless);
    }
    Ok(swept)
}

/// A mode's latency, in parts of the longer of data journaling's and wasteless's.
pub(super) fn times_the_others(outcomes: &[Outcome], mode: usize) -> f64 {
    let mean = |n: usize| outcomes[n].latency.mean;
    mean(mode) / mean(JOURNAL).max(mean(WASTELESS))
}

/// Figure 4c by how many blocks of a file lie side by side and by when streams begin: the figure, and ordered's and
/// selective's latencies in parts of the others'.
///
/// # Errors
/// A file system failed.
pub fn of_run(effort: Effort, count: u64) -> Result<(Figure, [Vec<f64>; 2])> {
    let modes = [ORDERED, SELECTIVE];
    let begins = [(Duration::ZERO, "together"), (PERIOD, "within 1 s")];
    let series = begins.iter().flat_map(|(_, begin)| modes.map(|n| format!("{}, begin {begin}", SERIES[n].0)));
    let title = format!("Latency by the blocks that lie side by side, {count} streams of 1 Mbit/s (calibration)");
    let y = "times the higher of ext4-journal, wasteless";
    let mut figure = Figure::lines("okeanos-4c-run", "figure 4c", title, "blocks", y).of_series(series).logarithmic();
    let mut swept = [vec![], vec![]];
    let runs: &[u64] = effort.pick(&[1, 32], &[1, 4, 32], &[1, 2, 4, 8, 16, 32]);
    for run in runs {
        let mut row = Vec::new();
        for (spread, _) in begins {
            let streams = Streams::new(count, MBIT, Duration::from_secs(5));
            let outcomes = each(Streams { run: Some(*run), spread, ..streams })?;
            let parts = modes.map(|mode| times_the_others(&outcomes, mode));
            swept.iter_mut().zip(parts).for_each(|(swept, part)| swept.push(part));
            row.extend(parts);
        }
        figure.place(run, row);
    }
    Ok((figure, swept))
}

/// The longer latency of wasteless and selective, in parts of a mode's; 1 where none waits.
pub(super) fn shorter(outcomes: &[Outcome], than: usize) -> f64 {
    let mean = |n: usize| outcomes[n].latency.mean;
    let longer = mean(WASTELESS).max(mean(SELECTIVE));
    match mean(than) {
        0.0 if longer == 0.0 => 1.0,
        other => longer / other,
    }
}

/// Asynchronous streams of 1 Mbit/s by the memory for data: the figure, and the parts of ordered's and of data
/// journaling's latency.
///
/// # Errors
/// A file system failed.
pub(super) fn of_memory(effort: Effort) -> Result<(Figure, [Vec<f64>; 2])> {
    let title = "Latency of asynchronous writes by memory, 40 streams of 1 Mbit/s (calibration)";
    let series = ["the longer of both / ext4-ordered", "the longer of both / ext4-journal"];
    let mut figure =
        Figure::lines("okeanos-async-memory", "section 6", title, "memory, MiB", "times").of_series(series);
    let mut swept = [vec![], vec![]];
    let sizes: &[u64] = effort.pick(&[16, 64], &[16, 32, 64, 128, 256], &[16, 32, 64, 128, 256, 512]);
    for mib in sizes {
        let streams = Streams::new(40, MBIT, Duration::from_secs(effort.pick(10, 10, 30)));
        let outcomes = each(Streams { synchronous: false, memory: mib << 20, ..streams })?;
        let parts = [ORDERED, JOURNAL].map(|n| shorter(&outcomes, n));
        figure.place(mib, parts);
        swept.iter_mut().zip(parts).for_each(|(swept, part)| swept.push(part));
    }
    Ok((figure, swept))
}
