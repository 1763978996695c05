//! Okeanos (USENIX ATC '11): what small synchronous writes cost in the journal. Figure 1 by request size, figure 4 by
//! number of streams, the time to recover; on the modelled 15,000 rpm disk, in virtual time, the journal on a disk of
//! its own.

use std::time::Duration;

use anyhow::Result;
use quire_fs::Profile;
use quire_testkit::Model;

use super::claims::{self, Claim};
use super::streams::{Outcome, Streams, run};
use crate::stats::float;

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Virtual time of figure 1; the paper: 300 s.
    pub figure1: Duration,
    /// Virtual time of each point of figure 4.
    pub figure4: Duration,
    /// Numbers of streams at 1 Kbit/s and at 1 Mbit/s.
    pub slow: &'static [u64],
    pub fast: &'static [u64],
}

impl Size {
    pub const SHORT: Size = Size {
        figure1: Duration::from_secs(20),
        figure4: Duration::from_secs(10),
        slow: &[100, 1000],
        fast: &[10, 40],
    };
    pub const FULL: Size = Size {
        figure1: Duration::from_secs(300),
        figure4: Duration::from_secs(60),
        slow: &[100, 250, 500, 1000],
        fast: &[10, 20, 40, 60],
    };
}

const PROFILES: [Profile; 5] =
    [Profile::Ext4Ordered, Profile::Ext4Journal, Profile::Wasteless, Profile::Selective, Profile::Auto];
/// The one that the others are compared with.
const JOURNAL: usize = 1;
const KBIT: usize = 125;
const MBIT: usize = 125_000;

/// Runs it and prints; returns how many claims are not held.
///
/// # Errors
/// A file system failed.
pub fn study(size: Size) -> Result<usize> {
    let mut claims = Vec::new();
    figure1(size)?;
    slow_streams(size, &mut claims)?;
    fast_streams(size, &mut claims)?;
    asynchronous(size)?;
    Ok(claims::print("Okeanos", &claims))
}

fn each(streams: Streams) -> Result<Vec<Outcome>> {
    PROFILES.iter().map(|p| run(Model::hdd_15k(), *p, streams)).collect()
}

fn header(first: &str) {
    println!("| {first} | {} |", PROFILES.map(|p| p.to_string()).join(" | "));
    println!("|---|{}", "---|".repeat(PROFILES.len()));
}

fn row(name: &str, outcomes: &[Outcome], cell: impl Fn(&Outcome) -> String) {
    println!("| {name} | {} |", outcomes.iter().map(cell).collect::<Vec<_>>().join(" | "));
}

fn megabytes(bytes: u64) -> f64 {
    float(bytes) / 1e6
}

fn per_second(bytes: u64, time: Duration) -> f64 {
    megabytes(bytes) / time.as_secs_f64()
}

/// Bytes to the journal by the size of the requests.
fn figure1(size: Size) -> Result<()> {
    println!(
        "\nOkeanos, figure 1: MB written to the journal by 100 threads, one synchronous append a second, in {} s of virtual time\n",
        size.figure1.as_secs()
    );
    header("request");
    for bytes in [64, 128, 256, 512, 1024, 2048, 4096] {
        let outcomes = each(Streams { count: 100, bytes, time: size.figure1, synchronous: true })?;
        row(&format!("{bytes} B"), &outcomes, |o| format!("{:.1}", megabytes(o.traffic.journal)));
    }
    Ok(())
}

