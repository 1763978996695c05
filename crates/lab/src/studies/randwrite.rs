//! DJFS, figures 2, 3 and 7: random 4 KiB overwrites in many files of 1 MiB by one program, with an fsync never, every
//! so many writes; on the modelled Samsung 840, in virtual time. The fsync is of the file that was written last alone.
//!
//! The paper's figures have no numbers; what its text says stands beside the claims.

mod claims;
mod drives;

use std::time::Duration;

use anyhow::Result;
use quire_device::Clock;
use quire_fs::WriteFlags;
use quire_layout::Ino;
use quire_testkit::Model;

use super::ways::{self, Place, Way};
use crate::results::{Effort, Findings};
use crate::rig::{Body, Plan, Rig};
use claims::{COLUMNS, Cells, Outcome};
use drives::{Drive, by_drive, by_flush, with_one_drive};
use quire_testkit::rng::{Rng, content};

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Of 1 MiB each.
    pub files: u64,
    /// Virtual time that is measured; half as long goes before it.
    pub time: Duration,
    pub journal_mib: u64,
}

impl Work {
    fn of(effort: Effort) -> Work {
        Work {
            files: effort.pick(192, 512, 4096),
            time: Duration::from_secs_f64(effort.pick(0.5, 4.0, 20.0)),
            journal_mib: 128,
        }
    }
}

const PAGE: u64 = 4096;
const FILE: u64 = 1 << 20;
/// Files to a directory.
const DIRECTORY: u64 = 256;
/// What a call takes beside devices.
const CPU: Duration = Duration::from_micros(5);
/// What a cache line takes that is stored in NVRAM: 10 ns, as the paper assumes of DRAM.
const LINE: Duration = Duration::from_nanos(10);
/// Of pages and blocks in memory.
const CACHE: u64 = 256 << 20;

fn plan(column: Way, work: Work) -> Plan {
    let mib = work.files * FILE / (1 << 20) * 17 / 16 + work.journal_mib + 64;
    // The page cache above keeps what was read.
    let model = Model { cached: true, ..Model::samsung_840() };
    let mut plan = column.plan(model, mib, work.journal_mib, LINE);
    plan.options.cache_bytes = CACHE;
    // No reserve for root: a twentieth of the device is more than is left beside the paper's 4096 files.
    plan.mke2fs = ["-m", "0"].map(String::from).to_vec();
    plan
}

/// The files, written whole.
fn fill(rig: &Rig, files: u64) -> Result<()> {
    let mut dir = Ino::ROOT;
    for n in 0..files {
        if n % DIRECTORY == 0 {
            dir = rig.mkdir(Ino::ROOT, &format!("dir-{}", n / DIRECTORY))?;
        }
        let ino = rig.create(dir, &format!("file-{n}"))?;
        rig.volume.write(ino, 0, &content(n, 0, usize::try_from(FILE)?), WriteFlags::default())?;
        rig.volume.forget(ino, 1);
    }
    rig.volume.sync().map_err(Into::into)
}

fn find(rig: &Rig, files: u64) -> Result<Vec<Ino>> {
    let dirs = (0..files.div_ceil(DIRECTORY)).map(|n| rig.volume.lookup(Ino::ROOT, format!("dir-{n}").as_bytes()));
    let dirs: Vec<Ino> = dirs.map(|found| Ok(found?.ino)).collect::<Result<_>>()?;
    let each = (0..files).map(|n| {
        let dir = dirs[usize::try_from(n / DIRECTORY)?];
        Ok(rig.volume.lookup(dir, format!("file-{n}").as_bytes())?.ino)
    });
    each.collect()
}

/// One cell, on devices with these contents.
fn run(column: Way, every: u64, work: Work, drive: Drive, contents: Vec<Vec<u8>>) -> Result<Outcome> {
    let mut plan = plan(column, work);
    plan.model = drive.of(plan.model);
    let rig = Rig::over(&plan, contents)?;
    let files = find(&rig, work.files)?;
    let body: Body<'_, Result<Outcome>> = Box::new(|| {
        let mut rng = Rng::from_parts(&[1, 0x840]);
        let mut begun = None;
        let start = rig.world.monotonic();
        for n in 1u64.. {
            let now = rig.world.monotonic();
            match &begun {
                None if now >= start + work.time / 2 => begun = Some((now, rig.counted(), n)),
                Some((since, before, from)) if now >= *since + work.time => {
                    let seconds = (now - *since).as_secs_f64();
                    let fsyncs = (n - 1).checked_div(every).unwrap_or(0) - (from - 1).checked_div(every).unwrap_or(0);
                    return Ok(Outcome { writes: n - from, fsyncs, traffic: rig.traffic(before), seconds });
                }
                _ => {}
            }
            let ino = files[rng.index(files.len())];
            let at = rng.below(FILE / PAGE) * PAGE;
            rig.world.sleep(CPU);
            rig.volume.write(ino, at, &content(n, at, usize::try_from(PAGE)?), WriteFlags::default())?;
            if every > 0 && n.is_multiple_of(every) {
                rig.world.sleep(CPU);
                rig.volume.fsync(ino, false)?;
            }
        }
        unreachable!("it ends with its time")
    });
    rig.run(vec![body]).pop().expect("one thread")
}

