//! Streams of 1 Mbit/s (figure 4c): their claims, and what the claims' figures are where files lie in short runs of
//! blocks, where the journal is on a disk of its own, and where both are so.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::super::super::okeanos::calibration::{ByRun, ORDERS, figure_of_runs};
use super::super::super::streams::{MBIT, PERIOD};
use super::super::appends::{Appends, Done};
use super::super::bed::{Bed, Measured, Rounds};
use super::super::{JOURNAL, ORDERED, OWN_JOURNAL, SELECTIVE, WASTELESS, only};
use crate::mounter::Mounter;
use crate::results::{Claim, Effort, Figure};

/// Okeanos' modes with the journal on a disk of its own, as the paper has it, and data journaling that leaves blocks in
/// memory, as ext3 of Linux 2.6.18 did.
const APART: [&str; 4] = [
    "kernel:data=ordered,external",
    "quire:profile=ext4-journal,external",
    "quire:profile=wasteless,commit_mode=barrier,external",
    "quire:profile=selective,commit_mode=barrier,external",
];
/// Those of [`APART`] in figures.
const OF_APART: [&str; 4] = [ORDERED, OWN_JOURNAL, WASTELESS, SELECTIVE];
/// Ordered, data journaling, wasteless and selective, of which figure 4c's claims are.
const OF_RUNS: [&str; 4] = [ORDERED, JOURNAL, WASTELESS, SELECTIVE];
const ANOTHER_DISK: &str = "the journal on a disk of its own and data journaling that leaves blocks in memory";

/// Those of 1 Mbit/s, which begin one after the other within a second.
pub(super) fn streams_of(count: usize, time: Duration) -> Appends {
    Appends { spread: PERIOD, ..Appends::new(count, MBIT, time) }
}

/// Ordered's and selective's latency in parts of the longer of these.
fn row(rounds: &Rounds<Done>, of: [&str; 2], phase: usize) -> [f64; 2] {
    [ORDERED, SELECTIVE].map(|name| times(rounds, name, of, phase))
}

/// Both by how many blocks of a file lie side by side, of so many streams: one round of these mounters, which are the
/// `named` ones of the figure. `and` is what else is so.
fn by_run(
    (bed, mounters): (&Bed, &[Mounter]),
    (id, named): (&str, [&str; 4]),
    streams: Appends,
    and: &str,
    effort: Effort,
) -> Result<ByRun> {
    let (mut figure, runs) = figure_of_runs(id, effort, &streams.count.to_string(), named);
    let mut parts = Vec::new();
    for blocks in runs {
        let prepare = |dir: &Path| streams.create_in_runs(dir, *blocks);
        let rounds = bed.rounds(1, mounters, prepare, &[streams], |dir, streams| streams.run(dir))?;
        let row = row(&rounds, [named[1], WASTELESS], 0);
        figure.place(blocks, row);
        parts.push(row);
    }
    let mut by_run = ByRun::new(figure, runs, parts);
    by_run.values.iter_mut().for_each(|value| *value += &format!(", {} streams{and}", streams.count));
    Ok(by_run)
}

/// Both with the journal on a disk of its own, by how many streams there are.
fn apart_from_journal(bed: &Bed, mounters: &[Mounter], streams: &[Appends]) -> Result<(Figure, Vec<[f64; 2]>)> {
    let create = |dir: &Path| streams.iter().try_for_each(|streams| streams.create(dir));
    let rounds = bed.rounds(1, mounters, create, streams, |dir, streams| streams.run(dir))?;
    let title = "Latency with the journal on a disk of its own, streams of 1 Mbit/s (calibration)";
    let y = "times the higher of quire ext4-journal, wasteless";
    let figure = Figure::lines("okeanos-4c-disks-mounts", "figure 4c", title, "streams", y);
    let mut figure = figure.of_series([ORDERED, SELECTIVE]).logarithmic();
    let rows: Vec<_> = (0..streams.len()).map(|phase| row(&rounds, [OWN_JOURNAL, WASTELESS], phase)).collect();
    streams.iter().zip(&rows).for_each(|(streams, row)| figure.place(streams.count, *row));
    Ok((figure, rows))
}

