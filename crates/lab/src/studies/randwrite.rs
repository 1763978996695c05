//! DJFS, figures 2, 3 and 7: random 4 KiB overwrites in many files of 1 MiB by one program, with an fsync never, every
//! 64th write, every 32nd, ... every one; on the modelled Samsung 840, in virtual time. The fsync is of the file that
//! was written last, as fio's.
//!
//! The paper's figures have no numbers; what its text says stands beside the claims.

use std::time::Duration;

use anyhow::Result;
use quire_device::Clock;
use quire_fs::WriteFlags;
use quire_layout::Ino;
use quire_testkit::Model;

use super::claims::{self, Claim};
use super::ways::{self, Place, Way};
use crate::rig::{Body, Plan, Rig, Traffic};
use crate::stats::float;
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

const COLUMNS: [Way; 7] =
    [ways::NONE, ways::ORDERED, ways::JOURNAL, ways::EXTERNAL, ways::NVJ, ways::DJFS, ways::DJFS4];
/// Writes to an fsync; 0: never.
const EVERY: [u64; 8] = [0, 64, 32, 16, 8, 4, 2, 1];
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

/// What a column did with one frequency of fsyncs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Outcome {
    writes: u64,
    traffic: Traffic,
    seconds: f64,
}

impl Outcome {
    fn iops(&self) -> f64 {
        float(self.writes) / self.seconds
    }
}

fn plan(column: Way, work: Work) -> Plan {
    let mib = work.files * FILE / (1 << 20) * 17 / 16 + work.journal_mib + 64;
    // The page cache above keeps what was read.
    let model = Model { cached: true, ..Model::samsung_840() };
    let mut plan = column.plan(model, mib, work.journal_mib, LINE);
    plan.options.cache_bytes = CACHE;
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
fn run(column: Way, every: u64, work: Work, contents: Vec<Vec<u8>>) -> Result<Outcome> {
    let rig = Rig::over(&plan(column, work), contents)?;
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
                    return Ok(Outcome { writes: n - from, traffic: rig.traffic(before), seconds });
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

/// Runs it and prints; returns how many claims are not held.
///
/// # Errors
/// A file system failed.
pub fn study(work: Work) -> Result<usize> {
    let mut cells = vec![Vec::new(); COLUMNS.len()];
    // One after the other: they are large.
    for place in [Place::External, Place::Internal] {
        let of_place = |column: &Way| (column.place == Place::External) == (place == Place::External);
        let first = COLUMNS.iter().find(|c| of_place(c)).expect("there are some");
        let contents = Rig::filled(&plan(*first, work), |rig| fill(rig, work.files))?;
        for (column, cells) in COLUMNS.iter().zip(&mut cells).filter(|(c, _)| of_place(c)) {
            for every in EVERY {
                eprintln!("{}, fsync every {every}", column.name);
                cells.push(run(*column, every, work, contents.clone())?);
            }
        }
    }
    println!(
        "\nDJFS, figures 2, 3 and 7: random 4 KiB writes in {} files of 1 MiB on the modelled Samsung 840, journals of {} MiB, {} s of virtual time",
        work.files,
        work.journal_mib,
        work.time.as_secs_f64()
    );
    print("writes a second (2a, 3a, 7)", &cells, |o| format!("{:.0}", o.iops()));
    let per = |o: &Outcome, n: u64| float(n) / float(o.writes.max(1)) * 1000.0;
    print("flushes for 1000 writes (2b, 3b)", &cells, |o| format!("{:.2}", per(o, o.traffic.flushes)));
    print("FUA writes for 1000 writes (2c)", &cells, |o| format!("{:.2}", per(o, o.traffic.fua)));
    print("MB to a journal on a device for 1000 writes (2d)", &cells, |o| {
        format!("{:.2}", per(o, o.traffic.journal) / 1e6)
    });
    let ratio = |a: &str, b: &str, row| cell(&cells, a, row).iops() / cell(&cells, b, row).iops();
    println!("\nWhat else the text says (the paper's in brackets):");
    println!("  never: ext4-journal / ext4-none {:.2} (0.56)", ratio("ext4-journal", "ext4-none", 0));
    println!("  never: external / ext4-journal {:.2} (1.46)", ratio("external", "ext4-journal", 0));
    println!("  every 64: nvj / external {:.2} (up to 2.2)", ratio("nvj", "external", 1));
    println!(
        "  every 64, the paper's highest frequency: djfs / ext4-ordered {:.2}, / ext4-journal {:.2} (5.1)",
        ratio("djfs", "ext4-ordered", 1),
        ratio("djfs", "ext4-journal", 1)
    );
    Ok(claims::print("DJFS, random writes", &claims(&cells)))
}

fn print(title: &str, cells: &[Vec<Outcome>], show: impl Fn(&Outcome) -> String) {
    println!("\n{title}\n");
    println!("| fsync | {} |", COLUMNS.map(|c| c.name).join(" | "));
    println!("|---|{}", "---|".repeat(COLUMNS.len()));
    for (row, every) in EVERY.iter().enumerate() {
        let shown: Vec<String> = cells.iter().map(|c| show(&c[row])).collect();
        let every = if *every == 0 { "never".into() } else { format!("every {every}") };
        println!("| {every} | {} |", shown.join(" | "));
    }
}

fn cell<'a>(cells: &'a [Vec<Outcome>], name: &str, row: usize) -> &'a Outcome {
    let column = COLUMNS.iter().position(|c| c.name == name).expect("a column");
    &cells[column][row]
}

