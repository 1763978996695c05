//! What DJFS' TPC-C on SQLite makes a journal do (table 1), and how fast it is (figures 8 and 9), on mounts: flushes
//! and bytes to the journal for each transaction, in parts of the kernel's `data=ordered`.

mod flushes;

use std::fs;
use std::path::Path;

use anyhow::Result;

use self::flushes::{by_home, of_flushes_in_nvram, of_flushes_on_devices};
use super::super::tpcc::grain;
use super::bed::{Bed, Measured, Rounds};
use super::nvram::{self, ByLatency, rate};
use super::{
    DJFS, DJFS4, DRIVE, EXTERNAL, FAST_DRIVE, JOURNAL, NVJ, OF_FLUSH, ORDERED, SLOW_DRIVE, assume, assume_external,
    of_djfs, only, point_of_rounds, rounds_of, swept,
};
use crate::interrupt::Folder;
use crate::mounter::Mounter;
use crate::results::{ABOUT, Claim, Effort, Figure, Findings, shown, with_one_row};
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
        flushes: [(JOURNAL, "99.2"), (EXTERNAL, "99.5"), (NVJ, "0.4"), (DJFS, "0.003"), (DJFS4, "0.006")],
        data: "297.4",
        external_data: "298.2",
        times: "64.2",
    },
    Printed {
        journal: Journal::Wal,
        flushes: [(JOURNAL, "99.3"), (EXTERNAL, "99.3"), (NVJ, "1.3"), (DJFS, "0.02"), (DJFS4, "0.03")],
        data: "313.3",
        external_data: "312.6",
        times: "26.5",
    },
];

/// One of SQLite's journals, what it commits at once, and how many transactions.
type Phase = (usize, Grain, u64);

/// Each journal, with so many transactions.
fn phases(grain: Grain, transactions: [u64; 2]) -> [Phase; 2] {
    [0, 1].map(|half| (half, grain, transactions[half]))
}

/// What was measured.
struct Runs {
    rounds: Rounds<Report>,
    /// Of those in NVRAM, many more transactions: a region's flush is for a few thousand of them.
    long: Rounds<Report>,
    /// On drives whose flush takes half as long, and twice as long: modes on devices, and as many transactions of DJFS
    /// as in [`Runs::long`] (calibration).
    by_flush: [[Rounds<Report>; 2]; 2],
    /// As many of DJFS on drives that take no time (calibration).
    free: Rounds<Report>,
    /// With a commit for each transaction (calibration).
    coarse: Rounds<Report>,
}

