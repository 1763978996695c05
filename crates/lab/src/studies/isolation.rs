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

use super::claims::{self, Claim};
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

/// Runs both threads on a profile.
///
/// # Errors
/// The file system or the device fails.
pub fn run(model: Model, profile: Profile, into: Into, work: Work) -> Result<Outcome> {
    let rig = Rig::new(&Plan { mib: FS_MIB, spare_mib: RAW_MIB, ..Plan::new(model, profile) })?;
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

/// Runs it on a device and prints; returns how many claims are not held.
///
/// # Errors
/// A file system failed.
pub fn study(name: &str, model: Model, work: Work) -> Result<usize> {
    println!(
        "\nIsolation: 4 KiB append + fsync beside a stream of {} MB/s, on the modelled device {name}, {} s of virtual time; ms (median, p99)\n",
        work.rate / 1_000_000,
        work.time.as_secs()
    );
    print_head("profile");
    let mut claims = Vec::new();
    for profile in PROFILES {
        let ratio = print_row(&profile, work, |into| run(model, profile, into, work))?;
        if profile == Profile::Auto {
            claims.push(Claim::at_most(format!("{name}: p99 of auto, stream into files / raw"), ratio, 2.0));
        }
    }
    Ok(claims::print("isolation", &claims))
}

fn print_head(of: &str) {
    println!("| {of} | alone | stream raw | its MB/s | stream into files | its MB/s | p99, files / raw |");
    println!("|---|---|---|---|---|---|---|");
}

/// Runs all three ways and prints their row; returns the p99 beside a stream into files in parts of that beside one
/// written raw.
fn print_row(name: &dyn Display, work: Work, run: impl Fn(Into) -> Result<Outcome>) -> Result<f64> {
    let [alone, raw, files] = [run(Into::Nothing)?, run(Into::Device)?, run(Into::Files)?];
    let times = |o: Outcome| format!("{:.2}, {:.2}", o.latency.median / 1e3, o.latency.p99 / 1e3);
    let rate = |o: Outcome| float(o.streamed) / 1e6 / work.time.as_secs_f64();
    let ratio = files.latency.p99 / raw.latency.p99;
    println!(
        "| {name} | {} | {} | {:.0} | {} | {:.0} | {ratio:.2} |",
        times(alone),
        times(raw),
        rate(raw),
        times(files),
        rate(files)
    );
    Ok(ratio)
}

/// The same in real time, on a mount of a device that is served to the kernel.
mod mounted;
pub use mounted::study as study_mounts;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_felt_and_alone_an_append_costs_one_write_and_one_flush() {
        if !crate::cmd::have("mke2fs") {
            println!("skipped: a_stream_is_felt: no mke2fs");
            return;
        }
        let work = Work { rate: 200_000_000, time: Duration::from_millis(500) };
        let alone = run(Model::consumer_ssd(), Profile::Auto, Into::Nothing, work).unwrap();
        // 40 us and 8 KiB at 2 us, and a flush of 1.5 ms.
        assert!(alone.latency.median >= 1548.0 && alone.latency.median < 1700.0, "{alone:?}");
        let beside = run(Model::consumer_ssd(), Profile::Auto, Into::Files, work).unwrap();
        assert!(beside.streamed > 50_000_000 && beside.latency.mean > alone.latency.mean, "{beside:?}");
    }

    /// Who has written little waits for a stream's writes that are under way, not until its pages are clean (that takes
    /// seconds).
    #[test]
    fn an_append_does_not_wait_until_a_stream_is_written() {
        if !crate::cmd::have("mke2fs") {
            println!("skipped: an_append_does_not_wait_until_a_stream_is_written: no mke2fs");
            return;
        }
        // More than the device takes: who writes the stream is held back all the time.
        let work = Work { rate: 700_000_000, time: Duration::from_secs(3) };
        let beside = run(Model::consumer_ssd(), Profile::Auto, Into::Files, work).unwrap();
        assert!(beside.streamed > 600_000_000 && beside.latency.largest < 100_000.0, "{beside:?}");
    }
}
