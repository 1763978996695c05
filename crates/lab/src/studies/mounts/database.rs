//! What DJFS' TPC-C on SQLite makes a journal do (table 1), on mounts: flushes and bytes to the journal for each
//! transaction, in parts of the kernel's `data=ordered`.

use std::fs;
use std::path::Path;

use anyhow::Result;

use super::{ASSUMED, Bed, Measured, mounters};
use crate::results::{Effort, Figure, Findings};
use crate::stats::float;
use crate::work::tpcc::{self, Grain, Journal, Limit, Report, Scale};

const DATABASE: &str = "tpcc.db";
/// The mount that the others are compared with.
const ORDERED: usize = 1;
/// Of the paper's table 1, PERSIST and WAL: flushes and journal data of full journaling, in per cent of ordered's.
const FULL: [[f64; 2]; 2] = [[99.2, 297.4], [99.3, 313.3]];

/// Table 1.
///
/// # Errors
/// A file system or SQLite failed.
pub fn study(effort: Effort) -> Result<Findings> {
    let (divide, transactions) = (effort.pick(20, 10, 1), effort.pick(30, 100, 500));
    let scale = Scale { page: 1024, ..Scale::divided(10, divide) };
    let memory = Path::new("/dev/shm");
    let loaded = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
    let db = loaded.path().join(DATABASE);
    tpcc::load(&db, Journal::Delete, scale, 1)?;
    let bed = Bed::new("samsung840", 512 + (fs::metadata(&db)?.len() >> 20) * 3 / 2, 32)?;
    let mut f = Findings::default();
    for (half, journal) in [Journal::Persist, Journal::Wal].into_iter().enumerate() {
        let mounters = mounters(&["profile=ext4-ordered", "profile=ext4-journal", "profile=auto"])?;
        let run = |dir: &Path| {
            tpcc::run(&dir.join(DATABASE), journal, Grain::Statement, 2, Limit::Transactions(transactions))
        };
        let measured: Vec<Measured<Report>> = mounters
            .iter()
            .map(|m| bed.measure(m, |dir| Ok(fs::copy(&db, dir.join(DATABASE)).map(drop)?), run))
            .collect::<Result<_>>()?;
        let mode = journal.name();
        let percent = |of: fn(&Measured<Report>) -> u64| -> Vec<f64> {
            let each = |m: &Measured<Report>| float(of(m)) / float(m.of.transactions());
            measured.iter().map(|m| each(m) / each(&measured[ORDERED]) * 100.0).collect()
        };
        let rows: [(&str, Vec<f64>); 2] =
            [("flushes", percent(|m| m.asked.flushes)), ("bytes to the journal", percent(|m| m.asked.journal_bytes))];
        for (row, (what, values)) in rows.into_iter().enumerate() {
            let id = format!("djfs-t1-mounts-{}-{row}", mode.to_lowercase());
            let title = format!("{mode}: {what} to a transaction, mounts");
            let y = "% of the kernel's data=ordered";
            let mut figure = Figure::bars(&id, "table 1", title, "mount", y).of_series([y]);
            for (mounter, value) in mounters.iter().zip(values) {
                figure.place(mounter, [value]);
            }
            figure.printed("kernel:data=journal", y, FULL[half][row]);
            f.figures.push(figure);
        }
        let title = format!("{mode}: transactions, mounts");
        let id = format!("djfs-8-mounts-{}", mode.to_lowercase());
        let mut rate = Figure::bars(&id, "figure 8", title, "mount", "transactions/s").of_series(["transactions/s"]);
        for (mounter, m) in mounters.iter().zip(&measured) {
            rate.place(mounter, [m.of.rate()]);
        }
        f.figures.push(rate);
    }
    f.assume(ASSUMED);
    f.assume(format!(
        "10 warehouses, each divided by {divide}, pages of 1 KiB, {transactions} transactions, one commit to a statement; \
         bytes to the journal have its descriptors and commits with them, where the paper has data alone; a journal of \
         32 MiB; the kernel's data=journal goes home at fsync"
    ));
    Ok(f)
}
