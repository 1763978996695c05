//! What DJFS' TPC-C on SQLite makes a journal do (table 1), and how fast it is (figure 8), on mounts: flushes and bytes
//! to the journal for each transaction, in parts of the kernel's `data=ordered`.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::super::tpcc::grain;
use super::bed::{Bed, Measured, Rounds};
use super::{
    DJFS, DJFS_JOURNAL_MIB, DRIVE, EXTERNAL, JOURNAL, NVJ, ORDERED, SLOW_DRIVE, assume, assume_external, of_djfs, only,
    point_of_rounds, rounds_of, swept,
};
use crate::mounter::Mounter;
use crate::results::{Claim, Effort, Figure, Findings};
use crate::stats::{float, median};
use crate::work::tpcc::{self, Grain, Journal, Limit, Report, Scale};

/// What the paper has of one of SQLite's journals.
struct Printed {
    journal: Journal,
    /// Table 1, in per cent of ordered's: flushes by series.
    flushes: [(&'static str, &'static str); 5],
    /// The same: what full journaling logs of data, and what it does with an external journal.
    data: &'static str,
    external_data: &'static str,
    /// Figure 8: DJFS by the slowest of the journals on devices.
    times: &'static str,
}

const PRINTED: [Printed; 2] = [
    Printed {
        journal: Journal::Persist,
        flushes: [(JOURNAL, "99.2"), (EXTERNAL, "99.5"), (NVJ, "0.4"), (DJFS, "0.003"), ("quire djfs4", "0.006")],
        data: "297.4",
        external_data: "298.2",
        times: "64.2",
    },
    Printed {
        journal: Journal::Wal,
        flushes: [(JOURNAL, "99.3"), (EXTERNAL, "99.3"), (NVJ, "1.3"), (DJFS, "0.02"), ("quire djfs4", "0.03")],
        data: "313.3",
        external_data: "312.6",
        times: "26.5",
    },
];

/// One of SQLite's journals, and what it commits at once.
type Phase = (usize, Grain);
const PHASES: [Phase; 2] = [(0, Grain::Statement), (1, Grain::Statement)];
/// The same with fewer commits (calibration).
const COARSE: [Phase; 2] = [(0, Grain::Transaction), (1, Grain::Transaction)];

/// What figures are with other values of what is assumed (calibration).
struct Other {
    /// DJFS by the slowest on a device, with a flush that takes twice as long.
    times: f64,
    /// What full journaling logs, in per cent of ordered, with a commit for each transaction.
    data: f64,
}

/// Why full journaling's flushes are more than ordered's.
const THIRD_FLUSH: &str = "an fsync of today's data=journal takes three flushes, with the one behind the blocks that \
     it writes home; ordered takes two, and one where nothing but data has changed: one and a half to three times the \
     paper's part";
/// Flushes of an fsync with full journaling, by what ordered takes at most and at least.
const THREE_OF_TWO: f64 = 1.5;
const THREE_OF_ONE: f64 = 3.0;
/// Why DJFS' flushes are a larger part of ordered's than the paper's.
const ONE_FLUSH: &str = "ordered has so few flushes in so short a run that a single one is this part of them";
/// How far a number of table 1 or figure 8 may be off.
const ABOUT: f64 = 0.1;

/// Bytes of a block of the journal.
const JOURNAL_BLOCK: u64 = 4096;

/// A printed number.
fn number(printed: &str) -> f64 {
    printed.parse().expect("a printed number")
}

/// Each of SQLite's journals has a database of its own.
fn database(dir: &Path, journal: Journal) -> std::path::PathBuf {
    dir.join(format!("{}.db", journal.name().to_lowercase()))
}

