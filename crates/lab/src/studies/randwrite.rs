//! DJFS, figures 2, 3 and 7: random 4 KiB overwrites in many files of 1 MiB by one program, with an fsync never, every
//! so many writes; on the modelled Samsung 840, in virtual time. The fsync is of the file that was written last alone.
//!
//! The paper's figures have no numbers; what its text says stands beside the claims.

use std::time::Duration;

use anyhow::Result;
use quire_device::Clock;
use quire_fs::WriteFlags;
use quire_layout::Ino;
use quire_testkit::Model;

use super::ways::{self, Place, Way};
use crate::results::{Claim, Effort, Figure, Findings, shown, with_one_value};
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
/// What a flush of the drive takes beside what is dirty.
const FLUSH: Duration = Duration::from_millis(2);
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
    fsyncs: u64,
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
fn run(column: Way, every: u64, work: Work, flush: Duration, contents: Vec<Vec<u8>>) -> Result<Outcome> {
    let mut plan = plan(column, work);
    plan.model.flush = flush;
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
    let work = Work {
        files: effort.pick(192, 512, 2048),
        time: Duration::from_secs_f64(effort.pick(0.5, 4.0, 20.0)),
        journal_mib: 128,
    };
    let every: &[u64] = effort.pick(&[0, 256, 64], &[0, 1024, 256, 64], &[0, 1024, 512, 256, 128, 64]);
    let beyond: &[u64] = effort.pick(&[], &[16, 1], &[32, 16, 8, 4, 2, 1]);
    let all: Vec<u64> = every.iter().chain(beyond).copied().collect();
    let mut cells = vec![Vec::new(); COLUMNS.len()];
    // Writes a second by what a flush takes: of `djfs` first, and of those that it is compared with.
    let mut by_flush = [(); SWEPT.len() + 1].map(|()| Vec::new());
    // One place after the other: they are large.
    for place in [Place::External, Place::Internal] {
        let of_place = |column: &Way| (column.place == Place::External) == (place == Place::External);
        let first = COLUMNS.iter().find(|c| of_place(c)).expect("there are some");
        let contents = Rig::filled(&plan(*first, work), |rig| fill(rig, work.files))?;
        for (column, cells) in COLUMNS.iter().zip(&mut cells).filter(|(c, _)| of_place(c)) {
            for every in &all {
                eprintln!("{}, fsync every {every}", column.name);
                cells.push(run(*column, *every, work, FLUSH, contents.clone())?);
            }
        }
        let ways = std::iter::once(ways::DJFS).chain(SWEPT);
        for (way, iops) in ways.zip(&mut by_flush).filter(|(way, _)| of_place(way)) {
            for flush in FLUSHES {
                iops.push(run(way, 64, work, Duration::from_micros(flush), contents.clone())?.iops());
            }
        }
    }
    let (sweep, swept) = swept(&by_flush);
    let cells = Cells { every: all, of: cells };
    let mut f = Findings { figures: cells.figures(every.len()), ..Findings::default() };
    f.figures.push(sweep);
    assume(&mut f, work);
    f.claims = cells.claims(every.len(), &swept);
    Ok(f)
}

