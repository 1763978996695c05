//! Okeanos' streams on a mount: threads that each append to a file of their own once a second.
//!
//! *Guarantees*: a thread that is late goes on at once and does not catch up, as in virtual time
//! ([`super::super::streams`]).

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;
use quire_testkit::rng::content;
use rustix::fs::{FallocateFlags, OFlags};

use super::super::streams::PERIOD;
use crate::stats::{Spread, float};

/// Memory of a thread's stack: there are a thousand.
const STACK: usize = 256 << 10;
/// Bytes of a block of the file system.
const BLOCK: usize = 4096;

/// What streams do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Appends {
    pub(super) count: usize,
    /// Bytes of each write.
    pub(super) bytes: usize,
    /// From the first write of a stream to its end.
    pub(super) time: Duration,
    /// They begin one after the other within this time.
    pub(super) spread: Duration,
    /// Each write is `O_SYNC`.
    pub(super) synchronous: bool,
}

/// What the streams did: their writes, and the latencies of these, in milliseconds.
pub(super) struct Done {
    /// In seconds, [`Appends::time`]. All may be done before the last second is over, which is in their rates.
    pub(super) time: f64,
    pub(super) writes: u64,
    pub(super) latency: Spread,
}

impl Appends {
    /// Synchronous ones that begin together.
    pub(super) fn new(count: usize, bytes: usize, time: Duration) -> Self {
        Appends { count, bytes, time, spread: Duration::ZERO, synchronous: true }
    }

    /// The file of a stream.
    pub(super) fn path(&self, dir: &Path, n: usize) -> PathBuf {
        dir.join(format!("{}-{}-stream-{n}", self.count, self.bytes))
    }

    /// The files of all streams, empty.
    pub(super) fn create(&self, dir: &Path) -> Result<()> {
        (0..self.count).try_for_each(|n| Ok(File::create(self.path(dir, n)).map(drop)?))
    }

    /// The files of all streams as after so many writes and some more, each another number of these up to a block's, so
    /// that each second has the same share of appends that take a new block. What lies before the last block is a hole.
    pub(super) fn create_grown(&self, dir: &Path, before: usize) -> Result<()> {
        let writes = BLOCK / self.bytes + 1;
        (0..self.count).try_for_each(|n| {
            let size = (before + n % writes) * self.bytes;
            let (file, last) = (File::create(self.path(dir, n))?, size % BLOCK);
            file.write_all_at(&vec![0; last], (size - last) as u64)?;
            Ok(file.set_len(size as u64)?)
        })
    }

