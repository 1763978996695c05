//! What DJFS' TPC-C on SQLite makes a journal do (table 1), and how fast it is (figure 8), on mounts: flushes and bytes
//! to the journal for each transaction, in parts of the kernel's `data=ordered`.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::bed::{Bed, Measured, Rounds};
use super::{DJFS_JOURNAL_MIB, JOURNAL, OF_DJFS, ORDERED, assume, mounters, point_of_rounds, rounds_of};
use crate::results::{Claim, Effort, Figure, Findings};
use crate::stats::{float, median};
use crate::work::tpcc::{self, Grain, Journal, Limit, Report, Scale};

/// What the paper has of one of SQLite's journals.
struct Printed {
    journal: Journal,
    /// Table 1, in per cent of ordered's: flushes by series.
    flushes: [(&'static str, &'static str); 4],
    /// The same: what full journaling logs of data.
    data: &'static str,
    /// Figure 8: DJFS by the slowest of the journals on devices.
    times: &'static str,
}

const PRINTED: [Printed; 2] = [
    Printed {
        journal: Journal::Persist,
        flushes: [(JOURNAL, "99.2"), ("quire nvj", "0.4"), ("quire djfs", "0.003"), ("quire djfs4", "0.006")],
        data: "297.4",
        times: "64.2",
    },
    Printed {
        journal: Journal::Wal,
        flushes: [(JOURNAL, "99.3"), ("quire nvj", "1.3"), ("quire djfs", "0.02"), ("quire djfs4", "0.03")],
        data: "313.3",
        times: "26.5",
    },
];

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
    let transactions = effort.pick([20, 30], [25, 50], [100, 300]);
    let scale = Scale { page: 1024, ..Scale::divided(10, divide) };
    let memory = Path::new("/dev/shm");
    let loaded = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
    let db = loaded.path().join("loaded.db");
    tpcc::load(&db, Journal::Delete, scale, 1)?;
    let bed = Bed::new("samsung840", 512 + (fs::metadata(&db)?.len() >> 20) * 3, DJFS_JOURNAL_MIB)?;
    let prepare = |dir: &Path| PRINTED.iter().try_for_each(|p| Ok(fs::copy(&db, database(dir, p.journal)).map(drop)?));
    let run = |dir: &Path, half: usize| {
        let journal = PRINTED[half].journal;
        tpcc::run(&database(dir, journal), journal, Grain::Statement, 2, Limit::Transactions(transactions[half]))
    };
    let rounds = bed.rounds(rounds_of(effort), &mounters(&OF_DJFS)?, prepare, &[0, 1], run)?;
    let mut f = Findings::default();
    for (half, printed) in PRINTED.iter().enumerate() {
        f.figures.extend(figures(&rounds, half, printed));
        f.claims.extend(claims(&rounds, half, printed));
    }
    assume(&mut f, effort);
    f.assume(format!(
        "drive: model samsung840, as in djfs-table1; journals of {DJFS_JOURNAL_MIB} MiB; nvj, djfs and djfs4: a file in tmpfs \
         of the same size is the NVRAM (nvram_simulated), as fast as DRAM (the paper: 128 MB of DRAM)",
    ));
    let [persist, wal] = transactions;
    f.assume(format!(
        "10 warehouses, each divided by {divide}, pages of 1 KiB, {persist} transactions with PERSIST and {wal} with WAL, \
         one commit to a statement: so few fill hardly a region of the NVRAM, whose flush the paper shares among them",
    ));
    f.assume(
        "bytes to the journal have its descriptors and commits with them, where the paper has data alone, and count what \
         reaches the device: NVRAM's are in djfs-table1; a write with FUA is counted as a write and a flush",
    );
    f.assume("quire ext4-journal: an fsync writes home what earlier transactions hold of the file (checkpoint=fsync)");
    f.skipped.push("external journaling (table 1 and figure 8): the study has one device".into());
    Ok(f)
}

fn flushes(m: &Measured<Report>) -> f64 {
    float(m.asked.flushes) / float(m.of.transactions())
}

fn logged(m: &Measured<Report>) -> f64 {
    float(m.asked.journal_bytes) / float(m.of.transactions())
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
    let mut bytes = share(1, "bytes to the journal", logged);
    bytes.printed(JOURNAL, y, number(printed.data));
    let id = format!("djfs-8-mounts-{}", mode.to_lowercase());
    let title = format!("{mode}: transactions, mounts");
    let speed = Figure::bars(&id, "figure 8", title, "mount", "transactions/s").of_series(["transactions/s"]);
    [asked, bytes, rounds.drawn(speed.logarithmic(), &[half], rate)]
}

fn claims(rounds: &Rounds<Report>, half: usize, printed: &Printed) -> Vec<Claim> {
    let mode = printed.journal.name();
    let rate_of = |name| rounds.median(name, half, rate);
    let mut claims = vec![
        Claim::at_least(
            "figure 8, on mounts",
            &format!("DJFS is up to {} times as fast as ext4 with its journal on a device", printed.times),
            format!("{mode}: quire djfs / the slower of kernel ordered and kernel journal"),
            rate_of("quire djfs") / rate_of(ORDERED).min(rate_of(JOURNAL)),
            printed.times,
        ),
        Claim::at_least(
            "table 1, on mounts",
            &format!("full journaling writes {} % of ordered's data to the journal", printed.data),
            format!("{mode}, kernel journal: bytes to the journal, %"),
            median(&percent(rounds, JOURNAL, half, logged)),
            printed.data,
        ),
    ];
    claims.extend(printed.flushes.iter().map(|(name, value)| {
        let says = format!("flushes: {value} % of ordered's");
        let what = format!("{mode}, {name}: flushes, %");
        Claim::at_most("table 1, on mounts", &says, what, median(&percent(rounds, name, half, flushes)), *value)
    }));
    claims
}