/// What flushes take on the drives of [`Runs::by_flush`] and on the one assumed between them, in ms.
const FLUSHES: [&str; 3] = ["1", "2", "4"];

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
    let transactions = effort.pick([8, 12], [25, 50], [100, 300]);
    let of_calibration = effort.pick([3, 5], transactions, transactions);
    // The paper's is 128.
    let journal_mib = effort.pick(32, 128, 128);
    let in_nvram = effort.pick([50, 100], [2000, 5000], [10_000, 20_000]);
    let scale = Scale { page: 1024, ..Scale::divided(10, divide) };
    let loaded = Folder::in_memory("quire-tpcc-")?;
    let db = loaded.path().join("loaded.db");
    tpcc::load(&db, Journal::Delete, scale, 1)?;
    let mib = 608 + (fs::metadata(&db)?.len() >> 20) * 3;
    let prepare = |dir: &Path| PRINTED.iter().try_for_each(|p| Ok(fs::copy(&db, database(dir, p.journal)).map(drop)?));
    let run = |dir: &Path, (half, grain, transactions): Phase| {
        let journal = PRINTED[half].journal;
        tpcc::run(&database(dir, journal), journal, grain, 2, Limit::Transactions(transactions))
    };
    let all = of_djfs()?;
    let measured = |drive, rounds, mounters: &[Mounter], phases: &[Phase]| {
        let bed = Bed::new(drive, mib, journal_mib)?.with_journal_device(drive)?;
        bed.rounds(rounds, mounters, prepare, phases, run)
    };
    let measure = |drive, rounds, names: Option<&[&str]>, phases: &[Phase]| {
        measured(drive, rounds, &names.map_or_else(|| all.clone(), |names| only(&all, names)), phases)
    };
    let fine = phases(Grain::Statement, transactions);
    let fine_of_calibration = phases(Grain::Statement, of_calibration);
    let on_devices = [ORDERED, JOURNAL, EXTERNAL];
    let many = phases(Grain::Statement, in_nvram);
    let with_flush = |drive| {
        let devices = measure(drive, 1, Some(&on_devices), &fine_of_calibration)?;
        Ok::<_, anyhow::Error>([devices, measure(drive, 1, Some(&[DJFS]), &many)?])
    };
    let runs = Runs {
        rounds: measure(DRIVE, rounds_of(effort), None, &fine)?,
        long: measure(DRIVE, rounds_of(effort), Some(&[NVJ, DJFS, DJFS4]), &many)?,
        by_flush: [with_flush(FAST_DRIVE)?, with_flush(SLOW_DRIVE)?],
        free: measure("free", 1, Some(&[DJFS]), &many)?,
        coarse: measure(DRIVE, 1, Some(&on_devices), &phases(Grain::Transaction, of_calibration))?,
    };
    let of_nvram = only(&all, &[NVJ, DJFS]);
    let slow =
        nvram::latencies().map(|ns| measured(DRIVE, rounds_of(effort), &nvram::slower(&of_nvram, ns), &many[..1]));
    let by_latency = ByLatency::of(&runs.rounds, &runs.long, &slow.into_iter().collect::<Result<Vec<_>>>()?);
    let mut f = findings(&runs, &by_latency);
    assume(&mut f, effort, DRIVE);
    assume_sizes(&mut f, divide, journal_mib, transactions, in_nvram);
    assume_external(&mut f);
    Ok(f)
}

/// The figures, and the claims about them.
fn findings(runs: &Runs, by_latency: &ByLatency) -> Findings {
    let mut f = Findings::default();
    for (half, printed) in PRINTED.iter().enumerate() {
        f.figures.extend(figures(runs, half, printed));
        f.figures.extend(calibration(runs, half, printed));
        f.figures.push(by_home(&runs.rounds, half, printed));
        f.claims.extend(of_flushes_in_nvram(runs, half, printed));
    }
    f.figures.push(by_latency.figure());
    let of_rates: Vec<Claim> = of_times_and_bytes(runs).into_iter().chain(by_latency.claims()).collect();
    f.claims.extend(of_flushes_on_devices(&runs.rounds, &of_rates));
    f.claims.extend(of_rates);
    f
}

