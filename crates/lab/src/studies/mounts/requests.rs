//! Okeanos' other experiments with streams on mounts: bytes to the journal by the size of requests (figure 1), which is
//! here; reads of files that were written side by side (figure 4d); the time to mount after a power loss and writes
//! without `O_SYNC` (section 6).
//!
//! ```text
//! for each round, for each mounter:
//!   mke2fs, mount, requests of each size, files written side by side, unmount,
//!   mount, files read, unmount, { mount, streams, power loss, mount, unmount, mount, unmount } for each number
//! then once for each mounter:
//!   mke2fs, mount, asynchronous streams, unmount
//! ```
//!
//! *Guarantees*: each phase has files of its own in a directory of its own; all that came before it is durable. What is
//! read was mounted anew, so it is in no page cache.

mod asynchronous;
mod readback;
mod recovery;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;

use super::super::okeanos::request_claims;
use super::super::okeanos::series::INODE;
use super::appends::Appends;
use super::bed::{Bed, Fresh, Measured, Rounds, sync};
use super::{JOURNAL, OF_OKEANOS, ORDERED, WRITEBACK, assume, mounters, only, rounds_of};
use crate::mounter::Mounter;
use crate::results::{Claim, Effort, Figure, Findings, with_one_value};
use crate::stats::float;

/// The paper's third baseline, of figure 1; the kernel has it.
const OF_KERNEL: &str = "kernel:data=writeback";
/// All three of the kernel.
const BASELINES: [&str; 3] = [ORDERED, JOURNAL, WRITEBACK];

/// Threads of figure 1.
const THREADS: usize = 100;
/// Writes of each before: half of the paper's five minutes.
const BEFORE: usize = 150;
/// Why ordered and writeback may log no more of larger requests.
const BLOCK_MAP: &str = "ext3 maps the blocks of a file behind its twelfth by an indirect block of the file's own, \
     which each new block changes and each commit logs; ext4's extents are in the inode, which is logged anyhow \
     (okeanos-1-mounts-ext3 has files with ext3's map)";

/// What is measured.
struct Work {
    /// Figure 1: bytes of requests, and how long the threads write.
    requests: &'static [usize],
    time: Duration,
    /// MiB of the file system's device, and of its journal.
    mib: u64,
    journal_mib: u64,
    read: readback::Work,
    recovery: recovery::Work,
}

impl Work {
    fn new(effort: Effort) -> Self {
        Work {
            requests: effort.pick(&[64, 1024, 4096], &[64, 1024, 4096], &[64, 256, 1024, 4096]),
            time: Duration::from_secs(effort.pick(1, 1, 5)),
            mib: effort.pick(512, 512, 1536),
            journal_mib: effort.pick(32, 64, 128),
            read: readback::Work::new(effort),
            recovery: recovery::Work::new(effort),
        }
    }

    /// The places of phases in a round, in the order of [`once`].
    fn first_read(&self) -> usize {
        self.requests.len()
    }

    fn first_recovery(&self) -> usize {
        self.first_read() + self.read.files.len()
    }
}

/// Figures 1 and 4d, recovery and asynchronous writes.
///
/// # Errors
/// A file system failed.
pub fn study(effort: Effort) -> Result<Findings> {
    let work = Work::new(effort);
    let mut all = mounters(&OF_OKEANOS)?;
    all.extend(Mounter::available(&[OF_KERNEL.parse()?])?);
    let bed = Bed::new("hdd15k", work.mib, work.journal_mib)?.with_inodes_of(INODE);
    let rounds = bed.each(rounds_of(effort), &all, |fresh| once(fresh, &work))?;
    let kinds = asynchronous::kinds(effort);
    let once_each = bed.each(1, &all, |fresh| asynchronous::once(fresh, &kinds))?;
    let on_ext3 = bed.with_format("ext3").each(1, &only(&all, &BASELINES), |fresh| {
        let mounted = fresh.mount()?;
        let measured = of_requests(fresh, mounted.dir(), &work)?;
        mounted.unmount()?;
        Ok(measured)
    })?;
    let mut f = Findings { figures: figures(&rounds, &on_ext3, &work), ..Findings::default() };
    f.claims = claims(&rounds, &on_ext3, work.requests);
    assume(&mut f, effort, "hdd15k");
    assume_requests(&mut f, &work);
    asynchronous::add(&mut f, &once_each, &kinds);
    readback::add(&mut f, &rounds, work.first_read(), &work.read);
    recovery::add(&mut f, &rounds, work.first_recovery(), &work.recovery);
    Ok(f)
}