/// Table 1 and figure 8.
///
/// # Errors
/// A file system or SQLite failed.
pub fn study(effort: Effort) -> Result<Findings> {
    let divide = effort.pick(20, 10, 1);
    // A transaction with PERSIST takes four times as long as one with WAL.
    let transactions = effort.pick([12, 20], [25, 50], [100, 300]);
    let scale = Scale { page: 1024, ..Scale::divided(10, divide) };
    let memory = Path::new("/dev/shm");
    let loaded = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
    let db = loaded.path().join("loaded.db");
    tpcc::load(&db, Journal::Delete, scale, 1)?;
    let mib = 512 + (fs::metadata(&db)?.len() >> 20) * 3;
    let prepare = |dir: &Path| PRINTED.iter().try_for_each(|p| Ok(fs::copy(&db, database(dir, p.journal)).map(drop)?));
    let run = |dir: &Path, (half, grain): Phase| {
        let journal = PRINTED[half].journal;
        tpcc::run(&database(dir, journal), journal, grain, 2, Limit::Transactions(transactions[half]))
    };
    let all = of_djfs()?;
    let measure = |drive, rounds, mounters: &[Mounter], phases: &[Phase]| {
        let bed = Bed::new(drive, mib, DJFS_JOURNAL_MIB)?.with_journal_device(drive)?;
        bed.rounds(rounds, mounters, prepare, phases, run)
    };
    let rounds = measure(DRIVE, rounds_of(effort), &all, &PHASES)?;
    let coarse = measure(DRIVE, 1, &only(&all, &[ORDERED, JOURNAL]), &COARSE)?;
    let slow = measure(SLOW_DRIVE, 1, &only(&all, &[ORDERED, JOURNAL, EXTERNAL, DJFS]), &PHASES)?;
    let mut f = Findings::default();
    for (half, printed) in PRINTED.iter().enumerate() {
        f.figures.extend(figures(&rounds, half, printed));
        let other = Other { times: times(&slow, half), data: median(&percent(&coarse, JOURNAL, half, logged)) };
        f.figures.extend(calibration(&rounds, half, printed, &other));
        f.claims.extend(claims(&rounds, half, printed));
    }
    assume(&mut f, effort, DRIVE);
    f.assume(format!(
        "drive: model samsung840, as in djfs-table1; journals of {DJFS_JOURNAL_MIB} MiB; nvj, djfs and djfs4: a \
         file in tmpfs of the same size is the NVRAM (nvram_simulated), as fast as DRAM (the paper: 128 MB of \
         DRAM)",
    ));
    let [persist, wal] = transactions;
    f.assume(format!(
        "10 warehouses, each divided by {divide}, pages of 1 KiB, {persist} transactions with PERSIST and {wal} \
         with WAL, one commit to a statement: so few fill hardly a region of the NVRAM, whose flush the paper \
         shares among them",
    ));
    f.assume(
        "data to the journal are the bytes that reach it on the device but a block of each write, the descriptor or \
         the commit block: NVRAM's are in djfs-table1; a write with FUA is counted as a write and a flush",
    );
    f.assume("figure 8's factors and what is logged: a tenth more or less; flushes are at most the paper's part");
    assume_external(&mut f);
    Ok(f)
}

fn flushes(m: &Measured<Report>) -> f64 {
    float(m.asked.flushes) / float(m.of.transactions())
}

/// Bytes of data and metadata. A commit is two writes to the journal, each with a block of its own: the descriptor and
/// the commit block.
fn logged(m: &Measured<Report>) -> f64 {
    let bytes = m.asked.journal_bytes.saturating_sub(m.asked.journal_writes * JOURNAL_BLOCK);
    float(bytes) / float(m.of.transactions())
}

fn rate(m: &Measured<Report>) -> f64 {
    m.of.rate()
}

/// Of each round, in per cent of ordered's of that round.
fn percent(rounds: &Rounds<Report>, name: &str, half: usize, of: fn(&Measured<Report>) -> f64) -> Vec<f64> {
    let (values, ordered) = (rounds.values(name, half, of), rounds.values(ORDERED, half, of));
    values.iter().zip(ordered).map(|(value, ordered)| value / ordered * 100.0).collect()
}

