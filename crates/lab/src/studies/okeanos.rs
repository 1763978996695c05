//! Okeanos (USENIX ATC '11): what small synchronous writes cost in the journal. Figure 1 by request size, figure 4 by
//! number of streams, the time to recover; on the modelled 15,000 rpm disk, in virtual time, the journal on a disk of
//! its own. What it does for applications is in [`postmark`], [`log_replay`] and [`server`], what reads cost in
//! [`readback`].

pub mod log_replay;
pub mod postmark;
pub mod readback;
pub mod series;
pub mod server;

use std::time::Duration;

use anyhow::Result;
use quire_fs::Profile;

use self::series::{JOURNAL, ORDERED, SELECTIVE, SERIES, WASTELESS, assumed, names};
use super::streams::{KBIT, MBIT, Outcome, Streams, run};
use crate::results::{Claim, Effort, Figure, Findings};
use crate::stats::float;

fn each(streams: Streams) -> Result<Vec<Outcome>> {
    SERIES.iter().map(|(_, choices)| run(*choices, streams)).collect()
}

fn megabytes(bytes: u64) -> f64 {
    float(bytes) / 1e6
}

fn per_second(bytes: u64, time: Duration) -> f64 {
    megabytes(bytes) / time.as_secs_f64()
}

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
    let mut figure = Figure::lines("okeanos-1", "figure 1", title, "request, B", "MB").of_series(names());
    let mut written: Vec<Vec<f64>> = Vec::new();
    for bytes in sizes {
        let outcomes = each(Streams { count: 100, bytes: *bytes, time, synchronous: true })?;
        let row: Vec<f64> = outcomes.iter().map(|o| megabytes(o.traffic.journal)).collect();
        figure.place(bytes, row.iter().copied());
        written.push(row);
    }
    let (small, large) = (&written[0], &written[written.len() - 1]);
    let falls = written.windows(2).filter(|w| w[1][ORDERED] < w[0][ORDERED]).count();
    let at = "figure 1";
    let mut f = Findings { figures: vec![figure], ..Findings::default() };
    assumed(&mut f);
    f.claims = vec![
        Claim::at_least(
            at,
            "with small requests data journaling writes far more than it is given (several times ordered's)",
            "64 B: ext4-journal / ext4-ordered",
            small[JOURNAL] / small[ORDERED],
            3.0,
        ),
        Claim::at_most(
            at,
            "data journaling's traffic hardly changes as the request grows to 4 KB",
            "ext4-journal: 4096 B / 64 B",
            large[JOURNAL] / small[JOURNAL],
            1.25,
        )
        .because(
            "a request of 4096 B takes a new block each time, whose bitmap, counters and extents are \
             logged beside the data; ordered's traffic grows by the same bytes",
        ),
        Claim::at_most(
            at,
            "ordered's traffic grows with the request",
            "steps of the request at which ordered's falls",
            float(falls as u64),
            0.0,
        ),
    ];
    Ok(f)
}

/// Figures 4a and 4b, and recovery: streams of 1 Kbit/s.
///
/// # Errors
/// A file system failed.
pub fn slow(effort: Effort) -> Result<Findings> {
    let counts: &[u64] = effort.pick(&[100, 1000], &[100, 500, 1000], &[100, 250, 500, 1000]);
    let time = Duration::from_secs(effort.pick(10, 30, 60));
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
        let outcomes = each(Streams { count: *count, bytes: KBIT, time, synchronous: true })?;
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
    let mut f = Findings { figures: vec![journal, during, home, latency, recovery], ..Findings::default() };
    assumed(&mut f);
    f.claims = journal_claims(most, &last);
    f.claims.extend(home_claims(most, &last, shortest));
    Ok(f)
}

/// Figure 4a: bytes to the journal.
fn journal_claims(count: u64, outcomes: &[Outcome]) -> Vec<Claim> {
    let rate = |n: usize| per_second(outcomes[n].traffic.journal, outcomes[n].time);
    let at = |what: &str| format!("{count} streams: {what}");
    let shared = "27 MB/s are seven blocks to each write of 125 bytes: few writers shared a commit; here a \
                  commit gathers all who wait, which lowers all series alike";
    vec![
        Claim::at_least(
            "figure 4a",
            "data journaling writes up to 27 MB/s to the journal",
            at("ext4-journal, MB/s"),
            rate(JOURNAL),
            27.0,
        )
        .as_printed()
        .because(shared),
        Claim::at_most(
            "figure 4a",
            "wasteless and selective stay at about 4 MB/s",
            at("the higher of both, MB/s"),
            rate(WASTELESS).max(rate(SELECTIVE)),
            4.0,
        )
        .as_printed()
        .because(shared),
        Claim::at_most(
            "figure 4a",
            "they write 4 / 27 of data journaling's bytes",
            at("the higher of both / ext4-journal"),
            rate(WASTELESS).max(rate(SELECTIVE)) / rate(JOURNAL),
            0.148,
        )
        .as_printed(),
        Claim::at_least(
            "figure 4a",
            "data journaling is an order of magnitude above all other modes",
            at("ext4-journal / the highest of ordered, wasteless, selective"),
            rate(JOURNAL) / rate(ORDERED).max(rate(WASTELESS)).max(rate(SELECTIVE)),
            10.0,
        )
        .as_printed(),
        Claim::at_most(
            "figure 4a",
            "at 1 Kbit/s selective is as good as wasteless",
            at("journal bytes, selective / wasteless"),
            rate(SELECTIVE) / rate(WASTELESS),
            1.05,
        ),
    ]
}

