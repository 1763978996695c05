//! DJFS, table 1: what TPC-C on SQLite makes a journal do. Flushes, FUA writes, journal metadata and journal data for
//! each way to keep it, as percentages of an ext4 in ordered mode, each for a transaction. On the library and the
//! modelled Samsung 840 ([`super::tpcc`]), where an fsync takes its time: on a device that is too fast many find the
//! times of the inode unchanged, and ordered mode commits nothing.
//!
//! "Journal metadata" is the journal's superblock, descriptors, revokes and commits; "data" every other byte of the
//! log. Ordered mode's has no file data. SQLite's pages are of 1 KiB, as they were then; with 4 KiB a block changes as
//! a whole more often.
//!
//! How often an inode is logged follows from its times, which stand still within a tick of the kernel's timer
//! (`Ticks`).

use std::time::Duration;

use anyhow::Result;
use quire_testkit::Model;

use super::tpcc::{Loaded, Machine, Outcome, Plan, grain};
use super::ways::{self, Way};
use crate::results::{ABOUT, Claim, Figure, Findings, Swept, with_one_value};
use crate::stats::float;
use crate::work::tpcc::{Grain, Journal};

/// A way to keep the journal, and what the paper has (in the order of [`ROWS`]) for PERSIST and WAL.
type Column = (Way, [[&'static str; 4]; 2]);

const HUNDRED: [&str; 4] = ["100"; 4];
const COLUMNS: [Column; 6] = [
    (ways::ORDERED, [HUNDRED; 2]),
    (ways::JOURNAL, [["99.2", "99.3", "99.3", "297.4"], ["99.3", "100", "100", "313.3"]]),
    (ways::EXTERNAL, [["99.5", "99.6", "99.5", "298.2"], ["99.3", "100", "100", "312.6"]]),
    (ways::NVJ, [["0.4", "0", "104.6", "239.8"], ["1.3", "0", "103.7", "274.6"]]),
    (ways::DJFS, [["0.003", "0", "2.1", "33.7"], ["0.02", "0", "2.6", "93.4"]]),
    (ways::DJFS4, [["0.006", "0", "2.1", "35.0"], ["0.03", "0", "2.7", "101.1"]]),
];

/// The paper's average delta, in per cent of a block, for PERSIST and WAL.
const PRINTED_DELTA: [&str; 2] = ["6.7", "22.1"];

/// What is counted.
const ROWS: [&str; 4] = ["flushes", "FUA writes", "journal metadata", "journal data"];

/// The columns of [`ways::EXTERNAL`], [`ways::NVJ`], [`ways::DJFS`] and [`ways::DJFS4`].
const EXTERNAL: usize = 2;
const NVJ: usize = 3;
const DJFS: usize = 4;
const DJFS4: usize = 5;
/// The rows of flushes, of FUA writes, of the journal's metadata, and of what is logged beside it.
const FLUSHES: usize = 0;
const FUA: usize = 1;
const METADATA: usize = 2;
const DATA: usize = 3;
/// Bytes of a block.
const BLOCK: u64 = 4096;

/// Of one run, for each transaction.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Counts {
    /// In the order of [`ROWS`]; the last two in bytes.
    rows: [f64; 4],
    /// The average delta, in per cent of a block.
    delta: f64,
}

impl Counts {
    fn of(o: &Outcome) -> Self {
        let [before, after] = &o.journal;
        let (metadata, data, deltas) = match (&before.nvram, &after.nvram) {
            (Some(b), Some(a)) => {
                let metadata = a.metadata_bytes - b.metadata_bytes + o.traffic.journal;
                (metadata, a.data_bytes - b.data_bytes, a.delta_bytes - b.delta_bytes)
            }
            _ => {
                let data = (after.blocks - before.blocks) * BLOCK;
                (o.traffic.journal.saturating_sub(data), data, 0)
            }
        };
        let records = (after.delta_records - before.delta_records) * BLOCK;
        let each = float(o.report.transactions());
        Counts {
            rows: [o.traffic.flushes, o.traffic.fua, metadata, data].map(|n| float(n) / each),
            delta: share(float(deltas), float(records)),
        }
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if part == 0.0 { 0.0 } else { part / whole * 100.0 }
}

/// One of SQLite's journals.
struct Half {
    journal: Journal,
    counted: Counted,
    /// What full journaling logs of data if SQLite commits as the plan does not, in per cent of ordered's.
    by_grain: f64,
}

fn count(loaded: &Loaded, way: Way, on: Machine, journal: Journal, plan: &Plan) -> Result<Counts> {
    Ok(Counts::of(&loaded.run(way, on, journal, plan)?))
}

fn count_each(loaded: &Loaded, on: Machine, journal: Journal, plan: &Plan) -> Result<Counted> {
    let mut all = Counted::default();
    for (counts, (way, ..)) in all.iter_mut().zip(&COLUMNS) {
        *counts = count(loaded, *way, on, journal, plan)?;
    }
    Ok(all)
}

/// The place of a journal in the paper's numbers.
fn half_of(journal: Journal) -> usize {
    usize::from(journal == Journal::Wal)
}

fn other(grain: Grain) -> Grain {
    match grain {
        Grain::Statement => Grain::Transaction,
        Grain::Transaction => Grain::Statement,
    }
}

impl Half {
    fn measured(loaded: &Loaded, journal: Journal, plan: &Plan) -> Result<Self> {
        let on = Machine::with(Model::samsung_840());
        let counted = count_each(loaded, on, journal, plan)?;
        let coarse = Plan { grain: other(plan.grain), ..plan.clone() };
        let data = |way| Ok::<_, anyhow::Error>(count(loaded, way, on, journal, &coarse)?.rows[DATA]);
        let by_grain = share(data(ways::JOURNAL)?, data(ways::ORDERED)?);
        Ok(Half { journal, counted, by_grain })
    }

    /// Of a column, in per cent of ordered's.
    fn percent(&self, n: usize, row: usize) -> f64 {
        to_ordered(&self.counted, n, row)
    }

    fn figures(&self, plan: &Plan) -> Vec<Figure> {
        let (mode, half) = (self.journal.name(), half_of(self.journal));
        let y = "% of ext4-ordered";
        let id = |what: &str| format!("djfs-t1-{}-{what}", mode.to_lowercase());
        let mut figures = Vec::new();
        for (row, name) in ROWS.iter().enumerate() {
            let title = format!("{mode}: {name}, {}", grain(plan.grain));
            let mut figure = Figure::bars(&id(&row.to_string()), "table 1", title, "journal", y).of_series([y]);
            for (n, (way, ..)) in COLUMNS.iter().enumerate() {
                figure.place(way.name, [self.percent(n, row)]);
                figure.printed(way.name, y, printed(n, half, row));
            }
            figures.push(figure);
        }
        let title = format!("{mode}: journal data of ext4-journal by what SQLite commits at once (calibration)");
        let mut figure = Figure::bars(&id("grain"), "table 1", title, "grain", y).of_series([y]);
        for (what, value) in [(plan.grain, self.percent(1, DATA)), (other(plan.grain), self.by_grain)] {
            figure.place(grain(what), [value]);
            figure.printed(grain(what), y, printed(1, half, DATA));
        }
        figures.push(figure);
        figures
    }

    fn claims(&self, ticks: &Ticks) -> Vec<Swept> {
        let (mode, half) = (self.journal.name(), half_of(self.journal));
        let mut claims = Vec::new();
        // The first is what the others are compared with.
        for (n, column) in COLUMNS.iter().enumerate().skip(1) {
            claims.extend((0..ROWS.len()).map(|row| {
                let claim = cell(column, mode, half, row, self.percent(n, row));
                ticks.swept(claim, self.journal, |counted| to_ordered(counted, n, row))
            }));
            if n >= DJFS {
                let says = format!("the average delta is {} % of a block", PRINTED_DELTA[half]);
                let what = format!("{mode}, {}: average delta, %", column.0.name);
                let (at, delta) = ("table 1, text of section VI.2", self.counted[n].delta);
                let claim = Claim::about(at, &says, what, delta, (PRINTED_DELTA[half], ABOUT));
                claims.push(ticks.swept(claim, self.journal, |counted| counted[n].delta));
            }
        }
        claims
    }
}

/// Both halves of the table, with as many transactions on devices as in NVRAM: the first touch of a block is logged
/// whole, and a short run has more of them.
///
/// # Errors
/// A file system or SQLite failed.
pub fn study(plan: &Plan) -> Result<Findings> {
    let plan = &Plan { on_devices: plan.transactions, ..plan.clone() };
    let loaded = Loaded::new(plan)?;
    let mut f = plan.assumed();
    let ticks = Ticks::measured(&loaded, plan)?;
    let mut claims = Vec::new();
    for journal in plan.journals.iter().copied() {
        let half = Half::measured(&loaded, journal, plan)?;
        f.figures.extend(half.figures(plan));
        claims.extend(half.claims(&ticks));
    }
    f.claims = with_one_value(TICK_ASSUMED, &named_ticks(), claims);
    f.figures.extend(ticks.figures());
    f.assume("cells and average deltas are the paper's numbers with a tenth on either side");
    f.assume(
        "the paper's kernel (Linux 4.1) takes an inode's times from the clock of its timer's tick, of 1 ms at least: exact \
         times are shown, and are no cause",
    );
    f.assume("an external journal's flushes are counted on both devices");
    Ok(f)
}

/// What a cell says of its column.
fn cell((way, paper): &Column, mode: &str, half: usize, row: usize, measured: f64) -> Claim {
    let printed = paper[half][row];
    let says = format!("{}: {printed} % of ordered's", ROWS[row]);
    let what = format!("{mode}, {}: {}, %", way.name, ROWS[row]);
    Claim::about("table 1", &says, what, measured, (printed, ABOUT))
}

/// Ticks of the kernel's timer, and how many times as long computing takes as here. A tick has fewer commits in it if
/// they take longer.
const TICKS: [(Duration, f64); 6] = [
    (Duration::ZERO, 1.0),
    (Duration::from_millis(1), 1.0),
    (ways::TICK, 1.0),
    (Duration::from_millis(10), 1.0),
    (Duration::from_millis(1), 10.0),
    (ways::TICK, 10.0),
];

/// The place of the first that the paper's kernel may have had: not exact times.
const FIRST_TICK: usize = 1;

/// Those that may be a cause, in words.
fn named_ticks() -> Vec<String> {
    TICKS[FIRST_TICK..].iter().copied().map(named).collect()
}

/// With each of [`TICKS`]: what each of [`COLUMNS`] counts.
type Counted = [Counts; COLUMNS.len()];
type ByTick = [Counted; TICKS.len()];

/// What is logged by the tick of inode times, with each of SQLite's journals.
struct Ticks(Vec<(Journal, ByTick)>);

/// A cell: a column in per cent of ordered's.
fn to_ordered(counted: &Counted, n: usize, row: usize) -> f64 {
    share(counted[n].rows[row], counted[0].rows[row])
}

/// A tick in words.
fn named((tick, computing): (Duration, f64)) -> String {
    match (tick.is_zero(), computing) {
        (true, _) => "exact times".to_owned(),
        (false, 1.0) => format!("a tick of {tick:?}"),
        (false, times) => format!("a tick of {tick:?} and {times} times the computing"),
    }
}

/// What the paper prints of a column.
fn printed(n: usize, half: usize, row: usize) -> f64 {
    COLUMNS[n].1[half][row].parse().expect("a printed number")
}

/// What the paper prints of the average delta.
fn printed_delta(half: usize) -> f64 {
    PRINTED_DELTA[half].parse().expect("a printed number")
}

/// Why NVJ may log less and flush less often here, and DJFS have fewer small deltas.
const TICK_ASSUMED: &str = "how long inode times stand still and how long computing takes is assumed: an overwrite \
    within a tick logs no inode, and an inode's delta is a small one; a journal in NVRAM flushes when its log or a \
    region of it is full, the more often the more is logged";

/// A tick as a place of a figure.
fn place((tick, computing): (Duration, f64)) -> String {
    match (tick.is_zero(), computing) {
        (true, _) => "exact".to_owned(),
        (false, 1.0) => format!("{tick:?}"),
        (false, times) => format!("{tick:?}, computing x {times}"),
    }
}

/// The cells of a figure of their own, some of which are too low for the other's axis: flushes, metadata, an external
/// journal's others.
const OTHERS: [(usize, usize); 12] = [
    (1, FLUSHES),
    (EXTERNAL, FLUSHES),
    (NVJ, FLUSHES),
    (DJFS, FLUSHES),
    (DJFS4, FLUSHES),
    (1, METADATA),
    (EXTERNAL, METADATA),
    (NVJ, METADATA),
    (DJFS, METADATA),
    (DJFS4, METADATA),
    (EXTERNAL, FUA),
    (EXTERNAL, DATA),
];

/// [`OTHERS`] by the tick, of one of SQLite's journals.
fn others((journal, by_tick): &(Journal, ByTick)) -> Figure {
    let (mode, half) = (journal.name(), half_of(*journal));
    let title = format!(
        "{mode}: flushes, journal metadata and an external journal by how long inode times stand still (calibration)"
    );
    let id = format!("djfs-t1-{}-tick-flushes", mode.to_lowercase());
    let names = OTHERS.map(|(n, row)| format!("{}: {}", COLUMNS[n].0.name, ROWS[row]));
    let mut figure =
        Figure::bars(&id, "table 1", title, "tick", "% of ext4-ordered").of_series(names.clone()).logarithmic();
    for (tick, counts) in TICKS.into_iter().zip(by_tick) {
        let place = place(tick);
        figure.place(&place, OTHERS.map(|(n, row)| to_ordered(counts, n, row)));
        names.iter().zip(OTHERS).for_each(|(name, (n, row))| figure.printed(&place, name, printed(n, half, row)));
    }
    figure
}

impl Ticks {
    fn measured(loaded: &Loaded, plan: &Plan) -> Result<Self> {
        let mut all = Vec::new();
        for journal in plan.journals.iter().copied() {
            let mut by_tick = ByTick::default();
            for (n, (file_tick, computing)) in TICKS.into_iter().enumerate() {
                let on = Machine { file_tick, computing, ..Machine::with(Model::samsung_840()) };
                by_tick[n] = count_each(loaded, on, journal, plan)?;
            }
            all.push((journal, by_tick));
        }
        Ok(Ticks(all))
    }

    fn figures(&self) -> Vec<Figure> {
        let series = [
            "ext4-journal: data",
            "nvj: data",
            "ext4-journal: FUA writes",
            "djfs: data",
            "djfs: average delta, % of a block",
            "djfs4: data",
            "djfs4: average delta, % of a block",
        ];
        let figure = |(journal, by_tick): &(Journal, ByTick)| {
            let (mode, half) = (journal.name(), half_of(*journal));
            let title = format!("{mode}: data and commits by how long inode times stand still (calibration)");
            let id = format!("djfs-t1-{}-tick", mode.to_lowercase());
            let mut figure = Figure::bars(&id, "table 1", title, "tick", "% of ext4-ordered").of_series(series);
            let known = [(1, DATA), (NVJ, DATA), (1, FUA), (DJFS, DATA)].map(|(n, row)| printed(n, half, row));
            for ((tick, computing), counts) in TICKS.iter().zip(by_tick) {
                let place = place((*tick, *computing));
                let percent = |n, row| to_ordered(counts, n, row);
                let values = [percent(1, DATA), percent(NVJ, DATA), percent(1, FUA), percent(DJFS, DATA)];
                let of_djfs = [counts[DJFS].delta, percent(DJFS4, DATA), counts[DJFS4].delta];
                figure.place(&place, values.into_iter().chain(of_djfs));
                let deltas = [printed_delta(half), printed(DJFS4, half, DATA), printed_delta(half)];
                let printed = known.into_iter().chain(deltas);
                series.iter().zip(printed).for_each(|(series, value)| figure.printed(&place, series, value));
            }
            figure
        };
        self.0.iter().flat_map(|of| [figure(of), others(of)]).collect()
    }

    /// A claim with its figure by the tick. All cells are judged with each tick, because all are counted with it.
    fn swept(&self, claim: Claim, journal: Journal, of: impl Fn(&Counted) -> f64) -> Swept {
        match self.0.iter().find(|(other, _)| *other == journal) {
            Some((_, by_tick)) => claim.swept(by_tick[FIRST_TICK..].iter().map(of)),
            None => claim.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;

    /// As the paper prints it, off by a quarter, three times as strong: every cell can fail.
    #[test]
    fn a_cell_is_a_number_with_two_sides() {
        let (held, not) = (Verdict::Held, Verdict::NotHeld);
        for column in &COLUMNS[1..] {
            for (row, printed) in column.1[0].iter().enumerate().filter(|(_, printed)| **printed != "0") {
                let printed: f64 = printed.parse().unwrap();
                let of = |factor: f64| cell(column, "PERSIST", 0, row, printed * factor).verdict;
                assert_eq!([1.0, 1.25, 0.75, 0.3].map(of), [held, not, not, not], "{}, {}", column.0.name, ROWS[row]);
            }
            assert_eq!(cell(column, "PERSIST", 0, FUA, 99.3).verdict == held, column.1[0][FUA] != "0");
        }
        let names = [NVJ, DJFS, DJFS4].map(|n| COLUMNS[n].0.name);
        assert_eq!(names, [ways::NVJ.name, ways::DJFS.name, ways::DJFS4.name]);
    }

    /// Ordered, full journaling in either place, NVJ and DJFS with two and with four regions: what they log, and DJFS'
    /// average delta.
    fn counted(journal: f64, nvj: f64, delta: f64) -> Counted {
        let counts = |data, delta| Counts { rows: [1.0, 1.0, 1.0, data], delta };
        let on_device = counts(journal, 0.0);
        let djfs = counts(22.0, delta);
        [counts(100.0, 0.0), on_device, on_device, counts(nvj, 0.0), djfs, djfs]
    }

    /// The paper's 239.8 and 274.6 with the same tick; with another one each.
    #[test]
    fn a_tick_is_the_cause_in_both_halves_or_in_none() {
        let by_tick = |parts: [f64; 6]| parts.map(|part| counted(300.0, part * 100.0, 0.0));
        let verdicts = |persist, wal| {
            let ticks = Ticks(vec![(Journal::Persist, by_tick(persist)), (Journal::Wal, by_tick(wal))]);
            assert_eq!(ticks.figures().len(), 4, "two of each half");
            let nvj = [Journal::Persist, Journal::Wal].map(|journal| {
                let claim = cell(&COLUMNS[NVJ], journal.name(), half_of(journal), DATA, 150.0);
                ticks.swept(claim, journal, |counted| to_ordered(counted, NVJ, DATA))
            });
            let claims = with_one_value(TICK_ASSUMED, &named_ticks(), nvj.into());
            claims.iter().map(|claim| claim.verdict).collect::<Vec<_>>()
        };
        let persist = [3.0, 1.7, 1.5, 1.4, 1.6, 2.4];
        assert_eq!(verdicts([2.4, 1.7, 1.5, 1.4, 1.6, 1.7], [2.7, 1.7, 1.5, 1.4, 1.6, 1.7]), [Verdict::NotHeld; 2]);
        assert_eq!(verdicts(persist, [3.0, 1.7, 1.5, 1.4, 1.6, 2.7]), [Verdict::Differs; 2]);
        assert!(verdicts(persist, [3.0, 2.7, 1.5, 1.4, 1.6, 1.7]).contains(&Verdict::NotHeld));
    }

    /// With a short tick NVJ logs 240 % of ordered's data and a delta is 6.5 % of a block; here less, and 10 %.
    #[test]
    fn the_tick_is_the_cause_of_nvjs_cell_and_of_the_average_delta_where_another_one_has_the_papers_numbers() {
        let verdicts = |short| {
            let other = counted(245.0, 150.0, 10.0);
            let ticks = Ticks(vec![(Journal::Persist, [other, short, other, other, other, other])]);
            let data = |n: usize, measured| cell(&COLUMNS[n], "PERSIST", 0, DATA, measured);
            let delta = Claim::about("table 1", "a delta", "djfs", 10.0, (PRINTED_DELTA[0], ABOUT));
            let group = [
                (data(1, 290.0), (|counted| to_ordered(counted, 1, DATA)) as fn(&Counted) -> f64),
                (data(NVJ, 150.0), |counted| to_ordered(counted, NVJ, DATA)),
                (delta, |counted| counted[DJFS].delta),
            ];
            let group = group.into_iter().map(|(claim, of)| ticks.swept(claim, Journal::Persist, of));
            let claims = with_one_value(TICK_ASSUMED, &named_ticks(), group.collect());
            claims.iter().map(|claim| claim.verdict).collect::<Vec<_>>()
        };
        let (held, differs, not) = (Verdict::Held, Verdict::Differs, Verdict::NotHeld);
        assert_eq!(verdicts(counted(300.0, 240.0, 6.5)), [held, differs, differs]);
        assert_eq!(verdicts(counted(245.0, 240.0, 6.5)), [held, not, not], "it loses full journaling's cell");
        assert_eq!(verdicts(counted(300.0, 200.0, 6.5)), [held, not, differs]);
    }
}
