//! Okeanos, figure 5b (USENIX ATC '11): what InnoDB does to its transaction log, by each of its three ways to flush it,
//! replayed by many instances at once; on the modelled 15,000 rpm disks, in virtual time.
//!
//! The traces beside this file are of MariaDB, recorded by `scripts/innodb-trace.sh`. An instance issues each call when
//! the trace did, or at once if it is late by then; so a file system that cannot keep up falls further and further
//! behind, which is what the paper's seconds are.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use quire_device::Clock;
use quire_fs::{Choices, WriteFlags};
use quire_layout::Ino;
use quire_testkit::rng::content;

use super::series::{Journal, ORDERED, SERIES, WASTELESS, assume_disks, server};
use crate::results::{Claim, Effort, Figure, Findings};
use crate::rig::{Body, Rig};
use crate::stats::Spread;

/// `innodb_flush_log_at_trx_commit`, the paper's name for it, and the calls to the log.
const METHODS: [(u8, &str, &str); 3] = [
    (1, "Cmt/Disk", include_str!("innodb-log-1.trace")),
    (0, "Prd/Disk", include_str!("innodb-log-0.trace")),
    (2, "Cmt/Cache", include_str!("innodb-log-2.trace")),
];

/// A call to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Write { offset: u64, len: usize },
    Flush,
}

/// Calls and when they came.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Trace {
    calls: Vec<(Duration, Call)>,
    length: Duration,
    /// End of the furthest write.
    size: u64,
}

impl Trace {
    /// Of lines `MICROSECONDS write OFFSET LENGTH`, `MICROSECONDS flush`, and last `MICROSECONDS end`; `#` begins a
    /// comment.
    fn parse(text: &str) -> Result<Self> {
        let mut trace = Trace { calls: Vec::new(), length: Duration::ZERO, size: 0 };
        for line in text.lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
            let words: Vec<&str> = line.split_ascii_whitespace().collect();
            let at = Duration::from_micros(words[0].parse().with_context(|| line.to_owned())?);
            match words[1..] {
                ["write", offset, len] => {
                    let (offset, len): (u64, usize) = (offset.parse()?, len.parse()?);
                    trace.size = trace.size.max(offset + len as u64);
                    trace.calls.push((at, Call::Write { offset, len }));
                }
                ["flush"] => trace.calls.push((at, Call::Flush)),
                ["end"] => trace.length = at,
                _ => bail!("no call to a log: {line}"),
            }
        }
        anyhow::ensure!(!trace.length.is_zero() && !trace.calls.is_empty(), "an empty trace");
        Ok(trace)
    }
}

/// Replays a trace, over and over, by so many instances for so long; returns how late flushes ended, in seconds.
fn run(choices: Choices, trace: &Trace, instances: u64, time: Duration) -> Result<Spread> {
    let mib = 256 + ((instances * trace.size) >> 20) * 5 / 4;
    let rig = server(choices, mib, Journal::Apart, true)?;
    let files = (0..instances).map(|n| {
        let ino = rig.create(Ino::ROOT, &format!("log-{n}"))?;
        // InnoDB makes its log whole before it uses it.
        rig.volume.write(ino, 0, &vec![0; usize::try_from(trace.size)?], WriteFlags::default())?;
        Ok(ino)
    });
    let files: Vec<Ino> = files.collect::<Result<_>>()?;
    rig.volume.sync()?;
    rig.volume.maintenance().checkpoint()?;
    let start = rig.world.monotonic();
    let bodies = files.iter().zip(0u32..).map(|(ino, n)| {
        let rig = &rig;
        // They do not begin together: servers do not.
        let own = trace.length * n / u32::try_from(instances).unwrap_or(u32::MAX);
        Box::new(move || replay(rig, *ino, trace, start + own, start + time)) as Body<'_, Result<Vec<f64>>>
    });
    let late: Vec<Vec<f64>> = rig.run(bodies.collect()).into_iter().collect::<Result<_>>()?;
    rig.close()?;
    Ok(Spread::of(late.into_iter().flatten().collect()))
}

