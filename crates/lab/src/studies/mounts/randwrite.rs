//! DJFS' random writes on mounts (figures 2, 3 and 7): one program overwrites 4 KiB at random in files of 1 MiB, with
//! an fsync every so many writes, of the file that it wrote last. DJFS' own journals lie in a simulated NVRAM, external
//! ones on a second drive of the same model.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use quire_testkit::rng::{Rng, content};

use super::bed::{Bed, Measured, Rounds};
use super::{
    DJFS, DRIVE, EXTERNAL, FAST_DRIVE, JOURNAL, NONE, NVJ, OF_FLUSH, ORDERED, SLOW_DRIVE, assume, assume_external,
    of_djfs, only, rounds_of,
};
use crate::mounter::Mounter;
use crate::results::{ABOUT, Claim, Effort, Figure, Findings, Verdict, with_one_row};
use crate::stats::{float, mib};

/// MiB of journals on the device and in NVRAM: as small a part of the paper's 128 as the runs are short, so that they
/// are full several times.
const JOURNAL_MIB: u64 = 32;
const FILE: usize = 1 << 20;
const PAGE: usize = 4096;
/// Writes to an fsync: the paper's lowest and highest frequency.
const EVERY: [u64; 2] = [1024, 64];
/// Their places in it.
const RARELY: usize = 0;
const OFTEN: usize = 1;

/// What the page cache may hold of what is dirty (calibration).
const DIRTY: [u64; 6] = [64 << 20, 128 << 20, 192 << 20, 224 << 20, 240 << 20, 256 << 20];
/// Why full journaling may lose more, or less, of no journal's writes than in the paper. It touches all rates, of which
/// two alone are measured with it: whether other claims still hold is not known, so it is no cause.
const OF_DIRTY: &str = "what lies in the page cache at the end of so short a run was never written without a journal, and \
     logged at each fsync with full journaling; how much may lie there in the paper's machine is not known, nor what \
     becomes of the other claims with another amount";

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
    let time = Duration::from_millis(effort.pick(600, 2500, 10_000));
    let size = 384 + files * 5 / 4;
    let measure = |bed: &Bed, rounds, mounters: &[Mounter], every: &[u64]| {
        bed.rounds(rounds, mounters, |dir| fill(dir, files), every, |dir, every| write(dir, files, every, time))
    };
    let bed = |drive| Bed::new(drive, size, JOURNAL_MIB)?.with_journal_device(drive);
    let all = of_djfs()?;
    let rounds = measure(&bed(DRIVE)?, rounds_of(effort), &all, &EVERY)?;
    let of_factors = only(&all, &[ORDERED, JOURNAL, EXTERNAL, NVJ, DJFS]);
    let on = |drive| Ok::<_, anyhow::Error>(factors(&measure(&bed(drive)?, 1, &of_factors, &EVERY[OFTEN..])?, 0));
    let on_others = [on(FAST_DRIVE)?, on(SLOW_DRIVE)?];
    let by_dirty = DIRTY[..effort.pick(1, DIRTY.len(), DIRTY.len())].iter().map(|bytes| {
        let mut bed = bed(DRIVE)?;
        bed.limit_dirty(*bytes);
        Ok(most_lost(&measure(&bed, 1, &only(&all, &[NONE, JOURNAL]), &EVERY)?))
    });
    let by_dirty = by_dirty.collect::<Result<Vec<f64>>>()?;
    let mut f = Findings { figures: figures(&rounds, files), ..Findings::default() };
    f.claims = claims(&rounds, on_others, &by_dirty);
    f.figures.push(by_flush(&rounds, on_others));
    f.figures.push(lost_by_dirty(&by_dirty));
    assume(&mut f, effort, DRIVE);
    f.assume(format!(
        "drive: model samsung840, as in djfs-randwrite; journals of {JOURNAL_MIB} MiB; nvj, djfs and djfs4: a \
         file in tmpfs of the same size is the NVRAM (nvram_simulated), as fast as DRAM (the paper: 128 MB of \
         DRAM)",
    ));
    assume_external(&mut f);
    f.assume(format!(
        "{files} files (the paper: 4096), {} s; the kernel's page cache takes the writes between two fsyncs, and \
         writes of other files go home when they are old: an fsync is of the file that was written last alone",
        time.as_secs_f64()
    ));
    f.assume(
        "\"dramatically\", \"seriously\": three times; no outstanding gain, printed numbers: a tenth more or less; a write \
         with FUA is counted as a write and a flush",
    );
    f.assume(
        "\"up to\" in figures 3 and 7 is of an fsync every 64 writes alone, in figure 2 the more of every 1024 and \
         every 64; no claim is of writes without fsyncs, so the paper's 46.1 %, its 1.7 times and \"close to ordered\" \
         have no kernel beside them (djfs-randwrite has them in virtual time)",
    );
    f.skipped.push(
        "writes without fsyncs (figures 2, 3 and 7): for some seconds the kernel's page cache takes all of them with \
         every file system; where it may keep less (max_bytes with strict_limit), its throttle sets the pace instead of \
         the drive"
            .into(),
    );
    Ok(f)
}

