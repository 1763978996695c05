//! DJFS' random writes on mounts (figures 2, 3 and 7): one program overwrites 4 KiB at random in files of 1 MiB, with
//! an fsync every so many writes, of the file that it wrote last. DJFS' own journals lie in a simulated NVRAM.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use quire_testkit::rng::{Rng, content};

use super::bed::{Bed, Measured, Rounds};
use super::{
    DJFS, DJFS_JOURNAL_MIB, DRIVE, JOURNAL, NONE, NVJ, OF_DJFS, OF_FLUSH, ORDERED, SLOW_DRIVE, assume, mounters, only,
    rounds_of, swept,
};
use crate::mounter::Mounter;
use crate::results::{Claim, Effort, Figure, Findings};
use crate::stats::float;

const FILE: usize = 1 << 20;
const PAGE: usize = 4096;
/// Writes to an fsync: the paper's lowest and highest frequency.
const EVERY: [u64; 2] = [1024, 64];
/// Their places in it.
const RARELY: usize = 0;
const OFTEN: usize = 1;

/// What a program did.
struct Done {
    writes: u64,
    fsyncs: u64,
}

fn fill(dir: &Path, files: u64) -> Result<()> {
    (0..files).try_for_each(|n| Ok(fs::write(dir.join(format!("file-{n}")), content(n, 0, FILE))?))
}

fn write(dir: &Path, files: u64, every: u64, time: Duration) -> Result<Done> {
    let open = |n| File::options().write(true).open(dir.join(format!("file-{n}")));
    let files: Vec<File> = (0..files).map(open).collect::<std::io::Result<_>>()?;
    let mut rng = Rng::from_parts(&[1, 0x840, every]);
    let began = Instant::now();
    let mut writes = 0;
    while began.elapsed() < time {
        let file = &files[rng.index(files.len())];
        let at = rng.index(FILE / PAGE) * PAGE;
        writes += 1;
        file.write_all_at(&content(writes, at as u64, PAGE), at as u64)?;
        if writes % every == 0 {
            file.sync_all()?;
        }
    }
    Ok(Done { writes, fsyncs: writes / every })
}

/// Figures 2, 3 and 7.
///
/// # Errors
/// A file system failed.
pub fn study(effort: Effort) -> Result<Findings> {
    let files = effort.pick(64, 192, 512);
    let time = Duration::from_millis(effort.pick(1000, 2500, 10_000));
    let mib = 384 + files * 5 / 4;
    let measure = |bed: &Bed, rounds, mounters: &[Mounter], every: &[u64]| {
        bed.rounds(rounds, mounters, |dir| fill(dir, files), every, |dir, every| write(dir, files, every, time))
    };
    let all = mounters(&OF_DJFS)?;
    let rounds = measure(&Bed::new(DRIVE, mib, DJFS_JOURNAL_MIB)?, rounds_of(effort), &all, &EVERY)?;
    let djfs_to_nvj = |rounds: &Rounds<Done>, phase| rounds.median(DJFS, phase, rate) / rounds.median(NVJ, phase, rate);
    let slow = Bed::new(SLOW_DRIVE, mib, DJFS_JOURNAL_MIB)?;
    let slow = measure(&slow, 1, &only(&all, &[NVJ, DJFS]), &EVERY[OFTEN..])?;
    let (measured, on_slow) = (djfs_to_nvj(&rounds, OFTEN), djfs_to_nvj(&slow, 0));
    let title = "Random writes, fsync every 64, by a flush of the drive, mounts (calibration)";
    let by_flush = Figure::bars("djfs-7-mounts-flush", "figure 7", title, "flush, ms", "times");
    let by_flush = swept(by_flush, "djfs / nvj", 1.8, [("2", measured), ("4", on_slow)]);
    let mut f = Findings { figures: figures(&rounds, files), claims: claims(&rounds, on_slow), ..Findings::default() };
    f.figures.push(by_flush);
    assume(&mut f, effort);
    f.assume(format!(
        "drive: model samsung840, as in djfs-randwrite; journals of {DJFS_JOURNAL_MIB} MiB; nvj, djfs and djfs4: a file in \
         tmpfs of the same size is the NVRAM (nvram_simulated), as fast as DRAM (the paper: 128 MB of DRAM)",
    ));
    f.assume("quire ext4-journal: an fsync writes home what earlier transactions hold of the file (checkpoint=fsync)");
    f.assume(format!(
        "{files} files (the paper: 4096), {} s; the kernel's page cache takes the writes between two fsyncs, and writes \
         of other files go home when they are old: an fsync is of the file that was written last alone",
        time.as_secs_f64()
    ));
    f.assume("\"dramatically\": three times; a write with FUA is counted as a write and a flush");
    f.skipped.push(
        "writes without fsyncs (figures 2, 3 and 7): for some seconds the kernel's page cache takes all of them with \
         every file system"
            .into(),
    );
    f.skipped.push("external journaling (figures 3 and 7): the study has one device".into());
    Ok(f)
}

