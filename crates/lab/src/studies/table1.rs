//! DJFS, table 1: what TPC-C on SQLite makes a journal do. Flushes, FUA writes, journal metadata and journal data for
//! each way to keep it, as percentages of an ext4 in ordered mode, each for a transaction. On the library and the
//! modelled Samsung 840 ([`super::tpcc`]), where an fsync takes its time: on a device that is too fast many find the
//! times of the inode unchanged, and ordered mode commits nothing.
//!
//! "Journal metadata" is the journal's superblock, descriptors, revokes and commits; "data" every other byte of the
//! log. Ordered mode's has no file data. SQLite's pages are of 1 KiB, as they were then; with 4 KiB a block changes as
//! a whole more often.

use std::time::Duration;

use anyhow::Result;
use quire_testkit::Model;

use super::tpcc::{Loaded, Outcome, Plan, grain};
use super::ways::{self, Way};
use crate::results::{Claim, Figure, Findings};
use crate::stats::float;
use crate::work::tpcc::Journal;

/// A way to keep the journal, and what the paper has (in the order of [`ROWS`]) for PERSIST and WAL.
type Column = (Way, [[f64; 4]; 2]);

const COLUMNS: [Column; 6] = [
    (ways::ORDERED, [[100.0; 4], [100.0; 4]]),
    (ways::JOURNAL, [[99.2, 99.3, 99.3, 297.4], [99.3, 100.0, 100.0, 313.3]]),
    (ways::EXTERNAL, [[99.5, 99.6, 99.5, 298.2], [99.3, 100.0, 100.0, 312.6]]),
    (ways::NVJ, [[0.4, 0.0, 104.6, 239.8], [1.3, 0.0, 103.7, 274.6]]),
    (ways::DJFS, [[0.003, 0.0, 2.1, 33.7], [0.02, 0.0, 2.6, 93.4]]),
    (ways::DJFS4, [[0.006, 0.0, 2.1, 35.0], [0.03, 0.0, 2.7, 101.1]]),
];

/// The paper's average delta, in per cent of a block, for PERSIST and WAL.
const PRINTED_DELTA: [f64; 2] = [6.7, 22.1];

/// What is counted.
const ROWS: [&str; 4] = ["flushes", "FUA writes", "journal metadata", "journal data"];

/// The row of what is logged beside the journal's metadata.
const DATA: usize = 3;
/// Bytes of a block.
const BLOCK: u64 = 4096;

/// Of one run, for each transaction.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Counts {
    /// In the order of [`ROWS`]; the last two in bytes.
    rows: [f64; 4],
    /// The average delta, in per cent of a block.
    delta: f64,
}

impl Counts {
    fn of(o: &Outcome) -> Self {
        let [before, after] = &o.journal;
        let (metadata, data, deltas) = match (&before.nvram, &after.nvram) {
            (Some(b), Some(a)) => {
                let metadata = a.metadata_bytes - b.metadata_bytes + o.traffic.journal;
                (metadata, a.data_bytes - b.data_bytes, a.delta_bytes - b.delta_bytes)
            }
            _ => {
                let data = (after.blocks - before.blocks) * BLOCK;
                (o.traffic.journal.saturating_sub(data), data, 0)
            }
        };
        let records = (after.delta_records - before.delta_records) * BLOCK;
        let each = float(o.report.transactions());
        Counts {
            rows: [o.traffic.flushes, o.traffic.fua, metadata, data].map(|n| float(n) / each),
            delta: share(float(deltas), float(records)),
        }
    }
}

fn share(part: f64, whole: f64) -> f64 {
    if part == 0.0 { 0.0 } else { part / whole * 100.0 }
}

/// Both halves of the table.
///
/// # Errors
/// A file system or SQLite failed.
pub fn study(plan: &Plan) -> Result<Findings> {
    let loaded = Loaded::new(plan)?;
    let mut f = plan.assumed();
    for journal in plan.journals.iter().copied() {
        let half = usize::from(journal == Journal::Wal);
        let run = |(way, _): &Column| {
            let outcome = loaded.run(*way, Model::samsung_840(), Duration::ZERO, journal, plan)?;
            Ok::<_, anyhow::Error>(Counts::of(&outcome))
        };
        let counted: Vec<Counts> = COLUMNS.iter().map(run).collect::<Result<_>>()?;
        let percent = |n: usize, row: usize| share(counted[n].rows[row], counted[0].rows[row]);
        let mode = journal.name();
        for (row, name) in ROWS.iter().enumerate() {
            let id = format!("djfs-t1-{}-{row}", mode.to_lowercase());
            let title = format!("{mode}: {name}, {}", grain(plan.grain));
            let mut figure =
                Figure::bars(&id, "table 1", title, "journal", "% of ext4-ordered").of_series(["% of ext4-ordered"]);
            for (n, (way, paper)) in COLUMNS.iter().enumerate() {
                figure.place(way.name, [percent(n, row)]);
                figure.printed(way.name, "% of ext4-ordered", paper[half][row]);
            }
            f.figures.push(figure);
        }
        for name in ["djfs", "djfs4"] {
            let n = COLUMNS.iter().position(|(way, _)| way.name == name).expect("a column");
            for (row, what) in ROWS.iter().enumerate() {
                let printed = COLUMNS[n].1[half][row];
                let says = format!("{what}: {printed} % of ordered's");
                let what = format!("{mode}, {name}: {what}, %");
                let claim = Claim::at_most("table 1", &says, what, percent(n, row), printed);
                f.claims.push(if printed > 0.0 { claim.as_printed() } else { claim }.because(CAUSE));
            }
            let says = format!("the average delta is {} % of a block", PRINTED_DELTA[half]);
            let what = format!("{mode}, {name}: average delta, %");
            f.claims.push(Claim::at_most("table 1", &says, what, counted[n].delta, PRINTED_DELTA[half]).as_printed());
        }
        for name in ["ext4-journal", "external"] {
            let n = COLUMNS.iter().position(|(way, _)| way.name == name).expect("a column");
            let printed = COLUMNS[n].1[half][DATA];
            let says = format!("full journaling writes {printed} % of ordered's data to the journal");
            let what = format!("{mode}, {name}: journal data, %");
            let claim = Claim::at_least("table 1", &says, what, percent(n, DATA), printed);
            f.claims.push(claim.as_printed().because(PAGES));
        }
        let nvj = COLUMNS.iter().position(|(way, _)| way.name == "nvj").expect("a column");
        let printed = COLUMNS[nvj].1[half][0];
        let says = format!("journaling in NVRAM alone leaves {printed} % of the flushes");
        let what = format!("{mode}, nvj: flushes, %");
        f.claims.push(Claim::at_most("table 1", &says, what, percent(nvj, 0), printed).as_printed().because(CAUSE));
    }
    f.assume(
        "an external journal's flushes are counted, too: 200 % where the paper, which counts one device, has 99.5 %",
    );
    Ok(f)
}

/// Why a share may be another than the paper's.
const CAUSE: &str =
    "a region's flush is shared by all transactions that fit into it: a short run or a smaller journal has few regions";
/// Why full journaling's multiple may be another.
const PAGES: &str = "it follows SQLite's page size and how many statements share a commit, which are assumptions";