/// Figures 2, 3 and 7.
///
/// # Errors
/// A file system failed.
pub fn study(effort: Effort) -> Result<Findings> {
    let work = Work::of(effort);
    let every: &[u64] = effort.pick(&[0, 256, 64], &[0, 1024, 256, 64], &[0, 1024, 512, 256, 128, 64]);
    let beyond: &[u64] = effort.pick(&[], &[16, 1], &[32, 16, 8, 4, 2, 1]);
    let all: Vec<u64> = every.iter().chain(beyond).copied().collect();
    let others = Drive::others(effort);
    let mut cells = Cells::new(&all);
    let mut with_others = vec![Cells::new(every); others.len()];
    // One place after the other: they are large.
    for place in [Place::External, Place::Internal] {
        let of_place = |column: &Way| (column.place == Place::External) == (place == Place::External);
        let columns: Vec<usize> = (0..COLUMNS.len()).filter(|n| of_place(&COLUMNS[*n])).collect();
        let contents = Rig::filled(&plan(COLUMNS[columns[0]], work), |rig| fill(rig, work.files))?;
        for n in columns {
            for every in &all {
                eprintln!("{}, fsync every {every}", COLUMNS[n].name);
                cells.of[n].push(run(COLUMNS[n], *every, work, Drive::ASSUMED, contents.clone())?);
            }
            // No claim is about this one.
            let drives = if COLUMNS[n].name == ways::DJFS4.name { &[][..] } else { &others };
            for (drive, cells) in drives.iter().zip(&mut with_others) {
                eprintln!("{}, {drive}", COLUMNS[n].name);
                let work = Work { time: work.time / 2, ..work };
                for every in every {
                    cells.of[n].push(run(COLUMNS[n], *every, work, *drive, contents.clone())?);
                }
            }
        }
    }
    let paper = every.len();
    let mut f = Findings { figures: cells.figures(paper), ..Findings::default() };
    let drives: Vec<(Drive, &Cells)> =
        std::iter::once((Drive::ASSUMED, &cells)).chain(others.iter().copied().zip(&with_others)).collect();
    f.figures.push(by_flush(&drives, paper));
    f.figures.extend(by_drive(&drives, paper));
    assume(&mut f, work);
    f.claims = with_one_drive(cells.claims(paper), &others, &with_others, paper);
    Ok(f)
}

fn assume(f: &mut Findings, work: Work) {
    f.assume(format!(
        "drive: model samsung840 (write 50 us, 130 MB/s, flush 2 ms and 1 us to each dirty KiB; \
         130 MB/s is the data sheet's of the paper's 120 GB, the rest is assumed), {} \
         files of 1 MiB (the paper: 4096), journals of {} MiB",
        work.files, work.journal_mib
    ));
    f.assume(format!(
        "one program, 5 us of processor to a call, a cache of {} MiB (the paper's machine: 8 GB), a cache line of \
         NVRAM in {} ns; {} s of virtual time",
        CACHE >> 20,
        LINE.as_nanos(),
        work.time.as_secs_f64()
    ));
    f.assume(
        "an fsync is of the file that was written last alone: what was written to others since the last one is \
         journaled with it in full journaling, and is not waited for without a journal of data",
    );
    f.assume(ways::ASSUMED);
    f.assume(
        "\"up to\": the most of the paper's frequencies of an fsync, never to every 64 writes; printed numbers: a tenth more \
         or less",
    );
    f.assume(
        "\"dramatically\", \"frequently\": three times; \"seriously\", \"drastically\": half is left; \"close to\", \
         \"degrades by up to\", no outstanding gain: a tenth more or less",
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::float;

    #[test]
    fn in_nvram_an_fsync_is_no_flush_and_runs_are_alike() {
        let work = Work { files: 4, time: Duration::from_millis(50), journal_mib: 16 };
        let once = |column: Way| {
            let contents = Rig::filled(&plan(column, work), |rig| fill(rig, work.files)).unwrap();
            run(column, 1, work, Drive::ASSUMED, contents).unwrap()
        };
        let (djfs, journal) = (once(ways::DJFS), once(ways::JOURNAL));
        assert_eq!(djfs, once(ways::DJFS));
        assert!(journal.traffic.flushes >= journal.writes && djfs.writes > 10 * journal.writes, "{journal:?} {djfs:?}");
        // A region that has gone home is one flush and one write of the journal's superblock.
        assert_eq!((djfs.traffic.journal, djfs.traffic.fua), (djfs.traffic.flushes * PAGE, 0));
        assert!(djfs.traffic.flushes * 100 < djfs.writes, "{djfs:?}");
    }

    #[test]
    fn the_files_fit_at_each_size() {
        let efforts = [Effort::Quick, Effort::Normal, Effort::Full];
        for (effort, column) in efforts.into_iter().flat_map(|effort| COLUMNS.map(|column| (effort, column))) {
            let work = Work::of(effort);
            let directories = work.files.div_ceil(DIRECTORY) * 64 * PAGE;
            let room = crate::rig::room(&plan(column, work)).unwrap();
            assert!(room >= work.files * FILE + directories, "{effort:?}, {}: {room} bytes are free", column.name);
        }
    }

    /// Only the last write of a file stays in the log alone when the next is synced.
    #[test]
    fn an_fsync_of_full_journaling_writes_earlier_journaled_blocks_home() {
        let work = Work { files: 1, time: Duration::from_millis(400), journal_mib: 16 };
        let home = |way: Way| {
            let contents = Rig::filled(&plan(way, work), |rig| fill(rig, work.files)).unwrap();
            let o = run(way, 1, work, Drive::ASSUMED, contents).unwrap();
            float(o.traffic.fs) / float(o.writes * PAGE)
        };
        let stock = home(ways::JOURNAL);
        assert!((0.9..1.5).contains(&stock), "{stock} blocks home to a write");
        let lazy = home(Way { checkpoint: None, ..ways::JOURNAL });
        assert!(lazy < 0.3, "{lazy} blocks home to a write");
    }
}
