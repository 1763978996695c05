//! Streams: threads that each append to a file of their own, one write a second, as in Okeanos (USENIX ATC '11,
//! sections 1 and 6). Streams that begin together share commits, because a commit gathers all writers that wait for the
//! one before it. A thread that is late goes on at once; it does not catch up.

use std::time::Duration;

use anyhow::Result;
use quire_device::Clock;
use quire_fs::{Choices, Falloc, WriteFlags};
use quire_layout::Ino;

use super::okeanos::series::{Journal, plan};
use crate::rig::{Body, Rig, Traffic};
use crate::stats::Spread;
use quire_testkit::rng::content;

/// What streams do.
#[derive(Clone, Copy, Debug)]
pub struct Streams {
    pub count: u64,
    /// Bytes of each write.
    pub bytes: usize,
    /// The files have space before, which the appends take; so many of a file's blocks lie side by side, and between
    /// them those of the others.
    pub run: Option<u64>,
    /// The files have grown before, each by another number of writes up to a block's, so that each second has the same
    /// share of appends that take a new block. Otherwise all files are empty and take their new blocks together.
    pub grown: bool,
    pub time: Duration,
    /// Each write is `O_SYNC`.
    pub synchronous: bool,
    /// They begin one after the other within this time.
    pub spread: Duration,
    /// Bytes of memory for data.
    pub memory: u64,
}

impl Streams {
    /// Synchronous ones that begin together, on the paper's disks.
    #[must_use]
    pub fn new(count: u64, bytes: usize, time: Duration) -> Self {
        let spread = Duration::ZERO;
        Streams { count, bytes, run: None, grown: false, time, synchronous: true, spread, memory: MEMORY }
    }
}

/// Bytes of memory for data where nothing else is said: a third of the paper's server's. With a smaller cache appends
/// to thousands of files wait for reads of their last blocks, which the paper's page cache keeps.
const MEMORY: u64 = 1 << 30;

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub traffic: Traffic,
    /// Bytes to the file system when all that was written is at home.
    pub home: u64,
    /// Of the writes, in microseconds.
    pub latency: Spread,
    pub writes: u64,
    /// How long it took, in virtual time; at least as long as was wanted.
    pub time: Duration,
    /// Of a mount after a power loss at the end of it.
    pub recovery: Duration,
}

/// Bytes of a block.
pub const BLOCK: u64 = 4096;

/// Between two writes of a stream.
pub const PERIOD: Duration = Duration::from_secs(1);
/// Bytes of each write of a stream of 1 Kbit/s, and of one of 1 Mbit/s.
pub const KBIT: usize = 125;
pub const MBIT: usize = 125_000;

/// Runs them with a log of these choices, the journal on a device of its own.
///
/// # Errors
/// The file system fails.
pub fn run(choices: Choices, streams: Streams) -> Result<Outcome> {
    let (rig, files) = prepared(choices, streams)?;
    let before = rig.counted();
    let start = rig.world.monotonic();
    let latencies = write(&rig, &files, streams)?;
    // All may be done before the last second is over, which is in their rates nevertheless.
    let (traffic, time) = (rig.traffic(&before), (rig.world.monotonic() - start).max(streams.time));
    let writes = latencies.len() as u64;
    let crashed = rig.crashed();
    rig.volume.sync()?;
    rig.volume.maintenance().checkpoint()?;
    let home = rig.traffic(&before).fs;
    drop(rig);
    let recovery = crashed.recover()?;
    Ok(Outcome { traffic, home, latency: Spread::of(latencies), writes, time, recovery })
}

/// Runs them, and returns the file system as it is then and the names of their files.
///
/// # Errors
/// The file system fails.
pub fn written(choices: Choices, streams: Streams) -> Result<(Rig, Vec<String>)> {
    let (rig, files) = prepared(choices, streams)?;
    write(&rig, &files, streams)?;
    Ok((rig, (0..streams.count).map(name).collect()))
}

/// The name of a stream's file.
fn name(n: u64) -> String {
    format!("stream-{n}")
}

/// A file system with an empty file for each.
fn prepared(choices: Choices, streams: Streams) -> Result<(Rig, Vec<Ino>)> {
    let mib = 512 + (need(streams) >> 20) * 5 / 4;
    let mut plan = plan(choices, mib, Journal::Apart, false);
    plan.options.cache_bytes = streams.memory;
    let rig = Rig::new(&plan)?;
    let files = (0..streams.count).map(|n| rig.create(Ino::ROOT, &name(n))).collect::<Result<Vec<_>>>()?;
    if streams.grown {
        grow(&rig, &files, streams.bytes)?;
    }
    rig.volume.sync()?;
    if let Some(run) = streams.run {
        allot(&rig, &files, run, need(streams).div_ceil(streams.count))?;
    }
    Ok((rig, files))
}

/// Bytes that all streams write.
fn need(streams: Streams) -> u64 {
    streams.count * (streams.bytes as u64) * streams.time.as_secs()
}