/// Figure 1: the writes of threads with requests of each size.
fn of_requests(fresh: &Fresh<'_>, dir: &Path, work: &Work) -> Result<Vec<Measured<f64>>> {
    let each = work.requests.iter().map(|bytes| {
        let (dir, threads) = (made(dir, "requests", *bytes)?, Appends::new(THREADS, *bytes, work.time));
        threads.create_grown(&dir, BEFORE)?;
        sync(&dir)?;
        fresh.measured(|| Ok(float(threads.run(&dir)?.writes)))
    });
    each.collect()
}

/// All phases of a round.
fn once(fresh: &Fresh<'_>, work: &Work) -> Result<Vec<Measured<f64>>> {
    let mounted = fresh.mount()?;
    let mut all = of_requests(fresh, mounted.dir(), work)?;
    for files in work.read.files {
        readback::write(&made(mounted.dir(), "side-by-side", *files)?, *files, work.read.writes)?;
    }
    mounted.unmount()?;
    let mounted = fresh.mount()?;
    for files in work.read.files {
        let dir = place(mounted.dir(), "side-by-side", *files);
        all.push(fresh.measured(|| readback::read(&dir, *files))?);
    }
    mounted.unmount()?;
    for count in work.recovery.counts {
        all.extend(recovery::measured(fresh, *count, work.recovery.time)?);
    }
    Ok(all)
}

/// The directory of a phase.
fn place(dir: &Path, what: &str, number: usize) -> PathBuf {
    dir.join(format!("{what}-{number}"))
}

/// The same, made.
fn made(dir: &Path, what: &str, number: usize) -> Result<PathBuf> {
    let dir = place(dir, what, number);
    fs::create_dir(&dir)?;
    Ok(dir)
}

/// Bytes to the journal to a write; `of` are the writes.
fn logged(m: &Measured<f64>) -> f64 {
    float(m.asked.journal_bytes) / m.of
}

/// Figure 1, and the same with ext3's block map.
fn figures(rounds: &Rounds<f64>, on_ext3: &Rounds<f64>, work: &Work) -> Vec<Figure> {
    let places: Vec<_> = work.requests.iter().map(ToString::to_string).enumerate().collect();
    let draw = |rounds: &Rounds<f64>, id: &str, what: &str| {
        let title =
            format!("Bytes to the journal to a write, {THREADS} threads, {} s, mounts{what}", work.time.as_secs());
        let figure = Figure::lines(id, "figure 1", title, "request, B", "KB").logarithmic();
        rounds.drawn_along(figure, &places, |m| logged(m) / 1e3)
    };
    let calibrated = draw(on_ext3, "okeanos-1-mounts-ext3", ", with ext3's block map (calibration)");
    vec![draw(rounds, "okeanos-1-mounts", ""), calibrated]
}

/// Figure 1, with the kernel's modes. Where ordered's and writeback's traffic does not grow with the request, the block
/// map is the cause if it does with ext3's.
fn claims(rounds: &Rounds<f64>, on_ext3: &Rounds<f64>, sizes: &[usize]) -> Vec<Claim> {
    let of = |rounds: &Rounds<f64>| {
        let row = |phase| BASELINES.map(|name| rounds.median(name, phase, logged));
        let written: Vec<[f64; 3]> = (0..sizes.len()).map(row).collect();
        request_claims("figure 1, on mounts", BASELINES, sizes, &written)
    };
    let both = of(rounds).into_iter().zip(of(on_ext3));
    let group = both.map(|(claim, with_map)| claim.swept([with_map.measured.unwrap_or(f64::NAN)]));
    with_one_value(BLOCK_MAP, &["ext3's block map".into()], group.collect())
}

