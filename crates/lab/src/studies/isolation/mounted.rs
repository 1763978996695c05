//! Isolation on mounts: the kernel's ext4 and Quire, in real time.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use quire_device::Buf;
use rustix::fs::OFlags;

use super::super::mounts::point_of_rounds;
use super::{CHUNK, CHUNKS, FS_MIB, Into, KEPT, Outcome, RAW_MIB, Table, Work};
use crate::cmd::{run_tool, text};
use crate::interrupt::Folder;
use crate::mounter::Mounter;
use crate::results::Findings;
use crate::served::{Kind, Looped};
use crate::stats::{Spread, float, median};
use crate::turns::turns;
use quire_testkit::rng::{Rng, content};

/// Why an append to a file that the kernel caches may wait for the stream.
const AT_CLOSE: &str = "close(2) has the kernel's FUSE send all dirty pages of the stream's file, and the appended page \
    waits behind them in its queue; tune=host lets fewer be dirty, and profile=database has none (docs/clusters.md, An \
    fdatasync beside a stream)";

/// Where the stream goes, in the order of the figure's series.
const STREAMS: [Into; 3] = [Into::Nothing, Into::Device, Into::Files];
/// Their places in it.
const RAW: usize = 1;
const FILES: usize = 2;

/// Runs it on mounts, so many rounds of all of them; the figure has the medians of the rounds' p99s.
///
/// # Errors
/// Not root; a file system failed.
pub fn study(kind: &Kind, mounters: &[Mounter], work: Work, rounds: usize, dir: &Path) -> Result<Findings> {
    let dir = Folder::new(dir, "quire-isolation-")?;
    let disk = Looped::new(kind, (FS_MIB + RAW_MIB) << 20, dir.path())?;
    let mounters = Mounter::available(mounters)?;
    let mut p99s = vec![[const { Vec::new() }; STREAMS.len()]; mounters.len()];
    for (round, who) in turns(rounds, mounters.len()) {
        let mounter = &mounters[who];
        for (into, all) in STREAMS.into_iter().zip(&mut p99s[who]) {
            let outcome = run(mounter, &disk, into, work, dir.path()).with_context(|| mounter.to_string())?;
            let streamed = float(outcome.streamed) / 1e6 / work.time.as_secs_f64();
            eprintln!("round {}: {mounter}: {into:?}: the stream got {streamed:.0} MB/s", round + 1);
            all.push(outcome.latency.p99);
        }
    }
    let mut table = Table::new(&kind.to_string(), "mounts in real time", work);
    for (mounter, p99s) in mounters.iter().zip(p99s) {
        table.p99.push((mounter.to_string(), [median(&p99s[RAW]), median(&p99s[FILES])]));
        let in_ms = |all: Vec<f64>| point_of_rounds(all.iter().map(|p99| p99 / 1e3).collect());
        table.figure.place(mounter, p99s.map(in_ms));
    }
    let ours = [("quire", Some(AT_CLOSE)), ("quire:tune=host", None), ("quire:profile=database", None)];
    let mut findings = table.findings(&ours);
    if rounds > 1 {
        findings.assume(format!("medians of {rounds} rounds, each in another order; claims are of medians"));
    }
    Ok(findings)
}

/// Runs both threads on a mount.
///
/// # Errors
/// The file system failed.
pub fn run(mounter: &Mounter, disk: &Looped, into: Into, work: Work, dir: &Path) -> Result<Outcome> {
    let feature = mounter.feature().map(|feature| ["-O", feature]).into_iter().flatten();
    let arguments = ["-q", "-F", "-t", "ext4", "-b", "4096"].into_iter().chain(feature);
    run_tool("mke2fs", arguments.chain([text(disk.device()), &format!("{FS_MIB}M")]))?;
    let mounted = mounter.with("noatime").mount(disk.device(), &dir.join("mnt"))?;
    let over = AtomicBool::new(false);
    let (latency, streamed) = std::thread::scope(|scope| {
        let stream = scope.spawn(|| stream(mounted.dir(), disk.device(), into, work, &over));
        let latency = append(mounted.dir(), work);
        over.store(true, Ordering::Relaxed);
        (latency, stream.join().expect("the stream panicked"))
    });
    mounted.unmount()?;
    Ok(Outcome { latency: latency?, streamed: streamed? })
}

fn append(mnt: &Path, work: Work) -> Result<Spread> {
    let mut file = File::create(mnt.join("appended"))?;
    let mut rng = Rng::from_parts(&[7]);
    let (start, mut at, mut latencies) = (Instant::now(), 0, Vec::new());
    while start.elapsed() < work.time {
        let began = Instant::now();
        file.write_all(&content(1, at, 4096))?;
        file.sync_all()?;
        latencies.push(began.elapsed().as_secs_f64() * 1e6);
        at += 4096;
        std::thread::sleep(Duration::from_micros(2000 + rng.below(6000)));
    }
    Ok(Spread::of(latencies))
}

fn stream(mnt: &Path, device: &Path, into: Into, work: Work, over: &AtomicBool) -> Result<u64> {
    let data = Buf::copy_of(&content(2, 0, CHUNK));
    let flags = i32::try_from(OFlags::DIRECT.bits())?;
    let raw = File::options().write(true).custom_flags(flags).open(device)?;
    let mut file = None;
    let (start, mut chunks) = (Instant::now(), 0);
    while into != Into::Nothing && !over.load(Ordering::Relaxed) {
        let (number, place) = (chunks / CHUNKS, chunks % CHUNKS);
        if into == Into::Device {
            raw.write_all_at(&data, (FS_MIB << 20) + chunks % RAW_MIB * CHUNK as u64)?;
        } else {
            if place == 0 {
                file = Some(File::create(mnt.join(format!("stream-{number}")))?);
                if let Some(old) = number.checked_sub(KEPT) {
                    fs::remove_file(mnt.join(format!("stream-{old}")))?;
                }
            }
            file.as_ref().expect("opened for its first chunk").write_all_at(&data, place * CHUNK as u64)?;
        }
        chunks += 1;
        let due = Duration::from_nanos(chunks * (CHUNK as u64) * 1_000_000_000 / work.rate);
        std::thread::sleep(due.saturating_sub(start.elapsed()));
    }
    Ok(chunks * CHUNK as u64)
}