/// What the runs are of; `in_nvram` are the transactions of which NVRAM's flushes are.
fn assume_sizes(f: &mut Findings, divide: u32, journal_mib: u64, [persist, wal]: [u64; 2], in_nvram: [u64; 2]) {
    f.assume(format!(
        "drive: model samsung840, as in djfs-table1; journals of {journal_mib} MiB; nvj, djfs and djfs4: a \
         file in tmpfs of the same size is the NVRAM (nvram_simulated), as fast as DRAM (the paper: 128 MB of \
         DRAM)",
    ));
    let [persist_in_nvram, wal_in_nvram] = in_nvram;
    f.assume(format!(
        "10 warehouses, each divided by {divide}, pages of 1 KiB, {persist} transactions with PERSIST and {wal} \
         with WAL, one commit to a statement; flushes and rates of nvj, djfs and djfs4 are of {persist_in_nvram} and \
         {wal_in_nvram} transactions",
    ));
    f.assume(
        "rates are of all transactions a second; of the paper's tpmC, New-Orders a minute, so few transactions hold \
         another part than many",
    );
    f.assume(
        "data to the journal are the bytes that reach it on the device but a block of each write, the descriptor or \
         the commit block: NVRAM's are in djfs-table1; a write with FUA is counted as a write and a flush",
    );
    f.assume(
        "printed numbers: a tenth more or less; an fsync without a journal is one flush; figure 9's latency is of each cache line (nvram_latency_ns), in its calibration of each 16 bytes",
    );
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

/// Of each round, in per cent of ordered's of that round.
fn percent(rounds: &Rounds<Report>, name: &str, half: usize, of: fn(&Measured<Report>) -> f64) -> Vec<f64> {
    let (values, ordered) = (rounds.values(name, half, of), rounds.values(ORDERED, half, of));
    values.iter().zip(ordered).map(|(value, ordered)| value / ordered * 100.0).collect()
}

/// Of each round, flushes to a transaction in per cent of ordered's; what is in NVRAM has a longer run.
fn flushed(runs: &Runs, name: &str, half: usize) -> Vec<f64> {
    let long = runs.long.values(name, half, flushes);
    if long.is_empty() {
        return percent(&runs.rounds, name, half, flushes);
    }
    let ordered = runs.rounds.median(ORDERED, half, flushes);
    long.iter().map(|value| value / ordered * 100.0).collect()
}

/// Transactions a second of each round; in NVRAM of many.
fn rates(runs: &Runs, name: &str, half: usize) -> Vec<f64> {
    let long = runs.long.values(name, half, rate);
    if long.is_empty() { runs.rounds.values(name, half, rate) } else { long }
}

fn figures(runs: &Runs, half: usize, printed: &Printed) -> [Figure; 3] {
    let rounds = &runs.rounds;
    let mode = printed.journal.name();
    let y = "% of the kernel's data=ordered";
    let share = |row: usize, what: &str, of: &dyn Fn(&str) -> Vec<f64>| {
        let id = format!("djfs-t1-mounts-{}-{row}", mode.to_lowercase());
        let title = format!("{mode}: {what} to a transaction, {}, mounts", grain(Grain::Statement));
        let mut figure = Figure::bars(&id, "table 1", title, "mount", y).of_series([y]);
        for name in rounds.names() {
            figure.place(name, [point_of_rounds(of(name))]);
        }
        figure
    };
    let mut asked = share(0, "flushes", &|name| flushed(runs, name, half));
    printed.flushes.iter().for_each(|(name, value)| asked.printed(name, y, number(value)));
    let mut bytes = share(1, "data to the journal", &|name| percent(rounds, name, half, logged));
    bytes.printed(JOURNAL, y, number(printed.data));
    bytes.printed(EXTERNAL, y, number(printed.external_data));
    let id = format!("djfs-8-mounts-{}", mode.to_lowercase());
    let title = format!("{mode}: transactions, mounts");
    let speed = Figure::bars(&id, "figure 8", title, "mount", "transactions/s").of_series(["transactions/s"]);
    let mut speed = speed.logarithmic();
    for name in rounds.names() {
        speed.place(name, [point_of_rounds(rates(runs, name, half))]);
    }
    [asked, bytes, speed]
}

/// The slowest of the kernel's modes.
fn slowest(rounds: &Rounds<Report>, half: usize) -> f64 {
    [ORDERED, JOURNAL, EXTERNAL].map(|name| rounds.median(name, half, rate)).into_iter().fold(f64::INFINITY, f64::min)
}

/// DJFS, in many transactions, by the slowest of the kernel's modes.
fn times(devices: &Rounds<Report>, djfs: &Rounds<Report>, half: usize) -> f64 {
    djfs.median(DJFS, half, rate) / slowest(devices, half)
}

impl Runs {
    /// Figure 8's factor.
    fn times(&self, half: usize) -> f64 {
        times(&self.rounds, &self.long, half)
    }

    /// The same on the drives of [`Runs::by_flush`].
    fn times_by_flush(&self, half: usize) -> [f64; 2] {
        self.by_flush.each_ref().map(|[devices, djfs]| times(devices, djfs, half))
    }
}

/// The figures that go with what is assumed, by it.
fn calibration(runs: &Runs, half: usize, printed: &Printed) -> [Figure; 2] {
    let mode = printed.journal.name();
    let figure = |id: &str, of: &str, what: &str, by: &str, y: &str, paper: &str, values: &[(&str, f64)]| {
        let id = format!("djfs-{id}-{}", mode.to_lowercase());
        let title = format!("{mode}: {what}, mounts (calibration)");
        swept(Figure::bars(&id, of, title, by, y), y, number(paper), values)
    };
    let [fast, slow] = runs.times_by_flush(half);
    let drives = [fast, runs.times(half), slow];
    let mut by_flush: Vec<(&str, f64)> = FLUSHES.into_iter().zip(drives).collect();
    by_flush.push(("2, djfs on a drive that takes no time", free_times(runs, half)));
    let by_grain = [(Grain::Statement, &runs.rounds), (Grain::Transaction, &runs.coarse)]
        .map(|(of, rounds)| (grain(of), median(&percent(rounds, JOURNAL, half, logged))));
    let y = "djfs / the slowest of ordered, journal and external";
    let share = "% of the kernel's data=ordered";
    let what = "data to the journal of the kernel's data=journal, by what SQLite commits at once";
    let (factors, paper) = ("factors by a flush of the drive", printed.times);
    [
        figure("8-mounts-flush", "figure 8", factors, "flush, ms", y, paper, &by_flush),
        figure("t1-mounts-grain", "table 1", what, "grain", share, printed.data, &by_grain),
    ]
}

/// What DJFS would be by the slowest of the kernel's modes if its drive took no time.
fn free_times(runs: &Runs, half: usize) -> f64 {
    times(&runs.rounds, &runs.free, half)
}

/// Figure 8's factor, with one flush of the drive for both of SQLite's journals; and what full journaling logs, with
/// what one commit holds.
fn of_times_and_bytes(runs: &Runs) -> Vec<Claim> {
    let of_times = |half: usize, printed: &Printed| {
        Claim::about(
            "figure 8, on mounts",
            &format!("DJFS is up to {} times as fast as ext4 with its journal on a device", printed.times),
            format!("{}: quire djfs / the slowest of kernel ordered, journal and external", printed.journal.name()),
            runs.times(half),
            (printed.times, ABOUT),
        )
    };
    let of_bytes = |half: usize, printed: &Printed| {
        let mode = printed.journal.name();
        [("full", JOURNAL, printed.data), ("external", EXTERNAL, printed.external_data)].map(|(what, name, part)| {
            Claim::about(
                "table 1, on mounts",
                &format!("{what} journaling writes {part} % of ordered's data to the journal"),
                format!("{mode}, {name}: data to the journal, %"),
                median(&percent(&runs.rounds, name, half, logged)),
                (part, ABOUT),
            )
        })
    };
    let halves = || PRINTED.iter().enumerate();
    let why = format!(
        "{OF_FLUSH}; on drives that take no time DJFS would be {} and {} times as fast: calls to the file system's \
         process take the rest",
        shown(free_times(runs, 0)),
        shown(free_times(runs, 1))
    );
    let [persist, wal] = [0, 1].map(|half| runs.times_by_flush(half));
    let by_flush = [0, 1].map(|n| [persist[n], wal[n], persist[n] / wal[n]]);
    let drives = ["a flush of 1 ms".into(), "a flush of 4 ms".into()];
    let severe = Claim::above(
        "figure 8, on mounts",
        "the overhead of journals on devices is particularly severe in the Rollback mode",
        "DJFS' factor with PERSIST / with WAL",
        runs.times(0) / runs.times(1),
        1.0,
    );
    let of_both = halves().map(|(half, printed)| of_times(half, printed)).chain([severe]);
    let mut claims = with_one_row(&why, &drives, of_both, &by_flush);
    let coarse = [0, 1].map(|half| [JOURNAL, EXTERNAL].map(|name| median(&percent(&runs.coarse, name, half, logged))));
    let bytes = halves().flat_map(|(half, printed)| of_bytes(half, printed));
    let grains = [grain(Grain::Transaction).to_owned()];
    claims.extend(with_one_row("what SQLite commits at once is assumed", &grains, bytes, &[coarse.concat()]));
    claims
}

#[cfg(test)]
mod tests {
    use super::super::NONE;
    use super::*;
    use crate::results::Verdict::{Differs, Held, NotHeld};
    use crate::served::Asked;
    use std::time::Duration;

    /// So many transactions, so many a second, with so many flushes in all and blocks in the journal of each.
    #[derive(Clone, Copy)]
    pub(super) struct Run(pub(super) u64, pub(super) f64, pub(super) u64, pub(super) u64);

    pub(super) fn rounds(all: &[(&str, Run)]) -> Rounds<Report> {
        let of = |Run(transactions, rate, flushes, blocks): Run| {
            let took = Duration::from_secs_f64(float(transactions) / rate);
            let committed = [transactions, 0, 0, 0, 0];
            let mut asked = Asked { journal_writes: 2 * transactions, ..Asked::default() };
            // A descriptor and a commit block besides.
            asked.journal_bytes = transactions * (blocks + 2) * JOURNAL_BLOCK;
            asked.flushes = flushes;
            Measured { of: Report { committed, rolled_back: 0, took }, asked, seconds: took.as_secs_f64() }
        };
        let both = |(name, run): &(&str, Run)| ((*name).to_owned(), vec![vec![of(*run), of(*run)]]);
        Rounds::of(all.iter().map(both).collect())
    }

    /// Three modes of the kernel's and DJFS, which is so many times as fast as the slowest.
    pub(super) fn series(times: f64, blocks: u64) -> [(&'static str, Run); 5] {
        let of = |rate, flushes, blocks| Run(1000, rate, flushes, blocks);
        [
            (NONE, of(3.0, 500, 0)),
            (ORDERED, of(2.0, 1000, 10)),
            (JOURNAL, of(1.0, 1000, blocks)),
            (EXTERNAL, of(1.5, 1000, blocks)),
            (DJFS, of(times, 0, 0)),
        ]
    }

    pub(super) fn runs(times: [f64; 3], blocks: [u64; 2], long: &[(&str, Run)]) -> Runs {
        let on = |times| [rounds(&series(times, blocks[0])), rounds(&series(times, 0)[4..])];
        let ([here, djfs], by_flush) = (on(times[0]), [on(times[1]), on(times[2])]);
        let (free, coarse) = (rounds(&series(500.0, 0)), rounds(&series(1.0, blocks[1])));
        let long = if long.is_empty() { djfs } else { rounds(long) };
        Runs { rounds: here, long, by_flush, free, coarse }
    }

    #[test]
    fn flushes_of_what_is_in_nvram_are_of_the_long_run_and_the_others_of_the_rounds() {
        let runs = runs([50.0; 3], [30; 2], &[(NVJ, Run(2000, 100.0, 20, 0))]);
        let of = |name| median(&flushed(&runs, name, 0));
        assert!((of(NVJ) - 1.0).abs() < 1e-9, "{}", of(NVJ));
        assert!((of(JOURNAL) - 100.0).abs() < 1e-9, "{}", of(JOURNAL));
        assert!(of(DJFS).abs() < 1e-9, "the rounds have none");
    }

    #[test]
    fn factors_have_one_flush_for_both_journals_and_bytes_what_one_commit_holds() {
        let of = |times, blocks| {
            let claims = of_times_and_bytes(&runs(times, blocks, &[]));
            claims.into_iter().map(|claim| claim.verdict).collect::<Vec<_>>()
        };
        // 64.2 and 26.5; 297.4 and 298.2, then 313.3 and 312.6.
        assert_eq!(of([64.2, 1.0, 1.0], [30, 30]), [Held, NotHeld, NotHeld, Held, Held, Held, Held]);
        assert_eq!(of([40.0, 20.0, 64.0], [30, 30])[..2], [Differs, NotHeld], "a flush of 4 ms has the first");
        assert_eq!(of([90.0, 90.0, 26.0], [30, 30])[..2], [NotHeld, Differs], "and here the second");
        assert_eq!(of([90.0; 3], [50, 30])[3..], [Differs; 4], "a commit for each transaction");
        assert_eq!(of([90.0; 3], [50, 50])[3..], [NotHeld; 4]);
    }

    #[test]
    fn rates_of_what_is_in_nvram_are_of_the_long_run() {
        let long = [(DJFS, Run(2000, 80.0, 0, 0))];
        let runs = runs([50.0; 3], [30; 2], &long);
        let near = |value: f64, expected: f64| (value / expected - 1.0).abs() < 1e-6;
        assert!(near(runs.times(0), 80.0) && near(runs.times_by_flush(0)[0], 50.0), "{}", runs.times(0));
        assert!(near(rates(&runs, DJFS, 0)[0], 80.0) && near(rates(&runs, ORDERED, 0)[0], 2.0));
    }
}