/// Figure 4b and recovery: bytes to the file system, and the time until all is home after a power loss.
fn home_claims(count: u64, outcomes: &[Outcome], recovery: f64) -> Vec<Claim> {
    let others = |of: fn(&Outcome) -> u64| float(outcomes[1..=SELECTIVE].iter().map(of).max().unwrap_or(0));
    let (during, home) = (others(|o| o.traffic.fs), others(|o| o.home));
    let at = |what: &str| format!("{count} streams: {what}");
    vec![
        Claim::at_most(
            "figure 4b",
            "the other modes write several times less to the file system than ordered",
            at("during the run: the most of the others / ordered"),
            during / float(outcomes[ORDERED].traffic.fs),
            1.0 / 3.0,
        ),
        Claim::at_least(
            "figure 4b",
            "the same until all that was written is at home",
            at("ordered / the most of the others"),
            float(outcomes[ORDERED].home) / home,
            3.0,
        ),
        Claim::at_most(
            "section 6, recovery",
            "wasteless and selective recover in more than 20 % less time in some cases",
            "of all numbers of streams, the least of the longer / ext4-journal",
            recovery,
            0.8,
        ),
    ]
}

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
        let outcomes = each(Streams { count: *count, bytes: MBIT, time, synchronous: true })?;
        latency.place(count, outcomes.iter().map(|o| o.latency.mean / 1e3));
        home.place(count, outcomes.iter().map(|o| per_second(o.traffic.fs, o.time)));
        last = outcomes;
    }
    let mean = |n: usize| last[n].latency.mean;
    let others = mean(JOURNAL).max(mean(WASTELESS));
    let most = counts[counts.len() - 1];
    let run = "a write of 125 KB is one run of blocks here, so going in place costs one movement of the head; \
               ext3 allots each block as it is written, which puts blocks of many streams between those of one";
    let mut f = Findings { figures: vec![latency, home], ..Findings::default() };
    assumed(&mut f);
    f.claims = vec![
        Claim::at_least(
            "figure 4c",
            "ordered's latency is orders of magnitude above data journaling's and wasteless's",
            format!("{most} streams: ext4-ordered / the higher of both"),
            mean(ORDERED) / others,
            100.0,
        )
        .as_printed()
        .because(run),
        Claim::at_least(
            "figure 4c",
            "selective's latency is orders of magnitude above theirs, too",
            format!("{most} streams: selective / the higher of both"),
            mean(SELECTIVE) / others,
            100.0,
        )
        .as_printed()
        .because(run),
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
        let outcomes = each(Streams { count, bytes, time, synchronous: false })?;
        latency.place(name, outcomes.iter().map(|o| o.latency.mean / 1e3));
        let mean = |n: usize| outcomes[n].latency.mean;
        let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 1.0 };
        let slower = mean(WASTELESS).max(mean(SELECTIVE));
        least[0] = least[0].min(ratio(slower, mean(ORDERED)));
        least[1] = least[1].min(ratio(slower, mean(JOURNAL)));
    }
    let says = "asynchronously, selective and wasteless shorten the latency by up to two orders of magnitude";
    let mut f = Findings { figures: vec![latency], ..Findings::default() };
    assumed(&mut f);
    f.assume(
        "1 GiB of memory for data (the paper's server has 3 GB in all): with the 64 MiB of the other studies writers \
         wait for memory, and wasteless is a tenth of ordered",
    );
    f.claims = vec![
        Claim::at_most("section 6, asynchronous", says, "the longer of both / ext4-ordered, at best", least[0], 0.01),
        Claim::at_most("section 6, asynchronous", says, "the longer of both / ext4-journal, at best", least[1], 0.01)
            .because("an asynchronous write of data journaling waits for nothing here, either"),
    ];
    Ok(f)
}

/// A few streams on one profile, for tests.
///
/// # Errors
/// A file system failed.
pub fn small() -> Result<Findings> {
    let work = Streams { count: 5, bytes: KBIT, time: Duration::from_secs(2), synchronous: true };
    let outcome = run(Profile::Wasteless.choices(), work)?;
    let mut figure = Figure::bars("small", "none", "Mean latency, recovery", "what", "us").of_series(["wasteless"]);
    figure.place("latency", [outcome.latency.mean]);
    figure.place("recovery", [outcome.recovery.as_secs_f64() * 1e6]);
    figure.place("journal", [float(outcome.traffic.journal)]);
    Ok(Findings { figures: vec![figure], ..Findings::default() })
}
