//! Okeanos, figures 4a and 4b and the time to recover: streams of 1 Kbit/s.
//!
//! The paper prints 27 and about 4 MB/s of journal traffic and not the number of streams that write so much, so figure
//! 4a sweeps the number, and its claims are of the first at which data journaling has 27 MB/s. Figure 4b and recovery
//! need runs of more than a minute, in which journaled blocks go home, and are of a stated number of streams.

use std::time::Duration;

use anyhow::Result;

use super::super::streams::{KBIT, Outcome, PERIOD, Streams};
use super::runs::{each, megabytes, most, of_modes, per_second};
use super::series::{APPLICATIONS, JOURNAL, ORDERED, SELECTIVE, SERIES, WASTELESS, assumed};
use super::{by_streams, recovery};
use crate::results::{ABOUT, Claim, Effort, Figure, Findings, with_one_value};
use crate::stats::float;

/// What the paper prints of data journaling's traffic, its most, in MB/s: where it is, the others are judged.
const FULL: f64 = 27.0;
/// What it prints of wasteless's and selective's there.
const LOW: &str = "4";
/// "An order of magnitude": up to where the next one begins.
const ORDER: (f64, f64) = (10.0, 100.0);
/// "Approaches": so many times at most.
const APPROACHES: f64 = 2.0;

/// Figures 4a and 4b, and recovery: streams of 1 Kbit/s.
///
/// # Errors
/// A file system failed.
pub fn slow(effort: Effort) -> Result<Findings> {
    let mut f = Findings::default();
    assumed(&mut f);
    f.assume(format!(
        "the paper prints no number of streams of figure 4a: it is swept, and claims are of the first number at which \
         data journaling has {FULL} MB/s, up to which it goes in the paper, or of the most; streams begin one after \
         the other within a second (calibration: together); files have grown before, each by another number of \
         writes, so that 1 in 33 appends takes a new block in each second; \"approaches\": at most {APPROACHES} times"
    ));
    f.assume(
        "figure 4b and recovery are of the most streams of their own figures, which begin together and whose files are \
         empty then",
    );
    f.assume(
        "\"several metrics\": three, the traffic to the journal, that to the file system, and the latency; each is of the \
         number of streams, and of when they begin, at which it is best (\"up to\")",
    );
    let of_traffic = traffic(effort, &mut f)?;
    let of_home = home(effort, &mut f)?;
    f.claims.push(of_metrics([of_traffic[0], of_traffic[1], of_home]));
    Ok(f)
}

/// How many times better the better of wasteless and selective is: in its traffic to the journal than data journaling,
/// in its traffic to the file system and in its latency than ordered.
fn of_metrics(times: [f64; 3]) -> Claim {
    Claim::between(
        "section 1, contribution (iv)",
        "performance improves up to an order of magnitude across several metrics",
        "the least of: ext4-journal / ours to the journal, ext4-ordered / ours to the file system and in mean latency",
        times.into_iter().fold(f64::INFINITY, f64::min),
        ORDER,
    )
}

/// What each of the series writes to the journal with so many streams, in MB/s, and its mean latency.
#[derive(Clone, Debug)]
struct Row {
    count: u64,
    rates: Vec<f64>,
    latencies: Vec<f64>,
}

impl Row {
    fn of(count: u64, outcomes: &[Outcome]) -> Self {
        Row {
            count,
            rates: outcomes.iter().map(|o| per_second(o.traffic.journal, o.time)).collect(),
            latencies: outcomes.iter().map(|o| o.latency.mean).collect(),
        }
    }

    /// The higher rate of wasteless and selective.
    fn ours(&self) -> f64 {
        self.rates[WASTELESS].max(self.rates[SELECTIVE])
    }

    /// Data journaling's rate, in parts of the highest of the others'.
    fn times_the_others(&self) -> f64 {
        self.rates[JOURNAL] / self.ours().max(self.rates[ORDERED])
    }

    /// Selective's mean latency in parts of wasteless's.
    fn latencies_apart(&self) -> f64 {
        self.latencies[SELECTIVE] / self.latencies[WASTELESS]
    }

    /// The higher rate of wasteless and selective, in parts of ordered's.
    fn times_ordered(&self) -> f64 {
        self.ours() / self.rates[ORDERED]
    }
}