fn figures(rounds: &Rounds<Report>, half: usize, printed: &Printed) -> [Figure; 3] {
    let mode = printed.journal.name();
    let y = "% of the kernel's data=ordered";
    let share = |row: usize, what: &str, of: fn(&Measured<Report>) -> f64| {
        let id = format!("djfs-t1-mounts-{}-{row}", mode.to_lowercase());
        let title = format!("{mode}: {what} to a transaction, mounts");
        let mut figure = Figure::bars(&id, "table 1", title, "mount", y).of_series([y]);
        for name in rounds.names() {
            figure.place(name, [point_of_rounds(percent(rounds, name, half, of))]);
        }
        figure
    };
    let mut asked = share(0, "flushes", flushes);
    printed.flushes.iter().for_each(|(name, value)| asked.printed(name, y, number(value)));
    let mut bytes = share(1, "data to the journal", logged);
    bytes.printed(JOURNAL, y, number(printed.data));
    bytes.printed(EXTERNAL, y, number(printed.external_data));
    let id = format!("djfs-8-mounts-{}", mode.to_lowercase());
    let title = format!("{mode}: transactions, mounts");
    let speed = Figure::bars(&id, "figure 8", title, "mount", "transactions/s").of_series(["transactions/s"]);
    [asked, bytes, rounds.drawn(speed.logarithmic(), &[half], rate)]
}

/// DJFS by the slowest of the kernel's modes.
fn times(rounds: &Rounds<Report>, half: usize) -> f64 {
    let of = |name| rounds.median(name, half, rate);
    of(DJFS) / of(ORDERED).min(of(JOURNAL)).min(of(EXTERNAL))
}

/// The figures that have causes in what is assumed, by it.
fn calibration(rounds: &Rounds<Report>, half: usize, printed: &Printed, other: &Other) -> [Figure; 2] {
    let mode = printed.journal.name();
    let figure = |id: &str, of: &str, what: &str, by: &str, y: &str, paper: &str, values: [(&str, f64); 2]| {
        let id = format!("djfs-{id}-{}", mode.to_lowercase());
        let title = format!("{mode}: {what}, mounts (calibration)");
        swept(Figure::bars(&id, of, title, by, y), y, number(paper), values)
    };
    let by_flush = [("2", times(rounds, half)), ("4", other.times)];
    let measured = median(&percent(rounds, JOURNAL, half, logged));
    let by_grain = [(grain(Grain::Statement), measured), (grain(Grain::Transaction), other.data)];
    let y = "djfs / the slowest of ordered, journal and external";
    let share = "% of the kernel's data=ordered";
    let what = "data to the journal of the kernel's data=journal, by what SQLite commits at once";
    [
        figure(
            "8-mounts-flush",
            "figure 8",
            "factors by a flush of the drive",
            "flush, ms",
            y,
            printed.times,
            by_flush,
        ),
        figure("t1-mounts-grain", "table 1", what, "grain", share, printed.data, by_grain),
    ]
}

fn claims(rounds: &Rounds<Report>, half: usize, printed: &Printed) -> Vec<Claim> {
    let mode = printed.journal.name();
    let mut claims = vec![
        // No cause by the flush: with PERSIST it would have to be longer than the model's, with WAL shorter.
        Claim::about(
            "figure 8, on mounts",
            &format!("DJFS is up to {} times as fast as ext4 with its journal on a device", printed.times),
            format!("{mode}: quire djfs / the slowest of kernel ordered, journal and external"),
            times(rounds, half),
            (printed.times, ABOUT),
        ),
        Claim::about(
            "table 1, on mounts",
            &format!("full journaling writes {} % of ordered's data to the journal", printed.data),
            format!("{mode}, kernel journal: data to the journal, %"),
            median(&percent(rounds, JOURNAL, half, logged)),
            (printed.data, ABOUT),
        ),
        Claim::about(
            "table 1, on mounts",
            &format!("external journaling writes {} % of ordered's data to the journal", printed.external_data),
            format!("{mode}, kernel external: data to the journal, %"),
            median(&percent(rounds, EXTERNAL, half, logged)),
            (printed.external_data, ABOUT),
        ),
    ];
    // In per cent of ordered's.
    let one = 100.0 / rounds.median(ORDERED, half, |m| float(m.asked.flushes));
    claims.extend(printed.flushes.iter().map(|(name, value)| {
        let says = format!("flushes: {value} % of ordered's");
        let what = format!("{mode}, {name}: flushes, %");
        let measured = median(&percent(rounds, name, half, flushes));
        let claim = Claim::at_most("table 1, on mounts", &says, what, measured, *value);
        match *name {
            JOURNAL | EXTERNAL => {
                claim.because_within(number(value) * THREE_OF_TWO..=number(value) * THREE_OF_ONE, THIRD_FLUSH)
            }
            _ => claim.because_within(0.0..=one, ONE_FLUSH),
        }
    }));
    claims
}