/// Figure 4a and 4b.
fn slow_streams(size: Size, claims: &mut Vec<Claim>) -> Result<()> {
    println!(
        "\nOkeanos, figure 4a and b: streams of 1 Kbit/s (the paper: data journaling up to 27 MB/s, wasteless and selective up to 4)\n"
    );
    header("streams");
    for count in size.slow {
        let outcomes = each(Streams { count: *count, bytes: KBIT, time: size.figure4, synchronous: true })?;
        row(&format!("{count}: journal, MB/s"), &outcomes, |o| format!("{:.3}", per_second(o.traffic.journal, o.time)));
        row(&format!("{count}: file system, MB/s"), &outcomes, |o| format!("{:.3}", per_second(o.traffic.fs, o.time)));
        row(&format!("{count}: latency, ms (mean, p99)"), &outcomes, latency);
        row(&format!("{count}: recovery, ms"), &outcomes, |o| format!("{:.1}", o.recovery.as_secs_f64() * 1e3));
        let journal = |n: usize| float(outcomes[n].traffic.journal);
        let against = |n: usize| journal(n) / journal(JOURNAL);
        let at = format!("{count} streams of 1 Kbit/s");
        claims.push(Claim::at_most(format!("{at}: journal bytes, wasteless / ext4-journal"), against(2), 1.0 / 6.0));
        claims.push(Claim::at_most(format!("{at}: journal bytes, selective / ext4-journal"), against(3), 1.0 / 6.0));
        claims.push(Claim::at_most(format!("{at}: journal bytes, auto / ext4-journal"), against(4), 0.1));
        claims.push(Claim::at_most(
            format!("{at}: journal bytes, selective / wasteless"),
            journal(3) / journal(2),
            1.05,
        ));
        row(&format!("{count}: file system until all is home, MB"), &outcomes, |o| format!("{:.2}", megabytes(o.home)));
        let others = outcomes[1..].iter().map(|o| o.home).max().unwrap_or(0);
        let times = float(outcomes[0].home) / float(others);
        claims.push(Claim::at_least(format!("{at}: file-system bytes, ordered / the most of the others"), times, 2.0));
        for (n, name) in [(2, "wasteless"), (3, "selective")] {
            let shorter = outcomes[n].recovery.as_secs_f64() / outcomes[JOURNAL].recovery.as_secs_f64();
            claims.push(Claim::at_most(format!("{at}: recovery time, {name} / ext4-journal"), shorter, 0.8));
        }
    }
    Ok(())
}

fn latency(o: &Outcome) -> String {
    format!("{:.2}, {:.2}", o.latency.mean / 1e3, o.latency.p99 / 1e3)
}

/// Figure 4c.
fn fast_streams(size: Size, claims: &mut Vec<Claim>) -> Result<()> {
    println!(
        "\nOkeanos, figure 4c: streams of 1 Mbit/s (the paper: ordered and selective orders of magnitude above the others)\n"
    );
    header("streams");
    for count in size.fast {
        let time = size.figure4.min(Duration::from_secs(30));
        let outcomes = each(Streams { count: *count, bytes: MBIT, time, synchronous: true })?;
        row(&format!("{count}: latency, ms (mean, p99)"), &outcomes, latency);
        row(&format!("{count}: journal, MB/s"), &outcomes, |o| format!("{:.1}", per_second(o.traffic.journal, o.time)));
        row(&format!("{count}: file system, MB/s"), &outcomes, |o| format!("{:.1}", per_second(o.traffic.fs, o.time)));
        let mean = |n: usize| outcomes[n].latency.mean;
        let at = format!("{count} streams of 1 Mbit/s");
        claims.push(Claim::at_most(format!("{at}: latency, wasteless / ext4-journal"), mean(2) / mean(JOURNAL), 1.0));
        claims.push(Claim::at_most(format!("{at}: latency, selective / ordered"), mean(3) / mean(0), 1.1));
    }
    Ok(())
}

/// The same streams without `O_SYNC`.
fn asynchronous(size: Size) -> Result<()> {
    println!(
        "\nOkeanos: asynchronous writes (the paper: wasteless and selective up to two orders of magnitude below ordered and data journaling)\n"
    );
    header("streams");
    for (name, count, bytes) in
        [("1 Kbit/s", *size.slow.last().unwrap_or(&100), KBIT), ("1 Mbit/s", *size.fast.last().unwrap_or(&10), MBIT)]
    {
        let time = size.figure4.min(Duration::from_secs(30));
        let outcomes = each(Streams { count, bytes, time, synchronous: false })?;
        row(&format!("{count} of {name}: latency, ms (mean, p99)"), &outcomes, latency);
        row(&format!("{count} of {name}: journal, MB/s"), &outcomes, |o| {
            format!("{:.3}", per_second(o.traffic.journal, o.time))
        });
        row(&format!("{count} of {name}: file system, MB/s"), &outcomes, |o| {
            format!("{:.3}", per_second(o.traffic.fs, o.time))
        });
    }
    Ok(())
}
