//! Okeanos (USENIX ATC '11): what small synchronous writes cost in the journal. Figure 1 by request size, figure 4 by
//! number of streams, the time to recover; on the modelled 15,000 rpm disk, in virtual time, the journal on a disk of
//! its own. What it does for applications is in [`postmark`], [`log_replay`] and [`server`], what reads cost in
//! [`readback`].

pub mod calibration;
pub mod log_replay;
pub mod postmark;
pub mod readback;
mod runs;
pub mod series;
pub mod server;

use std::time::Duration;

use anyhow::Result;
use quire_fs::Profile;

use self::runs::{each, megabytes, per_second};
use self::series::{JOURNAL, ORDERED, SELECTIVE, SERIES, WASTELESS, WRITEBACK, assumed, names};
use super::streams::{KBIT, MBIT, Outcome, Streams, run};
use crate::results::{Claim, Effort, Figure, Findings};
use crate::stats::float;

fn streams(id: &str, of: &str, title: String, y: &str) -> Figure {
    Figure::lines(id, of, title, "streams", y).of_series(names())
}

/// Figure 1: bytes to the journal by the size of the requests.
///
/// # Errors
/// A file system failed.
pub fn requests(effort: Effort) -> Result<Findings> {
    let time = Duration::from_secs(effort.pick(20, 60, 300));
    let sizes: &[usize] =
        effort.pick(&[64, 1024, 4096], &[64, 256, 1024, 4096], &[64, 128, 256, 512, 1024, 2048, 4096]);
    let title = format!("Bytes to the journal, 100 threads, {} s", time.as_secs());
    let series = names().into_iter().chain([WRITEBACK.0]);
    let mut figure = Figure::lines("okeanos-1", "figure 1", title, "request, B", "MB").of_series(series);
    let mut written: Vec<Vec<f64>> = Vec::new();
    for bytes in sizes {
        let streams = Streams::new(100, *bytes, time);
        let mut outcomes = each(streams)?;
        outcomes.push(run(WRITEBACK.1, streams)?);
        let row: Vec<f64> = outcomes.iter().map(|o| megabytes(o.traffic.journal)).collect();
        figure.place(bytes, row.iter().copied());
        written.push(row);
    }
    let mut f = Findings { figures: vec![figure], ..Findings::default() };
    assumed(&mut f);
    f.assume("\"almost linearly\": a straight line leaves a twentieth of the variance at most");
    f.claims = request_claims(sizes, &written);
    Ok(f)
}

/// Figure 1, by the size of the requests.
fn request_claims(sizes: &[usize], written: &[Vec<f64>]) -> Vec<Claim> {
    let at = "figure 1";
    let (small, large) = (&written[0], &written[written.len() - 1]);
    // What ordered's traffic grows by is metadata alone, and data journaling logs the same metadata.
    let metadata = (small[JOURNAL] + large[ORDERED] - small[ORDERED]) / small[JOURNAL];
    let mut claims = vec![
        Claim::at_least(
            at,
            "with small requests data journaling writes far more than it is given (several times ordered's)",
            "64 B: ext4-journal / ext4-ordered",
            small[JOURNAL] / small[ORDERED],
            3.0,
        ),
        Claim::about(
            at,
            "data journaling's traffic hardly changes as the request grows to 4 KB",
            "ext4-journal: 4096 B / 64 B",
            large[JOURNAL] / small[JOURNAL],
            (1.0, 0.25),
        )
        .because_within(
            1.0..=metadata * 1.01,
            "a request of 4096 B takes a new block each time, whose bitmap, counters and extents are \
             logged beside the data: ordered's traffic, which is metadata alone, grows by as many bytes",
        ),
    ];
    for (mode, name, n) in [("ordered", "ext4-ordered", ORDERED), ("writeback", WRITEBACK.0, small.len() - 1)] {
        let points = sizes.iter().zip(written).map(|(bytes, row)| (float(*bytes as u64), row[n]));
        claims.push(Claim::at_least(
            at,
            &format!("{mode}'s traffic grows almost linearly with the request"),
            format!("{name}: part of the variance that a straight line explains"),
            fit_by_line(&points.collect::<Vec<_>>()),
            0.95,
        ));
        claims.push(Claim::above(
            at,
            &format!("{mode}'s traffic grows with the request"),
            format!("{name}: 4096 B / 64 B"),
            large[n] / small[n],
            1.0,
        ));
    }
    claims
}