fn assume(f: &mut Findings, work: Work) {
    f.assume(format!(
        "drive: model samsung840 (write 50 us, 130 MB/s, flush 2 ms and 1 us to each dirty KiB; \
         all of it assumed), {} files of 1 MiB (the paper: 4096), journals of {} MiB",
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
    f.assume("\"up to\": the most of the paper's frequencies of an fsync, never to every 64 writes");
    f.assume(
        "\"dramatically\", \"frequently\": three times; \"seriously\", \"drastically\": half is left; \"close to\", \
         \"degrades by up to\", no outstanding gain: a tenth more or less",
    );
}

/// How many times as fast `djfs` is by what a flush takes: the figure, and the values of each of [`SWEPT`]. Of the
/// writes a second, those of `djfs` come first.
fn swept(by_flush: &[Vec<f64>]) -> (Figure, Vec<Vec<f64>>) {
    let title = "djfs by what a flush takes, fsync every 64 writes (calibration)";
    let names = SWEPT.map(|way| format!("djfs / {}", way.name));
    let mut figure = Figure::lines("djfs-7-flush", "figure 7", title, "flush, ms", "times as fast").of_series(&names);
    let mut swept = vec![Vec::new(); SWEPT.len()];
    for (n, us) in FLUSHES.into_iter().enumerate() {
        let times: Vec<f64> = by_flush[1..].iter().map(|other| by_flush[0][n] / other[n]).collect();
        figure.place(shown(Duration::from_micros(us).as_secs_f64() * 1e3), times.iter().copied());
        swept.iter_mut().zip(times).for_each(|(swept, times)| swept.push(times));
    }
    for (name, printed) in names.iter().zip([5.1, 5.1, 4.0, 1.8]) {
        figure.printed(shown(2.0), name, printed);
    }
    (figure, swept)
}

/// What `djfs` is compared with by what a flush takes.
const SWEPT: [Way; 4] = [ways::ORDERED, ways::JOURNAL, ways::EXTERNAL, ways::NVJ];
/// Microseconds of a flush.
const FLUSHES: [u64; 6] = [500, 1000, 2000, 2500, 4000, 8000];

/// Why an external journal is slower with fsyncs than one on the file system's device.
const FLUSHES_BOTH: &str = "each commit of Quire's flushes the file system's device, too, a flush more to each fsync; \
     jbd2's does so only if data of ordered mode went there";

/// What was measured, by column and frequency.
struct Cells {
    every: Vec<u64>,
    of: Vec<Vec<Outcome>>,
}

impl Cells {
    fn cell(&self, name: &str, row: usize) -> &Outcome {
        let column = COLUMNS.iter().position(|c| c.name == name).expect("a column");
        &self.of[column][row]
    }

    fn ratio(&self, a: &str, b: &str, row: usize) -> f64 {
        self.cell(a, row).iops() / self.cell(b, row).iops()
    }

    fn figures(&self, paper: usize) -> Vec<Figure> {
        let per = |o: &Outcome, n: u64| float(n) / float(o.writes.max(1)) * 1000.0;
        let all = 0..self.every.len();
        let few = ["ext4-none", "ext4-ordered", "ext4-journal"];
        let journals = ["ext4-journal", "external", "nvj"];
        let every = COLUMNS.map(|c| c.name);
        let mut figures = vec![
            self.figure("djfs-2a", "figure 2a", "Random writes", "writes/s", &few, 0..paper, |o| o.iops()),
            self.figure("djfs-2b", "figure 2b", "Flushes", "of 1000 writes", &few, 0..paper, |o| {
                per(o, o.traffic.flushes)
            }),
            self.figure("djfs-2c", "figure 2c", "FUA writes", "of 1000 writes", &few, 0..paper, |o| {
                per(o, o.traffic.fua)
            }),
            self.figure("djfs-2d", "figure 2d", "Bytes to the journal", "MB of 1000 writes", &few, 0..paper, |o| {
                per(o, o.traffic.journal) / 1e6
            }),
            self.figure("djfs-3a", "figure 3a", "Random writes", "writes/s", &journals, 0..paper, |o| o.iops()),
            self.figure("djfs-3b", "figure 3b", "Flushes", "of 1000 writes", &journals, 0..paper, |o| {
                per(o, o.traffic.flushes)
            }),
            self.figure("djfs-7", "figure 7", "Random writes", "writes/s", &every, 0..paper, |o| o.iops()),
        ];
        if all.len() > paper {
            let title = "Random writes with more fsyncs than in the paper";
            figures.push(
                self.figure("djfs-7-more", "figure 7", title, "writes/s", &every, paper..all.len(), |o| o.iops())
                    .logarithmic(),
            );
        }
        figures
    }

    #[expect(clippy::too_many_arguments, reason = "one line to a figure")]
    fn figure(
        &self,
        id: &str,
        of: &str,
        title: &str,
        y: &str,
        names: &[&str],
        rows: std::ops::Range<usize>,
        value: impl Fn(&Outcome) -> f64,
    ) -> Figure {
        let mut figure = Figure::bars(id, of, title, "fsync every so many writes", y).of_series(names);
        for row in rows {
            let place = if self.every[row] == 0 { "never".into() } else { self.every[row].to_string() };
            figure.place(place, names.iter().map(|name| value(self.cell(name, row))));
        }
        figure
    }

    /// Of the frequencies that the paper has: the last of them is its highest, an fsync every 64 writes. `swept` has
    /// the factors of [`SWEPT`].
    fn claims(&self, paper: usize, swept: &[Vec<f64>]) -> Vec<Claim> {
        let mut claims = self.of_motivation(paper);
        claims.extend(self.of_places(paper));
        claims.extend(self.of_djfs(paper, swept));
        claims
    }

    /// The highest of the paper's frequencies: "up to".
    fn up_to(&self, a: &str, b: &str, paper: usize) -> f64 {
        (0..paper).map(|row| self.ratio(a, b, row)).fold(0.0, f64::max)
    }

    /// Figure 2: what the journals of ext4 cost.
    fn of_motivation(&self, paper: usize) -> Vec<Claim> {
        let grown = |name: &str, of: fn(&Traffic) -> u64| {
            let to_a_write = |row: usize| {
                let o = self.cell(name, row);
                float(of(&o.traffic)) / float(o.writes.max(1))
            };
            to_a_write(paper - 1) / to_a_write(1)
        };
        let of_both = |of: fn(&Traffic) -> u64| grown("ext4-ordered", of).min(grown("ext4-journal", of));
        let left = |name: &str| self.cell(name, paper - 1).iops() / self.cell(name, 0).iops();
        let none = self.cell("ext4-none", paper - 1);
        let lost = 100.0 - 100.0 / self.up_to("ext4-none", "ext4-journal", paper);
        vec![
            Claim::about(
                "figure 2",
                "full journaling loses up to 43.6 % of the writes of no journal",
                "the most of all frequencies: what ext4-journal loses of ext4-none's writes, %",
                lost,
                ("43.6", 0.1),
            ),
            Claim::at_least(
                "figure 2",
                "flushes and FUA writes grow dramatically with the fsyncs, with ordered and full journaling",
                "every 64 / the rarest, to a write: the least of flushes and FUA writes of both",
                of_both(|t| t.flushes).min(of_both(|t| t.fua)),
                3.0,
            ),
            Claim::above(
                "figure 2, section III",
                "with the fsyncs more is written to the journal, with ordered and full journaling",
                "every 64 / the rarest, bytes to the journal to a write: the least of both",
                of_both(|t| t.journal),
                1.0,
            ),
            Claim::at_most(
                "figure 2, section III",
                "fsyncs degrade ordered and full journaling drastically",
                "every 64 / never: the most of ext4-ordered and ext4-journal",
                left("ext4-ordered").max(left("ext4-journal")),
                0.5,
            ),
            Claim::at_most(
                "figure 2, section III",
                "fsyncs affect no journal seriously, too",
                "every 64 / never: ext4-none",
                left("ext4-none"),
                0.5,
            ),
            Claim::about(
                "figure 2",
                "without a journal each fsync is a flush",
                "ext4-none: flushes to an fsync",
                float(none.traffic.flushes) / float(none.fsyncs.max(1)),
                (1.0, 0.01),
            ),
        ]
    }

    /// Figure 3: what another place for the journal brings.
    fn of_places(&self, paper: usize) -> Vec<Claim> {
        let often = |name: &str| self.cell(name, paper - 1);
        let flushes = |name: &str| float(often(name).traffic.flushes) / float(often(name).writes.max(1));
        // What an fsync of the internal journal takes, and one with a flush more.
        let fsync = often("ext4-journal").seconds / float(often("ext4-journal").fsyncs.max(1));
        let with_another_flush = fsync / (fsync + FLUSH.as_secs_f64());
        vec![
            Claim::at_least(
                "figure 3",
                "without fsyncs an external journal improves the writes by 46.1 %",
                "never: external's gain on ext4-journal, %",
                (self.ratio("external", "ext4-journal", 0) - 1.0) * 100.0,
                "46.1",
            ),
            Claim::about(
                "figure 3, section V.1",
                "with fsyncs an external journal gains nothing outstanding",
                "every 64: external / ext4-journal",
                self.ratio("external", "ext4-journal", paper - 1),
                (1.0, 0.1),
            )
            .because_within(with_another_flush * 0.9..=with_another_flush * 1.1, FLUSHES_BOTH),
            Claim::at_least(
                "figure 3",
                "a journal in NVRAM is up to 2.2 times as fast as an external one",
                "the most of all frequencies: nvj / external",
                self.up_to("nvj", "external", paper),
                "2.2",
            ),
            Claim::at_least(
                "figure 3, section V.1",
                "a journal of whole blocks in NVRAM checkpoints frequently",
                "every 64, flushes to a write: nvj / djfs",
                flushes("nvj") / flushes("djfs"),
                3.0,
            ),
        ]
    }

    /// Figure 7: DJFS beside all others.
    fn of_djfs(&self, paper: usize, swept: &[Vec<f64>]) -> Vec<Claim> {
        let up_to = |other: &str| self.up_to("djfs", other, paper);
        let [ordered, journal, external, nvj] = [0, 1, 2, 3].map(|n| &swept[n][..]);
        let both: Vec<f64> = ordered.iter().zip(journal).map(|(a, b)| a.max(*b)).collect();
        let group = vec![
            Claim::at_least(
                "figure 7",
                "without fsyncs DJFS is up to 1.7 times as fast as full journaling",
                "never: djfs / ext4-journal",
                self.ratio("djfs", "ext4-journal", 0),
                "1.7",
            )
            .into(),
            Claim::about(
                "figure 7",
                "without fsyncs DJFS is close to ordered",
                "never: djfs / ext4-ordered",
                self.ratio("djfs", "ext4-ordered", 0),
                (1.0, 0.1),
            )
            .into(),
            Claim::at_least(
                "figure 7",
                "with fsyncs DJFS is up to 5.1 times as fast as ordered and full journaling",
                "the most of all frequencies: djfs / the slower of ext4-ordered and ext4-journal",
                up_to("ext4-ordered").max(up_to("ext4-journal")),
                "5.1",
            )
            .swept(both),
            Claim::at_least(
                "figure 7",
                "with fsyncs it is up to 4.0 times as fast as external journaling",
                "the most of all frequencies: djfs / external",
                up_to("external"),
                "4.0",
            )
            .swept(external.iter().copied()),
            Claim::at_least(
                "figure 7",
                "it is up to 1.8 times as fast as journaling in NVRAM alone",
                "the most of all frequencies: djfs / nvj",
                up_to("nvj"),
                "1.8",
            )
            .swept(nvj.iter().copied()),
        ];
        let values = FLUSHES.map(|us| format!("a flush of {:?}", Duration::from_micros(us)));
        with_one_value("what a flush of the modelled drive takes is assumed", &values, group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_nvram_an_fsync_is_no_flush_and_runs_are_alike() {
        let work = Work { files: 4, time: Duration::from_millis(50), journal_mib: 16 };
        let once = |column: Way| {
            let contents = Rig::filled(&plan(column, work), |rig| fill(rig, work.files)).unwrap();
            run(column, 1, work, FLUSH, contents).unwrap()
        };
        let (djfs, journal) = (once(ways::DJFS), once(ways::JOURNAL));
        assert_eq!(djfs, once(ways::DJFS));
        assert!(journal.traffic.flushes >= journal.writes && djfs.writes > 10 * journal.writes, "{journal:?} {djfs:?}");
        // A region that has gone home is one flush and one write of the journal's superblock.
        assert_eq!((djfs.traffic.journal, djfs.traffic.fua), (djfs.traffic.flushes * PAGE, 0));
        assert!(djfs.traffic.flushes * 100 < djfs.writes, "{djfs:?}");
    }
    /// Only the last write of a file stays in the log alone when the next is synced.
    #[test]
    fn an_fsync_of_full_journaling_writes_earlier_journaled_blocks_home() {
        let work = Work { files: 1, time: Duration::from_millis(400), journal_mib: 16 };
        let home = |way: Way| {
            let contents = Rig::filled(&plan(way, work), |rig| fill(rig, work.files)).unwrap();
            let o = run(way, 1, work, FLUSH, contents).unwrap();
            float(o.traffic.fs) / float(o.writes * PAGE)
        };
        let stock = home(ways::JOURNAL);
        assert!((0.9..1.5).contains(&stock), "{stock} blocks home to a write");
        let lazy = home(Way { checkpoint: None, ..ways::JOURNAL });
        assert!(lazy < 0.3, "{lazy} blocks home to a write");
    }
}