/// What the claims' figures are otherwise: in runs of blocks, of `streams`; with the journal on a disk of its own, by
/// these numbers of streams; and both, of `both` of them. With them the figures that show it.
pub(super) fn otherwise(
    bed: Bed,
    all: &[Mounter],
    (streams, apart, both): (Appends, &[usize], usize),
    effort: Effort,
) -> Result<(ByRun, Vec<Figure>)> {
    let mut by_run_alone =
        by_run((&bed, &only(all, &OF_RUNS)), ("okeanos-4c-run-mounts", OF_RUNS), streams, "", effort)?;
    let bed = bed.with_journal_device("hdd15k")?;
    let mounters: Vec<Mounter> = APART.iter().map(|text| text.parse()).collect::<Result<_>>()?;
    let mounters = Mounter::available(&mounters)?;
    let of_apart: Vec<Appends> = apart.iter().map(|count| streams_of(*count, streams.time)).collect();
    let (of_disks, rows) = apart_from_journal(&bed, &mounters, &of_apart)?;
    by_run_alone.with(apart.iter().map(|count| format!("{ANOTHER_DISK}, {count} streams")).zip(rows));
    let of_both = ("okeanos-4c-disks-run-mounts", OF_APART);
    let both = streams_of(both, streams.time);
    let mut with_both = by_run((&bed, &mounters), of_both, both, &format!(", {ANOTHER_DISK}"), effort)?;
    with_both.figure.title += ", the journal on a disk of its own";
    by_run_alone.with(with_both.values.into_iter().zip(with_both.parts));
    let figures = vec![by_run_alone.figure.clone(), of_disks, with_both.figure];
    Ok((by_run_alone, figures))
}

/// The mean of a write, in ms.
pub(super) fn latency(m: &Measured<Done>) -> f64 {
    m.of.latency.mean
}

/// The most of these mounts.
pub(super) fn most(rounds: &Rounds<Done>, phase: usize, names: &[&str], of: fn(&Measured<Done>) -> f64) -> f64 {
    names.iter().map(|name| rounds.median(name, phase, of)).fold(f64::NAN, f64::max)
}

/// A mode's mean latency, in parts of the longer of these.
fn times(rounds: &Rounds<Done>, name: &str, of: [&str; 2], phase: usize) -> f64 {
    rounds.median(name, phase, latency) / most(rounds, phase, &of, latency)
}

/// Figure 4c, each claim of the number of streams of 1 Mbit/s at which it is strongest; `of` are the phases and the
/// numbers.
pub(super) fn claims(rounds: &Rounds<Done>, of: &[(usize, usize)], by_run: &ByRun) -> Vec<Claim> {
    let claim = |says, name| {
        let parts = of.iter().map(|(phase, count)| (times(rounds, name, [JOURNAL, WASTELESS], *phase), count));
        let (part, count) = parts.max_by(|a, b| a.0.total_cmp(&b.0)).expect("streams of 1 Mbit/s");
        let what = format!("{count} streams: {name} / the longer of kernel journal and quire wasteless");
        Claim::at_least("figure 4c, on mounts", says, what, part, ORDERS)
    };
    by_run.judged([
        claim("ordered's latency is orders of magnitude above data journaling's and wasteless's", ORDERED),
        claim("selective's latency is orders of magnitude above theirs, too", SELECTIVE),
    ])
}

#[cfg(test)]
mod tests {
    use super::super::tests::rounds;
    use super::*;
    use crate::results::Verdict;

    #[test]
    fn modes_with_the_journal_on_a_disk_of_its_own_keep_their_names() {
        assert_eq!(APART.map(|text| super::super::super::label(&text.parse().unwrap())), OF_APART);
    }

    #[test]
    fn claims_of_fast_streams_are_of_the_number_at_which_they_are_strongest() {
        let all: [(&str, &[_]); 4] = [
            (ORDERED, &[(0, 20.0), (0, 2000.0)]),
            (JOURNAL, &[(0, 10.0), (0, 15.0)]),
            (WASTELESS, &[(0, 9.0), (0, 20.0)]),
            (SELECTIVE, &[(0, 12.0), (0, 10.0)]),
        ];
        let of = |selective| {
            let (figure, runs) = figure_of_runs("f", Effort::Quick, "100", OF_RUNS);
            claims(&rounds(&all), &[(0, 40), (1, 100)], &ByRun::new(figure, &runs[..1], vec![[150.0, selective]]))
        };
        let claims = of(140.0);
        let verdicts = |claims: &[Claim]| claims.iter().map(|c| c.verdict).collect::<Vec<_>>();
        assert_eq!(verdicts(&claims), [Verdict::Held, Verdict::Differs]);
        assert_eq!(verdicts(&of(14.0)), [Verdict::Held, Verdict::NotHeld]);
        assert!(claims[0].what.starts_with("100 streams") && claims[1].what.starts_with("40 streams"));
    }
}