/// One instance; returns how late each flush ended.
fn replay(rig: &Rig, ino: Ino, trace: &Trace, start: Duration, end: Duration) -> Result<Vec<f64>> {
    let mut late = Vec::new();
    for turn in 0u32.. {
        for (at, call) in &trace.calls {
            let due = start + trace.length * turn + *at;
            if due >= end {
                return Ok(late);
            }
            rig.world.sleep_until(due);
            match *call {
                Call::Write { offset, len } => {
                    let bytes = content(u64::from(turn), offset, len);
                    rig.volume.write(ino, offset, &bytes, WriteFlags::default())?;
                }
                Call::Flush => {
                    rig.volume.fsync(ino, true)?;
                    late.push((rig.world.monotonic() - due).as_secs_f64());
                }
            }
        }
    }
    unreachable!("it ends with its time")
}

/// Figure 5b.
///
/// # Errors
/// A file system failed.
pub fn study(effort: Effort) -> Result<Findings> {
    let counts: &[u64] = effort.pick(&[16, 64], &[1, 16, 64, 128], &[1, 4, 16, 32, 64, 128]);
    let time = Duration::from_secs(effort.pick(60, 250, 500));
    let series = [ORDERED, WASTELESS];
    let mut f = Findings::default();
    for (method, name, text) in METHODS {
        let trace = Trace::parse(text)?;
        let title = format!("{name} (method {method}): mean time to flush the log, {} s", time.as_secs());
        let mut figure = Figure::lines(&format!("okeanos-5b-{method}"), "figure 5b", title, "instances", "s")
            .logarithmic()
            .of_series(series.map(|n| SERIES[n].0));
        let mut last = Vec::new();
        for count in counts {
            last = series.iter().map(|n| run(SERIES[*n].1, &trace, *count, time)).collect::<Result<Vec<_>>>()?;
            figure.place(count, last.iter().map(|s| s.mean));
        }
        f.figures.push(figure);
        f.claims.extend(claims(name, counts[counts.len() - 1], last[0].largest, last[1].largest));
    }
    assume_disks(&mut f);
    f.assume(format!(
        "the log's calls are of MariaDB 10.11 under 10 transactions a second of 20 connections, each of 25 changed rows, \
         20 s of each method, over and over (the paper: MySQL under TPC-C with 20 warehouses, 500 s); {} s of virtual \
         time; instances begin one after the other",
        time.as_secs()
    ));
    f.assume("\"tens of seconds\": less than 100; \"hundreds\": at least 100; of the slowest flush");
    Ok(f)
}

fn claims(name: &str, instances: u64, ordered: f64, wasteless: f64) -> Vec<Claim> {
    vec![
        Claim::at_most(
            "figure 5b",
            "wasteless takes up to tens of seconds to flush the log",
            format!("{name}, {instances} instances: wasteless, s"),
            wasteless,
            100.0,
        ),
        Claim::at_least(
            "figure 5b",
            "ordered takes hundreds of seconds as the instances approach or exceed 64",
            format!("{name}, {instances} instances: ext4-ordered, s"),
            ordered,
            100.0,
        )
        .because(
            "how far ordered falls behind follows from how much the server writes and for how long; the trace is of \
             another server, and a commit gathers all who wait",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_traces_are_calls_to_a_log_and_a_flush_at_each_commit_is_more_of_them() {
        let flushes = |n: usize| {
            let trace = Trace::parse(METHODS[n].2).unwrap();
            assert!(trace.calls.windows(2).all(|w| w[0].0 <= w[1].0) && trace.length >= trace.calls[0].0);
            trace.calls.iter().filter(|(_, call)| *call == Call::Flush).count()
        };
        assert!(flushes(0) > 3 * flushes(1) && flushes(0) > 3 * flushes(2));
        assert!(Trace::parse("1 read 2 3").is_err() && Trace::parse("").is_err());
    }

    #[test]
    fn flushes_are_later_the_more_instances_there_are_and_runs_are_alike() {
        let trace = Trace::parse("0 write 0 512\n1 flush\n5000 write 512 512\n5001 flush\n10000 end\n").unwrap();
        let late = |instances| run(SERIES[ORDERED].1, &trace, instances, Duration::from_millis(500)).unwrap();
        assert_eq!(late(4), late(4));
        assert!(late(16).mean > late(1).mean);
    }
}
