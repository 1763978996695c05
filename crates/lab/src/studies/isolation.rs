//! Isolation: one thread streams new data into files, another appends 4 KiB to its own and calls fsync. How long that
//! takes is compared with the same appends beside the same stream written raw to the device, where no file system can
//! make one wait for the other.

use std::fmt::Display;
use std::time::Duration;

use anyhow::Result;
use quire_device::sync::Arc;
use quire_device::sync::atomic::{AtomicBool, Ordering};
use quire_device::{BlockDevice, Buf, Clock, Region};
use quire_fs::{Profile, WriteFlags};
use quire_layout::Ino;
use quire_testkit::Model;

use super::device::of_model;
use crate::results::{Claim, Figure, Findings};
use crate::rig::{Body, Plan, Rig};
use crate::stats::{Spread, float};
use quire_testkit::rng::{Rng, content};

/// Where the stream goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Into {
    Nothing,
    /// Files of the same file system.
    Files,
    /// A part of the device that is nobody's.
    Device,
}

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Bytes a second that the stream wants.
    pub rate: u64,
    pub time: Duration,
}

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Of append and fsync, in microseconds.
    pub latency: Spread,
    /// Bytes that the stream wrote.
    pub streamed: u64,
}

const CHUNK: usize = 1 << 20;
/// Chunks of a file of the stream, and files that are kept.
const CHUNKS: u64 = 64;
const KEPT: u64 = 6;
/// MiB of the device that belong to the file system, and behind it.
const FS_MIB: u64 = 1024;
const RAW_MIB: u64 = 512;
/// Both together.
pub const DISK_BYTES: u64 = (FS_MIB + RAW_MIB) << 20;

/// Runs both threads on a profile.
///
/// # Errors
/// The file system or the device fails.
pub fn run(model: Model, profile: Profile, into: Into, work: Work) -> Result<Outcome> {
    run_on(Plan::new(model, profile), into, work)
}

/// Runs both threads on a device that has its place for the stream besides what the plan says.
///
/// # Errors
/// The file system or the device fails.
pub fn run_on(plan: Plan, into: Into, work: Work) -> Result<Outcome> {
    let rig = Rig::new(&Plan { mib: FS_MIB, spare_mib: RAW_MIB, ..plan })?;
    let file = rig.create(Ino::ROOT, "appended")?;
    rig.volume.sync()?;
    let start = rig.world.monotonic();
    let over = AtomicBool::new(false);
    let appender = || -> Result<Told> {
        let mut latencies = Vec::new();
        let mut at = 0;
        // So that it meets every phase of the stream.
        let mut rng = Rng::from_parts(&[7]);
        while rig.world.monotonic() < start + work.time {
            let began = rig.world.monotonic();
            rig.volume.write(file, at, &content(1, at, 4096), WriteFlags::default())?;
            rig.volume.fsync(file, false)?;
            latencies.push((rig.world.monotonic() - began).as_secs_f64() * 1e6);
            at += 4096;
            rig.world.sleep(Duration::from_micros(2000 + rng.below(6000)));
        }
        over.store(true, Ordering::Relaxed);
        Ok((latencies, 0))
    };
    let streamer = || -> Result<Told> {
        let mut stream = Stream { rig: &rig, file: Ino(0), data: content(2, 0, CHUNK), into, chunks: 0 };
        while into != Into::Nothing && !over.load(Ordering::Relaxed) {
            stream.chunk()?;
            // Not ahead of its rate, and not catching up what it is late.
            let due = stream.chunks * (CHUNK as u64) * 1_000_000_000 / work.rate;
            rig.world.sleep_until(start + Duration::from_nanos(due));
        }
        Ok((Vec::new(), stream.chunks * CHUNK as u64))
    };
    let bodies: Vec<Body<'_, Result<Told>>> = vec![Box::new(appender), Box::new(streamer)];
    let mut outcomes = rig.run(bodies).into_iter();
    let (latencies, _) = outcomes.next().expect("two threads")?;
    let (_, streamed) = outcomes.next().expect("two threads")?;
    rig.volume.close()?;
    Ok(Outcome { latency: Spread::of(latencies), streamed })
}