fn rate(m: &Measured<Done>) -> f64 {
    float(m.of.writes) / m.seconds
}

/// To a write.
fn flushes(m: &Measured<Done>) -> f64 {
    float(m.asked.flushes) / float(m.of.writes)
}

fn figures(rounds: &Rounds<Done>, files: u64) -> Vec<Figure> {
    let title = |what: &str| format!("{what}, {files} files of 1 MiB, mounts");
    let names = EVERY.map(|every| format!("fsync every {every}"));
    let each = [RARELY, OFTEN];
    let writes = Figure::bars("djfs-2-mounts", "figures 2 and 7", title("Random writes"), "mount", "writes/s");
    let asked = Figure::bars("djfs-2-mounts-flushes", "figure 2", title("Flushes"), "mount", "of 1000 writes");
    vec![
        rounds.drawn(writes.of_series(names.clone()), &each, rate),
        rounds.drawn(asked.of_series(names), &each, |m| flushes(m) * 1000.0),
    ]
}

/// What the figures say; `on_slow` is DJFS by journaling in NVRAM alone on a drive with another flush.
fn claims(rounds: &Rounds<Done>, on_slow: f64) -> Vec<Claim> {
    let growth = |name| rounds.median(name, OFTEN, flushes) / rounds.median(name, RARELY, flushes);
    let often = |name| rounds.median(name, OFTEN, rate);
    let slower = often(ORDERED).min(often(JOURNAL));
    let lost = |n| 100.0 - 100.0 * rounds.median(JOURNAL, n, rate) / rounds.median(NONE, n, rate);
    vec![
        Claim::at_least(
            "figure 2, on mounts",
            "flushes and FUA writes grow dramatically with the fsyncs, in ordered and in full journaling",
            "the less of kernel ordered and kernel journal: flushes to a write, every 64 / every 1024",
            growth(ORDERED).min(growth(JOURNAL)),
            3.0,
        ),
        Claim::about(
            "figure 2, on mounts",
            "full journaling loses up to 43.6 % of the writes of no journal",
            "the more of every 1024 and every 64: what kernel journal loses of kernel none's writes, %",
            lost(RARELY).max(lost(OFTEN)),
            ("43.6", 0.1),
        ),
        Claim::at_least(
            "figure 2, on mounts",
            "without a journal each fsync is a flush",
            "kernel none: flushes to an fsync, every 64",
            rounds.median(NONE, OFTEN, |m| float(m.asked.flushes) / float(m.of.fsyncs)),
            1.0,
        ),
        Claim::at_least(
            "figure 7, on mounts",
            "with fsyncs DJFS is up to 5.1 times as fast as ordered and full journaling",
            "every 64: quire djfs / the slower of kernel ordered and kernel journal",
            often(DJFS) / slower,
            "5.1",
        ),
        Claim::at_least(
            "figure 7, on mounts",
            "it is up to 1.8 times as fast as journaling in NVRAM alone",
            "every 64: quire djfs / quire nvj",
            often(DJFS) / often(NVJ),
            "1.8",
        )
        .calibrated(&[on_slow], OF_FLUSH),
    ]
}