/// The part of the variance of the second values that a straight line through all explains (R squared).
fn fit_by_line(points: &[(f64, f64)]) -> f64 {
    let n = float(points.len() as u64);
    let (x, y) = points.iter().fold((0.0, 0.0), |(x, y), p| (x + p.0 / n, y + p.1 / n));
    let sum = |of: &dyn Fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>();
    let both = sum(&|p| (p.0 - x) * (p.1 - y));
    both * both / sum(&|p| (p.0 - x).powi(2)) / sum(&|p| (p.1 - y).powi(2))
}

/// Figures 4a and 4b, and recovery: streams of 1 Kbit/s.
///
/// # Errors
/// A file system failed.
pub fn slow(effort: Effort) -> Result<Findings> {
    let counts: &[u64] = effort.pick(&[100, 1000], &[100, 500, 1000], &[100, 250, 500, 1000]);
    // Twice as long as a journaled block stays in memory (`checkpoint_age=`) and more: blocks go home in the run.
    let time = Duration::from_secs(effort.pick(65, 95, 155));
    let of = |what: &str| format!("{what}, streams of 1 Kbit/s, {} s", time.as_secs());
    let mut journal = streams("okeanos-4a", "figure 4a", of("Bytes to the journal"), "MB/s").logarithmic();
    let mut during = streams("okeanos-4b", "figure 4b", of("Bytes to the file system during the run"), "MB/s");
    let mut home = streams("okeanos-4b-home", "figure 4b", of("Bytes to the file system until all is home"), "MB");
    let mut latency = streams("okeanos-slow-latency", "section 6", of("Mean latency"), "ms");
    let mut recovery =
        streams("okeanos-recovery", "section 6, recovery", of("Time to recover after a power loss"), "ms");
    let mut last = Vec::new();
    let mut shortest = f64::INFINITY;
    for count in counts {
        let outcomes = each(Streams::new(*count, KBIT, time))?;
        journal.place(count, outcomes.iter().map(|o| per_second(o.traffic.journal, o.time)));
        during.place(count, outcomes.iter().map(|o| per_second(o.traffic.fs, o.time)));
        home.place(count, outcomes.iter().map(|o| megabytes(o.home)));
        latency.place(count, outcomes.iter().map(|o| o.latency.mean / 1e3));
        recovery.place(count, outcomes.iter().map(|o| o.recovery.as_secs_f64() * 1e3));
        let took = |n: usize| outcomes[n].recovery.as_secs_f64() / outcomes[JOURNAL].recovery.as_secs_f64();
        shortest = shortest.min(took(WASTELESS).max(took(SELECTIVE)));
        last = outcomes;
    }
    let most = counts[counts.len() - 1];
    for (series, value) in [(JOURNAL, 27.0), (WASTELESS, 4.0), (SELECTIVE, 4.0)] {
        journal.printed(most, SERIES[series].0, value);
    }
    let swept = calibration::of_journal_traffic(effort, most)?;
    let mut f = Findings { figures: vec![journal, during, home, latency, recovery], ..Findings::default() };
    assumed(&mut f);
    f.claims = journal_claims(most, &last, &swept);
    f.figures.extend(swept.figures);
    f.claims.extend(home_claims(most, &last, shortest));
    Ok(f)
}