/// Latencies of a thread, and bytes that it streamed.
type Told = (Vec<f64>, u64);

struct Stream<'a> {
    rig: &'a Rig,
    /// The file that grows now.
    file: Ino,
    data: Vec<u8>,
    into: Into,
    chunks: u64,
}

impl Stream<'_> {
    fn chunk(&mut self) -> Result<()> {
        let (number, place) = (self.chunks / CHUNKS, self.chunks % CHUNKS);
        let v = &self.rig.volume;
        if self.into == Into::Device {
            let at = (FS_MIB << 20) + self.chunks % RAW_MIB * CHUNK as u64;
            self.rig.fs.write(at, Arc::new(Buf::copy_of(&self.data)), Region::Data)?;
        } else {
            if place == 0 {
                if self.file != Ino(0) {
                    v.forget(self.file, 1);
                }
                self.file = self.rig.create(Ino::ROOT, &format!("stream-{number}"))?;
                if let Some(old) = number.checked_sub(KEPT) {
                    v.unlink(Ino::ROOT, format!("stream-{old}").as_bytes())?;
                }
            }
            v.write(self.file, place * CHUNK as u64, &self.data, WriteFlags::default())?;
        }
        self.chunks += 1;
        Ok(())
    }
}

const PROFILES: [Profile; 5] = [Profile::Ext4Ordered, Profile::Ext4Journal, Profile::Rfj, Profile::Joj, Profile::Auto];

/// Runs it on a device.
///
/// # Errors
/// A file system failed.
pub fn study(name: &str, model: Model, work: Work) -> Result<Findings> {
    let mut table = Table::new(name, "virtual time", work);
    for profile in PROFILES {
        table.row(&profile, |into| run(model, profile, into, work))?;
    }
    Ok(table.findings(&[("auto", None)]))
}

/// Latencies alone and beside both streams.
struct Table {
    device: String,
    work: Work,
    figure: Figure,
    /// By who: the p99 in microseconds beside a stream written raw, and beside one into files.
    p99: Vec<(String, [f64; 2])>,
}

impl Table {
    fn new(device: &str, time: &str, work: Work) -> Self {
        let rate = work.rate / 1_000_000;
        let title = format!("append and fsync beside a stream of {rate} MB/s, {device}, {time}");
        let id = format!("isolation-{device}-{}", if time.contains("virtual") { "virtual" } else { "mounts" });
        let figure = Figure::bars(&id, "isolation", title, "who", "p99, ms").of_series([
            "alone",
            "stream raw",
            "stream into files",
        ]);
        Table { device: device.into(), work, figure: figure.logarithmic(), p99: Vec::new() }
    }

    fn row(&mut self, name: &dyn Display, run: impl Fn(Into) -> Result<Outcome>) -> Result<()> {
        let each = [run(Into::Nothing)?, run(Into::Device)?, run(Into::Files)?];
        let rate = |o: &Outcome| float(o.streamed) / 1e6 / self.work.time.as_secs_f64();
        eprintln!("{name}: the stream got {:.0} MB/s raw, {:.0} into files", rate(&each[1]), rate(&each[2]));
        self.figure.place(name, each.iter().map(|o| o.latency.p99 / 1e3));
        self.p99.push((name.to_string(), [each[1].latency.p99, each[2].latency.p99]));
        Ok(())
    }

    /// The claims of `ours`, each with why an append may wait for one whole file of the stream, if that is known.
    fn findings(self, ours: &[(&str, Option<&str>)]) -> Findings {
        let assumed = self.assumed();
        let file = float(CHUNKS * CHUNK as u64) / float(self.work.rate) * 1e6;
        let of = |(who, [raw, into_files]): &(String, [f64; 2])| {
            let (_, cause) = ours.iter().find(|(name, _)| name == who)?;
            let what = format!("{}: {who}: p99 beside a stream into files / beside one written raw", self.device);
            let claim = Claim::at_most(
                "isolation",
                "a stream into files costs another's fsync at most twice what the device makes it cost",
                what,
                into_files / raw,
                2.0,
            );
            Some(if let Some(why) = cause { claim.because_within(2.0..=(raw + file) / raw, why) } else { claim })
        };
        let claims = self.p99.iter().filter_map(of).collect();
        let assumptions = std::iter::once(assumed).chain(of_model(&self.device)).collect();
        Findings { assumptions, figures: vec![self.figure], claims, ..Findings::default() }
    }

