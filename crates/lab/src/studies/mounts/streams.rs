//! Okeanos' streams on mounts (figures 4a and 4c): threads that append to a file of their own once a second, each write
//! `O_SYNC`.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use quire_testkit::rng::content;
use rustix::fs::OFlags;

use super::super::streams::{KBIT, MBIT, PERIOD};
use super::{ASSUMED, Bed, mounters};
use crate::results::{Effort, Figure, Findings};
use crate::stats::{Spread, float};

/// Memory of a thread's stack: there are a thousand.
const STACK: usize = 256 << 10;

/// Streams: how many, and the bytes of each write.
type Kind = (usize, usize);

/// Returns the latencies, in milliseconds.
fn run(dir: &Path, (count, bytes): Kind, time: Duration) -> Result<Spread> {
    let start = Instant::now();
    let latencies = std::thread::scope(|scope| {
        let spawn = |n: usize| {
            let path = dir.join(format!("stream-{n}"));
            std::thread::Builder::new()
                .stack_size(STACK)
                .spawn_scoped(scope, move || append(&path, n, bytes, start, time))
        };
        let threads: Vec<_> = (0..count).map(spawn).collect::<std::io::Result<_>>()?;
        threads.into_iter().map(|t| t.join().expect("a stream panicked")).collect::<Result<Vec<Vec<f64>>>>()
    })?;
    Ok(Spread::of(latencies.into_iter().flatten().collect()))
}

fn append(path: &Path, n: usize, bytes: usize, start: Instant, time: Duration) -> Result<Vec<f64>> {
    let synced = i32::try_from(OFlags::SYNC.bits())?;
    let mut file = File::options().append(true).create(true).custom_flags(synced).open(path)?;
    let (mut next, mut at, mut latencies) = (Duration::ZERO, 0, Vec::new());
    while next < time {
        std::thread::sleep(next.saturating_sub(start.elapsed()));
        let began = Instant::now();
        file.write_all(&content(n as u64, at, bytes))?;
        latencies.push(began.elapsed().as_secs_f64() * 1e3);
        at += bytes as u64;
        next = (next + PERIOD).max(start.elapsed());
    }
    Ok(latencies)
}

/// Figures 4a and 4c.
///
/// # Errors
/// A file system failed.
pub fn study(effort: Effort) -> Result<Findings> {
    let slow: &[usize] = effort.pick(&[100], &[100, 1000], &[100, 500, 1000]);
    let fast: &[usize] = effort.pick(&[20], &[10, 40], &[10, 20, 40]);
    let time = Duration::from_secs(effort.pick(2, 8, 30));
    let bed = Bed::new("hdd15k", 1024 + 40 * time.as_secs() / 8, 128)?;
    let series = |counts: &[usize]| counts.iter().map(|n| format!("{n} streams")).collect::<Vec<_>>();
    let title = |what: &str, rate: &str| format!("{what}, streams of {rate}, {} s, mounts", time.as_secs());
    let mut journal =
        Figure::bars("okeanos-4a-mounts", "figure 4a", title("Bytes to the journal", "1 Kbit/s"), "mount", "MB/s")
            .logarithmic()
            .of_series(series(slow));
    let mut latency =
        Figure::bars("okeanos-4c-mounts", "figure 4c", title("Mean latency of a write", "1 Mbit/s"), "mount", "ms")
            .logarithmic()
            .of_series(series(fast));
    for mounter in
        mounters(&["profile=ext4-ordered", "profile=ext4-journal", "profile=wasteless", "profile=selective"])?
    {
        let each = |kind: Kind| bed.measure(&mounter, |_| Ok(()), |dir| run(dir, kind, time));
        let rate = |n: &usize| {
            let m = each((*n, KBIT))?;
            Ok(float(m.asked.journal_bytes) / 1e6 / m.seconds)
        };
        journal.place(&mounter, slow.iter().map(rate).collect::<Result<Vec<f64>>>()?);
        let mean = |n: &usize| Ok(each((*n, MBIT))?.of.mean);
        latency.place(&mounter, fast.iter().map(mean).collect::<Result<Vec<f64>>>()?);
    }
    let mut f = Findings { figures: vec![journal, latency], ..Findings::default() };
    f.assume(ASSUMED);
    f.assume("data and journal on one disk of the model hdd15k; the paper's journal is on another");
    Ok(f)
}