/// Figure 4a: bytes to the journal.
fn journal_claims(count: u64, outcomes: &[Outcome], swept: &calibration::Swept) -> Vec<Claim> {
    let rate = |n: usize| per_second(outcomes[n].traffic.journal, outcomes[n].time);
    let latency = |n: usize| outcomes[n].latency.mean;
    let at = |what: &str| format!("{count} streams: {what}");
    let shared = "27 MB/s are seven blocks to each write of 125 bytes, so few writers shared a commit; how many do \
                  follows from when the streams begin and from a turn of the disk, which are assumed";
    vec![
        Claim::at_least(
            "figure 4a",
            "data journaling writes up to 27 MB/s to the journal",
            at("ext4-journal, MB/s"),
            rate(JOURNAL),
            "27",
        )
        .calibrated(&swept.journal, shared),
        Claim::at_most(
            "figure 4a",
            "wasteless and selective stay at about 4 MB/s",
            at("the higher of both, MB/s"),
            rate(WASTELESS).max(rate(SELECTIVE)),
            "4",
        )
        .calibrated(&swept.wasteless, shared),
        Claim::at_least(
            "figure 4a",
            "data journaling is an order of magnitude above all other modes (27 MB/s beside about 4)",
            at("ext4-journal / the highest of ordered, wasteless, selective"),
            rate(JOURNAL) / rate(ORDERED).max(rate(WASTELESS)).max(rate(SELECTIVE)),
            27.0 / 4.0,
        ),
        Claim::about(
            "figure 4a, latency",
            "at 1 Kbit/s selective tends to become identical to wasteless",
            at("mean latency, selective / wasteless"),
            latency(SELECTIVE) / latency(WASTELESS),
            (1.0, 0.05),
        ),
    ]
}

/// Figure 4b and recovery: bytes to the file system, and the time until all is home after a power loss.
fn home_claims(count: u64, outcomes: &[Outcome], recovery: f64) -> Vec<Claim> {
    let others =
        |of: fn(&Outcome) -> u64| -> Vec<f64> { outcomes[JOURNAL..=SELECTIVE].iter().map(|o| float(of(o))).collect() };
    let most = |of: &[f64]| of.iter().copied().fold(0.0, f64::max);
    let (during, home) = (others(|o| o.traffic.fs), others(|o| o.home));
    // A mode of which nothing went home in the run says nothing about what its blocks cost there.
    let all_went_home = during.iter().all(|bytes| *bytes > 0.0);
    let of_ordered = most(&during) / float(outcomes[ORDERED].traffic.fs);
    let at = |what: &str| format!("{count} streams: {what}");
    vec![
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
            float(outcomes[ORDERED].home) / most(&home),
            3.0,
        ),
        Claim::below(
            "section 6, recovery",
            "wasteless and selective recover in more than 20 % less time in some cases",
            "of all numbers of streams, the least of the longer / ext4-journal",
            recovery,
            0.8,
        ),
    ]
}

/// "Orders of magnitude".
const ORDERS: f64 = 100.0;

/// Why modes that write in place wait less here.
pub(super) const RUN: &str = "a write of 125 KB is one run of blocks here, so going in place costs one or two movements of the head; \
     ext3 allots each of its 31 blocks as it is written, which puts blocks of many streams between them; and streams \
     that begin together wait for each other's bytes, also in the log";

/// Figure 4c: streams of 1 Mbit/s.
///
/// # Errors
/// A file system failed.
pub fn fast(effort: Effort) -> Result<Findings> {
    let counts: &[u64] = effort.pick(&[10, 40], &[10, 20, 40], &[10, 20, 40, 60]);
    let time = Duration::from_secs(effort.pick(5, 10, 30));
    let title = |what: &str| format!("{what}, streams of 1 Mbit/s, {} s", time.as_secs());
    let mut latency =
        streams("okeanos-4c", "figure 4c", title("Mean latency of a synchronous write"), "ms").logarithmic();
    let mut home = streams("okeanos-4c-fs", "figure 4c", title("Bytes to the file system"), "MB/s");
    let mut last = Vec::new();
    for count in counts {
        let outcomes = each(Streams::new(*count, MBIT, time))?;
        latency.place(count, outcomes.iter().map(|o| o.latency.mean / 1e3));
        home.place(count, outcomes.iter().map(|o| per_second(o.traffic.fs, o.time)));
        last = outcomes;
    }
    let most = counts[counts.len() - 1];
    let (figure, [ordered, selective]) = calibration::of_run(effort, most)?;
    let mut f = Findings { figures: vec![latency, home, figure], ..Findings::default() };
    assumed(&mut f);
    f.assume(
        "an append gets its blocks side by side, as ext4 gives them to what is written back; the calibration overwrites \
         files whose blocks lie among the other streams'",
    );
    let claim = |says, mode: usize, swept: &[f64]| {
        let what = format!("{most} streams: {} / the higher of both", SERIES[mode].0);
        let measured = calibration::times_the_others(&last, mode);
        Claim::at_least("figure 4c", says, what, measured, ORDERS).calibrated(swept, RUN)
    };
    f.claims = vec![
        claim("ordered's latency is orders of magnitude above data journaling's and wasteless's", ORDERED, &ordered),
        claim("selective's latency is orders of magnitude above theirs, too", SELECTIVE, &selective),
    ];
    f.skipped.push(super::NILFS.into());
    Ok(f)
}

