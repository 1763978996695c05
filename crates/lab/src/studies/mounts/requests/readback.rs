//! Okeanos, figure 4d, on mounts: files that were written side by side are read one after the other.
//!
//! *Relies on*: the file system was mounted anew, so nothing of the files is in a page cache.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, ensure};
use quire_testkit::rng::content;
use rustix::fs::OFlags;

use super::super::super::NILFS;
use super::super::super::streams::MBIT;
use super::super::bed::Rounds;
use crate::results::{Effort, Figure, Findings};
use crate::stats::float;

/// Bytes of a read.
const BLOCK: usize = 4096;

/// What is written and read.
pub(super) struct Work {
    /// How many files there are: a phase each.
    pub(super) files: &'static [usize],
    /// Writes to each.
    pub(super) writes: usize,
}

impl Work {
    pub(super) fn new(effort: Effort) -> Self {
        Work { files: effort.pick(&[1, 20], &[1, 20], &[1, 10, 20, 40, 60]), writes: effort.pick(2, 4, 10) }
    }
}

fn path(dir: &Path, n: usize) -> PathBuf {
    dir.join(format!("file-{n}"))
}

/// Writes files side by side, each by a thread of its own, so many synchronous writes to each.
pub(super) fn write(dir: &Path, files: usize, writes: usize) -> Result<()> {
    let append = |n: usize| -> Result<()> {
        let synced = i32::try_from(OFlags::SYNC.bits())?;
        let mut file = File::options().append(true).create_new(true).custom_flags(synced).open(path(dir, n))?;
        (0..writes).try_for_each(|at| Ok(file.write_all(&content(n as u64, (at * MBIT) as u64, MBIT))?))
    };
    let append = &append;
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..files).map(|n| scope.spawn(move || append(n))).collect();
        threads.into_iter().try_for_each(|t| t.join().expect("a writer panicked"))
    })
}

/// Reads them one after the other; returns the time to a block in microseconds.
pub(super) fn read(dir: &Path, files: usize) -> Result<f64> {
    let began = Instant::now();
    let (mut blocks, mut buf) = (0u64, vec![0; BLOCK]);
    for n in 0..files {
        let mut file = File::open(path(dir, n))?;
        while file.read(&mut buf)? > 0 {
            blocks += 1;
        }
    }
    ensure!(blocks > 0, "nothing is in the files of {}", dir.display());
    Ok(began.elapsed().as_secs_f64() * 1e6 / float(blocks))
}

/// Adds the figure, of the phases from `first` on.
pub(super) fn add(f: &mut Findings, rounds: &Rounds<f64>, first: usize, work: &Work) {
    let kb = work.writes * MBIT / 1000;
    let title = format!("Time to read a block of files written side by side, {kb} KB each, mounts");
    let places: Vec<_> = (first..).zip(work.files.iter().map(ToString::to_string)).collect();
    let figure = Figure::lines("okeanos-4d-mounts", "figure 4d", title, "files", "us");
    f.figures.push(rounds.drawn_along(figure, &places, |m| m.of));
    f.assume(format!(
        "figure 4d: a thread to each file appends {} times {MBIT} B, synchronously, one at once after the other (the \
         paper: once a second); files are read by one thread in calls of 4 KiB after the file system was mounted anew; \
         the kernel reads ahead for every mount, Quire's, too",
        work.writes
    ));
    f.skipped.push(NILFS.into());
}

#[cfg(test)]
mod tests {
    use super::super::super::bed::Measured;
    use super::*;
    use crate::served::Asked;

    #[test]
    fn what_was_written_side_by_side_is_read_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), 3, 2).unwrap();
        let file = std::fs::read(path(dir.path(), 2)).unwrap();
        assert_eq!(file, content(2, 0, 2 * MBIT));
        assert!(read(dir.path(), 3).unwrap() > 0.0);
        assert!(read(dir.path(), 4).is_err(), "there is no fourth");
        assert!(read(dir.path(), 0).is_err());
        assert!(write(dir.path(), 1, 1).is_err(), "it would be read with what is there");
    }

    #[test]
    fn the_figure_is_of_the_phases_from_the_first_on() {
        let measured = |of: f64| Measured { of, asked: Asked::default(), seconds: 1.0 };
        let round = [1.0, 2.0, 3.0].map(measured).into();
        let rounds = Rounds::of(vec![("kernel none".into(), vec![round])]);
        let mut f = Findings::default();
        add(&mut f, &rounds, 1, &Work { files: &[1, 20], writes: 2 });
        let points: Vec<f64> = f.figures[0].series[0].points.iter().map(|p| p.unwrap().value).collect();
        assert_eq!((points, &f.figures[0].places[1][..]), (vec![2.0, 3.0], "20"));
    }
}