/// Figure 4a and the latency, by the number of streams.
fn traffic(effort: Effort, f: &mut Findings) -> Result<[f64; 2]> {
    const ALL: &[u64] = &[500, 1000, 2000, 4000, 6000, 8000];
    let counts: &[u64] = effort.pick(&[1000, 6000][..], ALL, ALL);
    let time = Duration::from_secs(effort.pick(2, 4, 8));
    let title = |what: &str| format!("{what}, streams of 1 Kbit/s, {} s", time.as_secs());
    let series = || SERIES[..APPLICATIONS].iter().map(|(name, _)| name);
    let of = |id: &str, of: &str, title: String, y: &str| {
        Figure::lines(id, of, title, "streams", y).of_series(series()).logarithmic()
    };
    let mut journal = of("okeanos-4a", "figure 4a", title("Bytes to the journal"), "MB/s");
    let mut latency = of("okeanos-slow-latency", "section 6", title("Mean latency"), "ms");
    let streams = |count| Streams { grown: true, spread: PERIOD, ..Streams::new(count, KBIT, time) };
    let mut rows = Vec::new();
    for count in counts {
        let row = Row::of(*count, &of_modes(0..APPLICATIONS, streams(*count))?);
        journal.place(count, row.rates.iter().copied());
        latency.place(count, row.latencies.iter().map(|us| us / 1e3));
        rows.push(row);
    }
    // The paper's numbers stand where its sentence is judged.
    let at = judged(&rows).count;
    for (series, value) in [(JOURNAL, FULL), (WASTELESS, 4.0), (SELECTIVE, 4.0)] {
        journal.printed(at, SERIES[series].0, value);
    }
    let together = counts
        .iter()
        .filter(|count| **count >= at.min(1000))
        .map(|count| Streams { spread: Duration::ZERO, ..streams(*count) });
    let (begin, together) = begun_together(together)?;
    f.figures.extend([journal, latency, begin]);
    f.claims.extend(journal_claims(&rows, &together));
    let ours = |values: &[f64]| values[WASTELESS].min(values[SELECTIVE]);
    let all = || rows.iter().chain(&together);
    let to_the_journal = all().map(|row| row.rates[JOURNAL] / ours(&row.rates));
    let of_latency = all().map(|row| row.latencies[ORDERED] / ours(&row.latencies));
    Ok([most(to_the_journal), most(of_latency)])
}

/// The same of streams that begin together (calibration).
fn begun_together(streams: impl Iterator<Item = Streams>) -> Result<(Figure, Vec<Row>)> {
    let modes = [ORDERED, JOURNAL, WASTELESS, SELECTIVE];
    let title = "Bytes to the journal, streams of 1 Kbit/s that begin together (calibration)";
    let mut figure = Figure::lines("okeanos-4a-together", "figure 4a", title, "streams", "MB/s")
        .of_series(modes.map(|mode| SERIES[mode].0))
        .logarithmic();
    let mut rows = Vec::new();
    for streams in streams {
        let row = Row::of(streams.count, &of_modes(modes, streams)?);
        figure.place(row.count, row.rates.iter().copied());
        rows.push(row);
    }
    Ok((figure, rows))
}

/// The first row in which data journaling has what the paper prints; without one, the last.
fn judged(rows: &[Row]) -> &Row {
    rows.iter().find(|row| row.rates[JOURNAL] >= FULL).unwrap_or(&rows[rows.len() - 1])
}

/// Figure 4a and the latency. `together` are streams that begin together.
fn journal_claims(rows: &[Row], together: &[Row]) -> Vec<Claim> {
    let row = judged(rows);
    let at = |what: &str| format!("{} streams: {what}", row.count);
    let apart = rows.iter().map(|row| (row, format!("{} streams", row.count)));
    let others = apart.chain(together.iter().map(|row| (row, format!("{} streams that begin together", row.count))));
    // The sentences are of streams with which data journaling has what is printed.
    let others = others.filter(|(row, _)| row.rates[JOURNAL] >= FULL);
    let (others, values): (Vec<&Row>, Vec<String>) = others.unzip();
    let of = |of: fn(&Row) -> f64| others.iter().map(move |row| of(row)).collect::<Vec<f64>>();
    let claims = vec![
        Claim::about(
            "figure 4a",
            "wasteless and selective log up to about 4 MB/s where data journaling logs 27",
            at("the higher of both, MB/s"),
            row.ours(),
            (LOW, ABOUT),
        )
        .swept(of(Row::ours)),
        Claim::between(
            "figure 4a",
            "data journaling is an order of magnitude above all other modes",
            at("ext4-journal / the highest of ordered, wasteless, selective"),
            row.times_the_others(),
            ORDER,
        )
        .swept(of(Row::times_the_others)),
        Claim::at_most(
            "figure 4a, caption",
            "wasteless and selective approach ordered",
            at("the higher of both / ext4-ordered"),
            row.times_ordered(),
            APPROACHES,
        )
        .swept(of(Row::times_ordered)),
        Claim::about(
            "figure 4a, latency",
            "at 1 Kbit/s selective tends to become identical to wasteless",
            at("mean latency, selective / wasteless"),
            row.latencies_apart(),
            (1.0, 0.05),
        )
        .swept(of(Row::latencies_apart)),
    ];
    with_one_value(STREAMS, &values, claims)
}