/// What is compared, and how many times as fast it is in the paper.
const COMPARED: [(&str, &str); 4] = [
    ("djfs / the slower of ordered and journal", "5.1"),
    ("djfs / kernel external", "4.0"),
    ("djfs / quire nvj", "1.8"),
    ("quire nvj / kernel external", "2.2"),
];
const FACTORS: usize = COMPARED.len();

/// The factors of [`COMPARED`].
fn factors(rounds: &Rounds<Done>, phase: usize) -> [f64; FACTORS] {
    let of = |name| rounds.median(name, phase, rate);
    let on_device = of(ORDERED).min(of(JOURNAL));
    [of(DJFS) / on_device, of(DJFS) / of(EXTERNAL), of(DJFS) / of(NVJ), of(NVJ) / of(EXTERNAL)]
}

/// The factors of [`COMPARED`] by what a flush takes.
fn by_flush(rounds: &Rounds<Done>, [fast, slow]: [[f64; FACTORS]; 2]) -> Figure {
    let title = "Random writes, fsync every 64, by a flush of the drive, mounts (calibration)";
    let names = COMPARED.map(|(name, _)| name);
    let figure = Figure::bars("djfs-7-mounts-flush", "figures 3 and 7", title, "flush, ms", "times");
    let mut figure = figure.of_series(names);
    for (flush, factors) in [("1", fast), ("2", factors(rounds, OFTEN)), ("4", slow)] {
        figure.place(flush, factors);
        for (name, (_, printed)) in names.iter().zip(COMPARED) {
            figure.printed(flush, name, printed.parse().expect("a printed number"));
        }
    }
    figure
}

/// What full journaling loses of the writes of no journal, in per cent.
fn most_lost(rounds: &Rounds<Done>) -> f64 {
    let lost = |n| 100.0 - 100.0 * rounds.median(JOURNAL, n, rate) / rounds.median(NONE, n, rate);
    lost(RARELY).max(lost(OFTEN))
}

/// The same by what may be dirty.
fn lost_by_dirty(lost: &[f64]) -> Figure {
    let title =
        "What full journaling loses of no journal's writes, by what may be dirty in memory, mounts (calibration)";
    let series = "%";
    let mut figure = Figure::bars("djfs-2-mounts-dirty", "figure 2", title, "dirty, MiB", series).of_series([series]);
    for (bytes, lost) in DIRTY.iter().zip(lost) {
        let place = mib(*bytes).to_string();
        figure.place(&place, [*lost]);
        figure.printed(&place, series, 43.6);
    }
    figure
}

fn rate(m: &Measured<Done>) -> f64 {
    float(m.of.writes) / m.seconds
}

/// To a write.
fn flushes(m: &Measured<Done>) -> f64 {
    float(m.asked.flushes) / float(m.of.writes)
}

/// Bytes to a write.
fn logged(m: &Measured<Done>) -> f64 {
    float(m.asked.journal_bytes) / float(m.of.writes)
}