    fn assumed(&self) -> String {
        format!(
            "{}: one thread appends 4 KiB and syncs, 2 to 8 ms after the last time; the other streams {} MB/s in pieces \
             of {} MiB, into files of {CHUNKS} MiB, of which {KEPT} are kept, or to a part of the device that is \
             nobody's; {} s; a p99 is of all appends of a run",
            self.device,
            self.work.rate / 1_000_000,
            CHUNK >> 20,
            self.work.time.as_secs_f64()
        )
    }
}

/// The same in real time, on a mount of a device that is served to the kernel.
mod mounted;
pub use mounted::{run as run_mounted, study as study_mounts};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_felt_and_alone_an_append_costs_one_write_and_one_flush() {
        let work = Work { rate: 200_000_000, time: Duration::from_millis(500) };
        let alone = run(Model::consumer_ssd(), Profile::Auto, Into::Nothing, work).unwrap();
        // 40 us and 8 KiB at 2 us, and a flush of 1.5 ms.
        assert!(alone.latency.median >= 1548.0 && alone.latency.median < 1700.0, "{alone:?}");
        let beside = run(Model::consumer_ssd(), Profile::Auto, Into::Files, work).unwrap();
        assert!(beside.streamed > 50_000_000 && beside.latency.mean > alone.latency.mean, "{beside:?}");
    }

    /// A checkpoint writes blocks home in pieces, and a commit's write to the log waits for one of them at most.
    #[test]
    fn an_fsync_beside_a_checkpoint_waits_for_a_piece_of_it() {
        const FILE: usize = 32 << 20;
        let plan = Plan { mib: 512, journal_mib: 128, ..Plan::new(Model::consumer_ssd(), Profile::Ext4Journal) };
        let rig = Rig::new(&plan).unwrap();
        let ino = rig.create(Ino::ROOT, "file").unwrap();
        rig.volume.write(ino, 0, &content(1, 0, FILE), WriteFlags::default()).unwrap();
        rig.volume.sync().unwrap();
        rig.volume.maintenance().checkpoint().unwrap();
        let before = rig.volume.maintenance().journal_stats().checkpoints;
        let body: Body<'_, Vec<f64>> = Box::new(|| {
            let mut rng = Rng::from_parts(&[1, 0xC4]);
            let write = |n| {
                let began = rig.world.monotonic();
                let at = rng.below(FILE as u64 / 4096) * 4096;
                rig.volume.write(ino, at, &content(n, at, 4096), WriteFlags::default()).unwrap();
                rig.volume.fsync(ino, true).unwrap();
                (rig.world.monotonic() - began).as_secs_f64() * 1e3
            };
            (0..10_000).map(write).collect()
        });
        let latency = Spread::of(rig.run(vec![body]).pop().unwrap());
        let checkpoints = rig.volume.maintenance().journal_stats().checkpoints - before;
        rig.close().unwrap();
        // A commit with a barrier takes two writes and a flush or two; a piece of 1 MiB takes 2 ms.
        assert!(checkpoints > 1 && latency.largest < latency.median + 7.0, "{checkpoints} checkpoints, {latency:?} ms");
    }

    /// Who has written little waits for a stream's writes that are under way, not until its pages are clean (that takes
    /// seconds).
    #[test]
    fn an_append_does_not_wait_until_a_stream_is_written() {
        // More than the device takes: who writes the stream is held back all the time.
        let work = Work { rate: 700_000_000, time: Duration::from_secs(3) };
        let beside = run(Model::consumer_ssd(), Profile::Auto, Into::Files, work).unwrap();
        assert!(beside.streamed > 600_000_000 && beside.latency.largest < 100_000.0, "{beside:?}");
    }
}