fn assume_requests(f: &mut Findings, work: &Work) {
    f.assume(format!(
        "data and journal on one disk of the model hdd15k, without a write cache, so a barrier costs no flush but the \
         turn that the commit block waits; the paper's journal is on another disk; a journal of {} MiB, inodes of \
         {INODE} B, ext3's default then",
        work.journal_mib
    ));
    f.assume(
        "the kernel's ext4 has no wasteless and no selective mode: these are Quire's, with commit_mode=barrier, the \
         kernel's way to commit",
    );
    f.assume(format!(
        "figure 1: {THREADS} threads append once a second for {} s (the paper: 5 minutes), all together, to files \
         as large as after {BEFORE} writes and some more, each by another number; bytes are to a write, because not \
         every mount keeps up with a write a second; \"several\": three times; \"almost unchanged\": a tenth more \
         or less; \"almost linearly\": a straight line leaves a twentieth of the variance at most",
        work.time.as_secs()
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Verdict;
    use crate::served::Asked;

    /// One round of mounters: bytes to the journal of 100 writes in each phase.
    fn rounds(of: &[(&str, [u64; 3])]) -> Rounds<f64> {
        let measured = |bytes: u64| {
            let asked = Asked { journal_bytes: bytes, ..Asked::default() };
            Measured { of: 100.0, asked, seconds: 1.0 }
        };
        let round = |of: &[u64; 3]| vec![of.iter().map(|bytes| measured(*bytes)).collect()];
        Rounds::of(of.iter().map(|(name, of)| ((*name).to_owned(), round(of))).collect())
    }

    /// Their verdicts, where writeback logs so much with ext3's block map and the others as much as here.
    fn verdicts_by(ordered: [u64; 3], journal: [u64; 3], on_ext3: [u64; 3]) -> Vec<Verdict> {
        let all = rounds(&[(ORDERED, ordered), (JOURNAL, journal), (WRITEBACK, [100, 200, 500])]);
        let on_ext3 = rounds(&[(ORDERED, on_ext3), (JOURNAL, journal), (WRITEBACK, [100, 200, 500])]);
        claims(&all, &on_ext3, &[64, 1024, 4096]).into_iter().map(|c| c.verdict).collect()
    }

    fn verdicts(ordered: [u64; 3], journal: [u64; 3]) -> Vec<Verdict> {
        verdicts_by(ordered, journal, ordered)
    }

    #[test]
    fn figure_1_is_held_by_the_kernels_modes_or_not() {
        let (held, not) = (Verdict::Held, Verdict::NotHeld);
        let all = verdicts([1000, 1940, 5030], [8000, 8100, 8200]);
        assert_eq!(all, [held; 6], "{all:?}");
        let all = verdicts([4000, 4000, 4000], [8000, 8000, 16_000]);
        assert_eq!(all[..2], [not; 2], "twice ordered's, and twice as much");
        assert_eq!(all[3], not, "ordered's traffic does not grow");
        let all = verdicts([1000, 1000, 5000], [8000, 8000, 11_000]);
        assert_eq!(all[1..3], [not; 2], "data journaling's has grown, and ordered's in a step");
    }

    #[test]
    fn the_block_map_is_a_cause_if_ordered_grows_with_ext3s() {
        let (differs, not) = (Verdict::Differs, Verdict::NotHeld);
        let of = |on_ext3| verdicts_by([4000, 3000, 4000], [16_000; 3], on_ext3)[2..4].to_vec();
        assert_eq!(of([1000, 2000, 5000]), [differs; 2]);
        assert_eq!(of([4000, 3000, 4000]), [not; 2]);
        assert_eq!(of([1000, 1000, 5000]), [not, differs], "it grows in a step");
    }

    #[test]
    fn a_mounter_that_did_not_run_holds_nothing() {
        let none = rounds(&[(ORDERED, [1000, 2000, 5000])]);
        let all = claims(&none, &none, &[64, 1024, 4096]);
        assert_eq!((all[0].verdict, all[0].measured), (Verdict::NotHeld, None));
    }

    #[test]
    fn phases_stand_one_behind_the_other() {
        let work = Work::new(Effort::Quick);
        assert_eq!(work.first_read(), work.requests.len());
        assert_eq!(work.first_recovery() - work.first_read(), work.read.files.len());
        assert_eq!((work.requests.first(), work.requests.last()), (Some(&64), Some(&4096)), "as the claims say");
    }
}