/// Has each file grow by another number of writes, from none to those of a block.
fn grow(rig: &Rig, files: &[Ino], bytes: usize) -> Result<()> {
    let writes = usize::try_from(BLOCK)? / bytes + 1;
    for (n, ino) in files.iter().enumerate() {
        let before = vec![0; n % writes * bytes];
        rig.volume.write(*ino, 0, &before, WriteFlags::default())?;
    }
    rig.volume.sync()?;
    Ok(rig.volume.maintenance().checkpoint()?)
}

/// Gives files space for so many bytes and more before they are written, so many blocks to each in turn.
fn allot(rig: &Rig, files: &[Ino], run: u64, bytes: u64) -> Result<()> {
    let ahead = Falloc::Allocate { keep_size: true };
    for turn in 0..bytes.div_ceil(run * BLOCK) {
        for ino in files {
            rig.volume.fallocate(*ino, ahead, turn * run * BLOCK, run * BLOCK)?;
        }
    }
    rig.volume.sync()?;
    Ok(rig.volume.maintenance().checkpoint()?)
}

/// Has all of them write; returns the latencies in microseconds.
fn write(rig: &Rig, files: &[Ino], streams: Streams) -> Result<Vec<f64>> {
    let start = rig.world.monotonic();
    let bodies = files.iter().zip(0u32..).map(|(ino, n)| {
        let own = start + streams.spread * n / u32::try_from(files.len()).unwrap_or(u32::MAX);
        let body = move || stream(rig, *ino, u64::from(n), own, streams);
        Box::new(body) as Body<'_, Result<Vec<f64>>>
    });
    let latencies: Vec<Vec<f64>> = rig.run(bodies.collect()).into_iter().collect::<Result<_>>()?;
    Ok(latencies.into_iter().flatten().collect())
}

/// One of them; returns the latencies in microseconds.
fn stream(rig: &Rig, ino: Ino, n: u64, start: Duration, s: Streams) -> Result<Vec<f64>> {
    let flags = WriteFlags { append: true, sync: s.synchronous, ..WriteFlags::default() };
    let end = start + s.time;
    let mut next = start;
    let mut latencies = Vec::new();
    let mut at = 0;
    while next < end {
        rig.world.sleep_until(next);
        let began = rig.world.monotonic();
        rig.volume.write(ino, at, &content(n, at, s.bytes), flags)?;
        at += s.bytes as u64;
        let now = rig.world.monotonic();
        latencies.push((now - began).as_secs_f64() * 1e6);
        next = (next + PERIOD).max(now);
    }
    Ok(latencies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_fs::Profile;

    #[test]
    fn runs_are_alike_to_the_nanosecond_and_commits_gather_writers() {
        let streams = Streams::new(20, 125, Duration::from_secs(5));
        let once = run(Profile::Wasteless.choices(), streams).unwrap();
        let again = run(Profile::Wasteless.choices(), streams).unwrap();
        assert_eq!((once.time, once.traffic), (again.time, again.traffic));
        assert_eq!(once.writes, 100);
        let journal = run(Profile::Ext4Journal.choices(), streams).unwrap();
        assert!(once.traffic.journal < journal.traffic.journal);
        // One turn of the disk is 4 ms: without sharing commits 1000 writers could not all write every second.
        let crowd = Streams::new(1000, 125, Duration::from_secs(2));
        let crowd = run(Profile::Wasteless.choices(), crowd).unwrap();
        assert_eq!(crowd.writes, 2000);
        assert!(crowd.latency.mean < 50_000.0, "{:?}", crowd.latency);
    }

    #[test]
    fn writes_in_place_wait_for_each_run_of_blocks_and_writes_to_the_log_do_not() {
        let streams = Streams::new(3, 40_960, Duration::from_secs(2));
        let latency = |profile: Profile, run| {
            super::run(profile.choices(), Streams { run: Some(run), ..streams }).unwrap().latency.mean
        };
        let times = |profile| latency(profile, 1) / latency(profile, 10);
        let (ordered, wasteless) = (times(Profile::Ext4Ordered), times(Profile::Wasteless));
        assert!(ordered > 1.8 && wasteless < 1.3, "ordered {ordered}, wasteless {wasteless}");
    }

    #[test]
    fn streams_that_begin_apart_share_fewer_commits() {
        let together = Streams::new(400, 125, Duration::from_secs(2));
        let journal = |streams| run(Profile::Wasteless.choices(), streams).unwrap().traffic.journal;
        assert!(journal(Streams { spread: PERIOD, ..together }) > 2 * journal(together));
    }

    #[test]
    fn files_that_have_grown_fill_their_first_blocks_one_after_the_other() {
        let streams = Streams::new(33, 125, Duration::from_secs(2));
        let (rig, files) = prepared(Profile::Ext4Ordered.choices(), Streams { grown: true, ..streams }).unwrap();
        let sizes = files.iter().map(|ino| rig.volume.getattr(*ino).unwrap().size);
        assert!(sizes.eq((0..33).map(|n| n * 125)));
    }
}