/// Why the modes may log others' shares here.
const STREAMS: &str = "how many streams there are and when they begin is assumed: apart, fewer writers share a commit, \
    and wasteless logs the blocks of metadata once more with each (okeanos-4a-together has them together); with many, \
    ordered, which writes each block in place, falls behind on the modelled disk, which has no elevator, so writers \
    share commits; the paper's 27 and 4 MB/s themselves are less than an order of magnitude apart";

/// Figure 4b and recovery, by the number of streams.
fn home(effort: Effort, f: &mut Findings) -> Result<f64> {
    let counts: &[u64] = effort.pick(&[400], &[100, 1000], &[100, 500, 1000]);
    // Twice as long as a journaled block stays in memory (`checkpoint_age=`) and more: blocks go home in the run.
    let time = Duration::from_secs(effort.pick(65, 95, 155));
    let of = |what: &str| format!("{what}, streams of 1 Kbit/s, {} s", time.as_secs());
    let mut during = by_streams("okeanos-4b", "figure 4b", of("Bytes to the file system during the run"), "MB/s");
    let mut home = by_streams("okeanos-4b-home", "figure 4b", of("Bytes to the file system until all is home"), "MB");
    let mut recover =
        by_streams("okeanos-recovery", "section 6, recovery", of("Time to recover after a power loss"), "ms");
    let mut last = Vec::new();
    let mut parts = Vec::new();
    for count in counts {
        let outcomes = each(Streams::new(*count, KBIT, time))?;
        during.place(count, outcomes.iter().map(|o| per_second(o.traffic.fs, o.time)));
        home.place(count, outcomes.iter().map(|o| megabytes(o.home)));
        recover.place(count, outcomes.iter().map(|o| o.recovery.as_secs_f64() * 1e3));
        let took = |n: usize| outcomes[n].recovery.as_secs_f64() / outcomes[JOURNAL].recovery.as_secs_f64();
        parts.push(took(WASTELESS).max(took(SELECTIVE)));
        last = outcomes;
    }
    f.figures.extend([during, home, recover]);
    f.claims.extend(home_claims(counts[counts.len() - 1], &last));
    f.claims.extend(recovery::claims("section 6, recovery", "the longer / ext4-journal", &parts));
    let home = |mode: usize| float(last[mode].home);
    Ok(home(ORDERED) / home(WASTELESS).min(home(SELECTIVE)))
}