    /// The files of all streams, empty, with space for what each appends, given to all in turn: so many blocks of each
    /// lie side by side.
    pub(super) fn create_in_runs(&self, dir: &Path, blocks: u64) -> Result<()> {
        self.create(dir)?;
        let paths = (0..self.count).map(|n| self.path(dir, n));
        let files = paths.map(|path| File::options().write(true).open(path));
        let files: Vec<File> = files.collect::<std::io::Result<_>>()?;
        let (run, bytes) = (blocks * BLOCK as u64, self.bytes as u64 * (self.time.as_secs() + 1));
        for turn in 0..bytes.div_ceil(run) {
            for file in &files {
                rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, turn * run, run)?;
            }
        }
        Ok(())
    }

    /// Runs them to their end.
    pub(super) fn run(&self, dir: &Path) -> Result<Done> {
        let start = Instant::now();
        let latencies = std::thread::scope(|scope| {
            let spawn = |n: usize| {
                let path = self.path(dir, n);
                let first = self.spread.mul_f64(float(n as u64) / float(self.count as u64));
                std::thread::Builder::new()
                    .stack_size(STACK)
                    .spawn_scoped(scope, move || self.append(&path, n, start, first..first + self.time))
            };
            let threads: Vec<_> = (0..self.count).map(spawn).collect::<std::io::Result<_>>()?;
            threads.into_iter().map(|t| t.join().expect("a stream panicked")).collect::<Result<Vec<Vec<f64>>>>()
        })?;
        let latencies = latencies.concat();
        Ok(Done { time: self.time.as_secs_f64(), writes: latencies.len() as u64, latency: Spread::of(latencies) })
    }

    /// One stream, from when to when after `start` its writes begin.
    fn append(&self, path: &Path, n: usize, start: Instant, time: Range<Duration>) -> Result<Vec<f64>> {
        let flags = if self.synchronous { OFlags::SYNC } else { OFlags::empty() };
        let mut file = File::options().append(true).custom_flags(i32::try_from(flags.bits())?).open(path)?;
        let (mut next, mut at, mut latencies) = (time.start, 0, Vec::new());
        while next < time.end {
            std::thread::sleep(next.saturating_sub(start.elapsed()));
            let bytes = content(n as u64, at, self.bytes);
            let began = Instant::now();
            file.write_all(&bytes)?;
            latencies.push(began.elapsed().as_secs_f64() * 1e3);
            at += self.bytes as u64;
            next = (next + PERIOD).max(start.elapsed());
        }
        Ok(latencies)
    }

    /// Bytes in all files now.
    pub(super) fn bytes_in(&self, dir: &Path) -> Result<u64> {
        (0..self.count).map(|n| Ok(std::fs::metadata(self.path(dir, n))?.len())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn streams_begin_when_they_should_and_write_once_a_second() {
        let dir = tempfile::tempdir().unwrap();
        for (count, bytes, spread) in [(3, 125, Duration::ZERO), (2, 125_000, PERIOD)] {
            let appends = Appends { spread, ..Appends::new(count, bytes, PERIOD) };
            appends.create(dir.path()).unwrap();
            let began = Instant::now();
            assert_eq!(appends.run(dir.path()).unwrap().writes, count as u64);
            assert!(began.elapsed() >= spread / 2, "the last stream begins after {:?}", spread / 2);
            assert_eq!(appends.bytes_in(dir.path()).unwrap(), (count * bytes) as u64);
        }
    }

    #[test]
    fn streams_write_again_after_a_second() {
        let dir = tempfile::tempdir().unwrap();
        let appends = Appends { synchronous: false, ..Appends::new(1, 10, PERIOD + Duration::from_millis(1)) };
        appends.create(dir.path()).unwrap();
        let began = Instant::now();
        assert_eq!(appends.run(dir.path()).unwrap().writes, 2);
        assert!(began.elapsed() >= PERIOD);
        let written = std::fs::read(appends.path(dir.path(), 0)).unwrap();
        assert_eq!(written, [content(0, 0, 10), content(0, 10, 10)].concat());
    }

    #[test]
    fn files_in_runs_are_empty_and_have_space_for_what_is_appended() {
        let dir = tempfile::tempdir().unwrap();
        let appends = Appends::new(2, 125_000, PERIOD);
        appends.create_in_runs(dir.path(), 8).unwrap();
        let all = (0..2).map(|n| std::fs::metadata(appends.path(dir.path(), n)).unwrap());
        let all: Vec<(u64, u64)> = all.map(|m| (m.len(), m.blocks() * 512)).collect();
        assert!(all.iter().all(|(size, space)| *size == 0 && *space >= 250_000), "{all:?}");
    }

    #[test]
    fn grown_files_fill_their_blocks_one_after_the_other_behind_a_hole() {
        let dir = tempfile::tempdir().unwrap();
        let appends = Appends::new(6, 1024, PERIOD);
        appends.create_grown(dir.path(), 150).unwrap();
        let all = (0..6).map(|n| std::fs::metadata(appends.path(dir.path(), n)).unwrap());
        let all: Vec<(u64, u64)> = all.map(|m| (m.len() / 1024, m.blocks() * 512)).collect();
        assert_eq!(all.iter().map(|(kib, _)| *kib).collect::<Vec<_>>(), [150, 151, 152, 153, 154, 150]);
        assert!(all.iter().all(|(_, bytes)| *bytes <= 4096), "only the last block is there: {all:?}");
    }
}