fn figures(rounds: &Rounds<Done>, files: u64) -> Vec<Figure> {
    let title = |what: &str| format!("{what}, {files} files of 1 MiB, mounts");
    let names = EVERY.map(|every| format!("fsync every {every} writes"));
    let each = [RARELY, OFTEN];
    let writes = Figure::bars("djfs-2-mounts", "figures 2, 3 and 7", title("Random writes"), "mount", "writes/s");
    let asked = Figure::bars("djfs-2-mounts-flushes", "figures 2 and 3", title("Flushes"), "mount", "of 1000 writes");
    let title = title("Bytes to the journal");
    let journal = Figure::bars("djfs-2-mounts-journal", "figure 2d", title, "mount", "MB of 1000 writes");
    let figures = [
        rounds.drawn(writes.of_series(names.clone()), &each, rate),
        rounds.drawn(asked.of_series(names.clone()), &each, |m| flushes(m) * 1000.0),
        rounds.drawn(journal.of_series(names), &each, |m| logged(m) / 1e3),
    ];
    figures.map(|figure| figure.turned("frequency")).into()
}

/// What the figures say; `on_others` are the factors of [`COMPARED`] on drives with other flushes, `by_dirty` what full
/// journaling loses with each of [`DIRTY`].
fn claims(rounds: &Rounds<Done>, on_others: [[f64; FACTORS]; 2], by_dirty: &[f64]) -> Vec<Claim> {
    let mut claims = of_motivation(rounds, by_dirty);
    claims.push(of_places(rounds));
    claims.extend(of_factors(rounds, on_others));
    claims
}

/// Figure 2: what the journals of ext4 cost.
fn of_motivation(rounds: &Rounds<Done>, by_dirty: &[f64]) -> Vec<Claim> {
    let grown = |name, of: fn(&Measured<Done>) -> f64| rounds.median(name, OFTEN, of) / rounds.median(name, RARELY, of);
    let of_both = |of| grown(ORDERED, of).min(grown(JOURNAL, of));
    let lost = Claim::about(
        "figure 2, on mounts",
        "full journaling loses up to 43.6 % of the writes of no journal",
        "the more of every 1024 and every 64: what kernel journal loses of kernel none's writes, %",
        most_lost(rounds),
        ("43.6", ABOUT),
    );
    vec![
        Claim::at_least(
            "figure 2, on mounts",
            "flushes and FUA writes grow dramatically with the fsyncs, in ordered and in full journaling",
            "the less of kernel ordered and kernel journal: flushes to a write, every 64 / every 1024",
            of_both(flushes),
            3.0,
        ),
        Claim::at_least(
            "figure 2, section III, on mounts",
            "with the fsyncs journaling of metadata and of descriptors and commit blocks grows seriously",
            "kernel ordered, which logs nothing else: bytes to the journal to a write, every 64 / every 1024",
            grown(ORDERED, logged),
            3.0,
        ),
        Claim::about(
            "figure 2, on mounts",
            "without a journal each fsync is a flush",
            "kernel none: flushes to an fsync, every 64",
            rounds.median(NONE, OFTEN, |m| float(m.asked.flushes) / float(m.of.fsyncs)),
            (1.0, 0.01),
        ),
        if lost.verdict == Verdict::Held { lost } else { lost.calibrated_in_vain(by_dirty, OF_DIRTY) },
    ]
}

/// Figure 3: what another place for the journal brings.
fn of_places(rounds: &Rounds<Done>) -> Claim {
    Claim::about(
        "figure 3, section V.1, on mounts",
        "with fsyncs an external journal gains nothing outstanding",
        "every 64: kernel external / kernel journal",
        rounds.median(EXTERNAL, OFTEN, rate) / rounds.median(JOURNAL, OFTEN, rate),
        (1.0, ABOUT),
    )
}