/// The same streams without `O_SYNC`.
///
/// # Errors
/// A file system failed.
pub fn asynchronous(effort: Effort) -> Result<Findings> {
    let time = Duration::from_secs(effort.pick(10, 10, 30));
    let title = format!("Mean latency of asynchronous writes, {} s", time.as_secs());
    let mut latency = Figure::bars("okeanos-async", "section 6", title, "streams", "ms").of_series(names());
    let mut least = [f64::INFINITY; 2];
    for (name, count, bytes) in [("1000 of 1 Kbit/s", 1000, KBIT), ("40 of 1 Mbit/s", 40, MBIT)] {
        let outcomes = each(Streams { synchronous: false, ..Streams::new(count, bytes, time) })?;
        latency.place(name, outcomes.iter().map(|o| o.latency.mean / 1e3));
        least = [ORDERED, JOURNAL].map(|n| least[usize::from(n == JOURNAL)].min(calibration::shorter(&outcomes, n)));
    }
    let says = "asynchronously, selective and wasteless shorten the latency by up to two orders of magnitude";
    let (figure, [ordered, journal]) = calibration::of_memory(effort)?;
    let mut f = Findings { figures: vec![latency, figure], ..Findings::default() };
    assumed(&mut f);
    f.assume("1 GiB of memory for data (the paper's server has 3 GB in all); the calibration has less");
    let free = "a call costs nothing here unless it waits, and with this memory the modes wait for nothing";
    let what = |baseline: &str| format!("the longer of both / {baseline}, at best");
    let claim = |baseline, measured, swept: &[f64]| {
        Claim::at_most("section 6, asynchronous", says, what(baseline), measured, 0.01)
            .printed(0.01)
            .calibrated(swept, free)
    };
    f.claims = vec![claim("ext4-ordered", least[0], &ordered), claim("ext4-journal", least[1], &journal)];
    Ok(f)
}

/// A few streams on one profile, for tests.
///
/// # Errors
/// A file system failed.
pub fn small() -> Result<Findings> {
    let work = Streams::new(5, KBIT, Duration::from_secs(2));
    let outcome = run(Profile::Wasteless.choices(), work)?;
    let mut figure = Figure::bars("small", "none", "Mean latency, recovery", "what", "us").of_series(["wasteless"]);
    figure.place("latency", [outcome.latency.mean]);
    figure.place("recovery", [outcome.recovery.as_secs_f64() * 1e6]);
    figure.place("journal", [float(outcome.traffic.journal)]);
    Ok(Findings { figures: vec![figure], ..Findings::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;

    #[test]
    fn a_line_explains_what_is_on_it_and_little_of_a_step() {
        assert!((fit_by_line(&[(1.0, 3.0), (2.0, 5.0), (4.0, 9.0)]) - 1.0).abs() < 1e-9);
        assert!(fit_by_line(&[(1.0, 0.0), (2.0, 0.0), (3.0, 0.0), (10.0, 0.1), (11.0, 9.0)]) < 0.95);
    }

    /// A run in which nothing went home does not hold the sentence about bytes to the file system.
    #[test]
    fn figure_4b_is_not_held_by_a_run_that_ends_before_blocks_go_home() {
        let outcomes = |seconds| each(Streams::new(3, KBIT, Duration::from_secs(seconds))).unwrap();
        let claims = home_claims(3, &outcomes(10), 1.0);
        assert_eq!((claims[0].verdict, claims[0].measured), (Verdict::NotHeld, None));
        assert!(home_claims(3, &outcomes(65), 1.0)[0].measured.is_some());
    }
}