/// Figure 4b: bytes to the file system.
fn home_claims(count: u64, outcomes: &[Outcome]) -> [Claim; 2] {
    let others =
        |of: fn(&Outcome) -> u64| -> Vec<f64> { outcomes[JOURNAL..=SELECTIVE].iter().map(|o| float(of(o))).collect() };
    let (during, home) = (others(|o| o.traffic.fs), others(|o| o.home));
    // A mode of which nothing went home in the run says nothing about what its blocks cost there.
    let all_went_home = during.iter().all(|bytes| *bytes > 0.0);
    let of_ordered = most(during) / float(outcomes[ORDERED].traffic.fs);
    let at = |what: &str| format!("{count} streams: {what}");
    [
        Claim::at_most(
            "figure 4b",
            "the other modes write several times less to the file system than ordered",
            at("during the run: the most of the others / ordered"),
            if all_went_home { of_ordered } else { f64::NAN },
            1.0 / 3.0,
        ),
        Claim::at_least(
            "figure 4b",
            "the same until all that was written is at home",
            at("ordered / the most of the others"),
            float(outcomes[ORDERED].home) / most(home),
            3.0,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;

    /// A run in which nothing went home does not hold the sentence about bytes to the file system.
    #[test]
    fn figure_4b_is_not_held_by_a_run_that_ends_before_blocks_go_home() {
        let outcomes = |seconds| each(Streams::new(3, KBIT, Duration::from_secs(seconds))).unwrap();
        let claims = home_claims(3, &outcomes(10));
        assert_eq!((claims[0].verdict, claims[0].measured), (Verdict::NotHeld, None));
        assert!(home_claims(3, &outcomes(65))[0].measured.is_some());
    }

    #[test]
    fn an_order_of_magnitude_is_asked_of_three_metrics() {
        assert_eq!(
            [[12.0, 360.0, 11.0], [12.0, 360.0, 6.8]].map(|times| of_metrics(times).verdict),
            [Verdict::Held, Verdict::NotHeld]
        );
    }

    /// Ordered, journal, wasteless, selective.
    fn row(count: u64, rates: [f64; 4]) -> Row {
        Row { count, rates: rates.into(), latencies: vec![1.0; 4] }
    }

    #[test]
    fn figure_4a_is_judged_where_data_journaling_first_has_27_megabytes_a_second() {
        let rows = [row(10, [1.0, 5.0, 1.1, 1.1]), row(60, [2.0, 42.0, 4.0, 4.0]), row(80, [2.0, 50.0, 9.0, 9.0])];
        let claims = journal_claims(&rows, &[]);
        assert!(claims.iter().all(|c| c.what.starts_with("60 streams")));
        assert!(claims.iter().all(|c| c.verdict == Verdict::Held), "{claims:?}");
        let claims = journal_claims(&rows[..1], &[]);
        assert!(claims[0].what.starts_with("10 streams"), "the last where none has so much");
        assert_eq!(claims[1].verdict, Verdict::NotHeld);
    }

    #[test]
    fn a_number_of_streams_at_which_ordered_keeps_up_is_no_cause_if_27_is_lost_with_it() {
        let rows = [row(10, [1.0, 5.0, 1.1, 1.1]), row(60, [0.5, 42.0, 4.0, 4.0])];
        assert_eq!(journal_claims(&rows, &[])[2].verdict, Verdict::NotHeld);
        let with = |rate| journal_claims(&rows, &[row(80, [2.0, rate, 4.0, 4.0])])[2].clone();
        let approach = with(44.0);
        assert_eq!(approach.verdict, Verdict::Differs);
        assert!(approach.cause().unwrap().contains("with 80 streams that begin together 4 of the 4"), "{approach}");
        assert_eq!(with(26.0).verdict, Verdict::NotHeld);
    }

    #[test]
    fn streams_that_begin_together_are_a_cause_of_the_order_of_magnitude_if_they_are_one_apart() {
        let rows = [row(60, [1.5, 27.6, 4.1, 4.1])];
        let claims = |together: [f64; 4]| journal_claims(&rows, &[row(60, together)]);
        let apart = claims([0.5, 40.0, 3.9, 3.9]);
        assert_eq!([apart[0].verdict, apart[1].verdict], [Verdict::Held, Verdict::Differs]);
        assert_eq!(claims([0.5, 26.0, 2.0, 2.0])[1].verdict, Verdict::NotHeld, "they have not 27 MB/s");
        assert_eq!(claims([0.5, 30.0, 4.0, 4.0])[1].verdict, Verdict::NotHeld);
        assert_eq!(claims([0.5, 40.0, 2.0, 2.0])[1].verdict, Verdict::NotHeld, "the 4 MB/s are lost with it");
    }

    /// Data journaling logs a block and a part of the metadata to each write, wasteless the bytes.
    #[test]
    fn the_modes_bytes_to_a_write_do_not_depend_on_when_files_take_new_blocks() {
        let streams = Streams { grown: true, ..Streams::new(330, KBIT, Duration::from_secs(3)) };
        let row = |time| {
            let outcomes = of_modes([JOURNAL, WASTELESS], Streams { time, ..streams }).unwrap();
            outcomes.iter().map(|o| float(o.traffic.journal) / float(o.writes)).collect::<Vec<_>>()
        };
        let [early, late] = [3, 6].map(|seconds| row(Duration::from_secs(seconds)));
        assert!(
            (early[0] / late[0] - 1.0).abs() < 0.05 && (early[1] / late[1] - 1.0).abs() < 0.05,
            "{early:?} {late:?}"
        );
        assert!(early[0] > 4096.0 && early[1] < 1024.0, "{early:?}");
    }
}