/// Figures 3 and 7: journals in NVRAM beside all others, with one flush of the drive.
fn of_factors(rounds: &Rounds<Done>, on_others: [[f64; FACTORS]; 2]) -> Vec<Claim> {
    let says = [
        (
            "figure 7, on mounts",
            "with fsyncs DJFS is up to 5.1 times as fast as ordered and full journaling",
            "every 64: quire djfs / the slower of kernel ordered and kernel journal",
        ),
        (
            "figure 7, on mounts",
            "with fsyncs it is up to 4.0 times as fast as external journaling",
            "every 64: quire djfs / kernel external",
        ),
        (
            "figure 7, on mounts",
            "it is up to 1.8 times as fast as journaling in NVRAM alone",
            "every 64: quire djfs / quire nvj",
        ),
        (
            "figure 3, on mounts",
            "a journal in NVRAM is up to 2.2 times as fast as an external one",
            "every 64: quire nvj / kernel external",
        ),
    ];
    let measured = factors(rounds, OFTEN);
    let claim = |(n, (at, says, what)): (usize, (&str, &str, &str))| {
        Claim::about(at, says, what, measured[n], (COMPARED[n].1, ABOUT))
    };
    let flushes = ["a flush of 1 ms".into(), "a flush of 4 ms".into()];
    with_one_row(OF_FLUSH, &flushes, says.into_iter().enumerate().map(claim), &on_others)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::served::Asked;

    /// Of each mounter the writes in a second and the bytes to the journal, rarely and often synced.
    fn rounds(of: &[(&str, [(u64, u64); 2])]) -> Rounds<Done> {
        let measured = |(writes, bytes): (u64, u64)| {
            let asked = Asked { journal_bytes: bytes, flushes: writes / 10, ..Asked::default() };
            Measured { of: Done { writes, fsyncs: writes / 64 }, asked, seconds: 1.0 }
        };
        let round = |of: [(u64, u64); 2]| vec![of.map(measured).into()];
        Rounds::of(of.iter().map(|(name, of)| ((*name).to_owned(), round(*of))).collect())
    }

    #[test]
    fn an_external_journal_gains_nothing_if_it_is_within_a_tenth_of_the_internal_one() {
        let of = |external: u64| {
            let all = [(JOURNAL, [(1000, 0), (100, 0)]), (EXTERNAL, [(1000, 0), (external, 0)])];
            let claim = of_places(&rounds(&all));
            (claim.verdict, claim.measured)
        };
        let (held, not) = (Verdict::Held, Verdict::NotHeld);
        assert_eq!([of(100), of(120)], [(held, Some(1.0)), (not, Some(1.2))]);
        assert_eq!(of(80).0, not, "to be slower is no gain either");
    }

    #[test]
    fn what_may_be_dirty_is_shown_and_no_cause() {
        let all = rounds(&[(NONE, [(1000, 0), (1000, 0)]), (JOURNAL, [(200, 0), (400, 0)])]);
        let of = |by_dirty: &[f64]| {
            let claim = &of_motivation(&all, by_dirty)[3];
            (claim.verdict, claim.why.clone().unwrap())
        };
        let (verdict, why) = of(&[30.0, 45.0]);
        assert_eq!(verdict, Verdict::NotHeld, "one of them has the number");
        assert!(why.contains("goes from 30.0 to 80.0"), "{why}");
        assert_eq!(lost_by_dirty(&[10.0, 40.0, 70.0]).printed_at("64", "%"), Some(43.6));
    }

    #[test]
    fn djfs_beside_external_journaling_has_the_flush_as_a_cause_if_another_one_brings_the_papers_number() {
        let all = rounds(&[
            (DJFS, [(1000, 0), (300, 0)]),
            (ORDERED, [(1000, 0), (50, 0)]),
            (JOURNAL, [(1000, 0), (60, 0)]),
            (EXTERNAL, [(1000, 0), (100, 0)]),
            (NVJ, [(900, 0), (100, 0)]),
        ]);
        // 6, 3, 3 and 1 here.
        let of = |on_slow| {
            let claims = of_factors(&all, [[f64::NAN; FACTORS], on_slow]);
            claims.iter().map(|c| c.verdict).collect::<Vec<_>>()
        };
        let (differs, not) = (Verdict::Differs, Verdict::NotHeld);
        assert_eq!(of([5.0, 4.0, 1.8, 2.2]), [differs; 4]);
        assert_eq!(of([6.0, 4.1, 2.5, 3.0]), [not, differs, not, not]);
        let figure = by_flush(&all, [[1.0; FACTORS], [6.0, 4.5, 2.0, 2.0]]);
        assert_eq!((figure.printed_at("4", "djfs / kernel external"), figure.count()), (Some(4.0), 12));
    }

    #[test]
    fn metadata_grows_seriously_if_ordered_logs_three_times_as_much_to_a_write() {
        let of = |ordered: u64| {
            let all = [(ORDERED, [(1000, 1000), (100, ordered)]), (JOURNAL, [(1000, 1000), (100, 900)])];
            of_motivation(&rounds(&all), &[])[1].verdict
        };
        assert_eq!((of(300), of(250)), (Verdict::Held, Verdict::NotHeld));
    }
}