fn claims(cells: &[Vec<Outcome>]) -> Vec<Claim> {
    let ratio = |a: &str, b: &str, row: usize| cell(cells, a, row).iops() / cell(cells, b, row).iops();
    let peak = |a, b| (1..EVERY.len()).map(|row| ratio(a, b, row)).fold(0.0, f64::max);
    vec![
        Claim::at_least("never: djfs / ext4-journal (the paper: 1.7)", ratio("djfs", "ext4-journal", 0), 1.7),
        Claim::at_least("never: djfs / ext4-ordered (the paper: close)", ratio("djfs", "ext4-ordered", 0), 0.9),
        Claim::at_least("with fsyncs, peak: djfs / ext4-ordered (the paper: 5.1)", peak("djfs", "ext4-ordered"), 5.1),
        Claim::at_least("with fsyncs, peak: djfs / ext4-journal (the paper: 5.1)", peak("djfs", "ext4-journal"), 5.1),
        Claim::at_least("with fsyncs, peak: djfs / external (the paper: 4.0)", peak("djfs", "external"), 4.0),
        Claim::at_least("with fsyncs, peak: djfs / nvj (the paper: 1.8)", peak("djfs", "nvj"), 1.8),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_nvram_an_fsync_is_no_flush_and_runs_are_alike() {
        if !crate::cmd::have("mke2fs") {
            println!("skipped: in_nvram_an_fsync_is_no_flush_and_runs_are_alike: no mke2fs");
            return;
        }
        let work = Work { files: 4, time: Duration::from_millis(50), journal_mib: 16 };
        let once = |column: Way| {
            let contents = Rig::filled(&plan(column, work), |rig| fill(rig, work.files)).unwrap();
            run(column, 1, work, contents).unwrap()
        };
        let (djfs, journal) = (once(ways::DJFS), once(ways::JOURNAL));
        assert_eq!(djfs, once(ways::DJFS));
        assert!(journal.traffic.flushes >= journal.writes && djfs.writes > 10 * journal.writes, "{journal:?} {djfs:?}");
        // A region that has gone home is one flush and one write of the journal's superblock.
        assert_eq!((djfs.traffic.journal, djfs.traffic.fua), (djfs.traffic.flushes * PAGE, 0));
        assert!(djfs.traffic.flushes * 100 < djfs.writes, "{djfs:?}");
    }
}
