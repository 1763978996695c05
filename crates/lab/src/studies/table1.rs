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

use super::claims::{self, Claim};
use super::tpcc::{Loaded, Outcome, Plan, grain};
use super::ways::{self, Way};
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

/// The limits for `djfs` and `djfs4`, PERSIST and WAL, in the order of [`ROWS`].
const LIMITS: [(&str, [[f64; 4]; 2]); 2] = [
    ("djfs", [[0.003, 0.0, 3.0, 34.0], [0.02, 0.0, 3.0, 94.0]]),
    ("djfs4", [[0.006, 0.0, 3.0, 35.0], [0.03, 0.0, 3.0, 102.0]]),
];
/// Largest average delta, in per cent of a block.
const LARGEST_DELTA: [f64; 2] = [7.0, 23.0];

/// What is counted.
const ROWS: [&str; 4] = ["flushes", "FUA writes", "journal metadata", "journal data"];

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

/// Prints both halves of the table, and the claims; returns how many are not held.
///
/// # Errors
/// A file system or SQLite failed.
pub fn study(plan: &Plan) -> Result<usize> {
    let loaded = Loaded::new(plan)?;
    let mut missed = 0;
    for journal in plan.journals.iter().copied() {
        let half = usize::from(journal == Journal::Wal);
        let run = |(way, _): &Column| {
            Ok::<_, anyhow::Error>(Counts::of(&loaded.run(
                *way,
                Model::samsung_840(),
                Duration::ZERO,
                journal,
                plan,
            )?))
        };
        let counted: Vec<Counts> = COLUMNS.iter().map(run).collect::<Result<_>>()?;
        println!(
            "\nDJFS, table 1, SQLite in {journal:?} mode, {}: % of ext4-ordered (the paper's)\n",
            grain(plan.grain)
        );
        println!("| | {} |", COLUMNS.map(|(way, _)| way.name).join(" | "));
        println!("|---|{}", "---|".repeat(COLUMNS.len()));
        let percent = |n: usize, row: usize| share(counted[n].rows[row], counted[0].rows[row]);
        for (row, name) in ROWS.iter().enumerate() {
            let cells: Vec<String> = (COLUMNS.iter().enumerate())
                .map(|(n, (_, paper))| format!("{:.3} ({})", percent(n, row), paper[half][row]))
                .collect();
            println!("| {name} | {} |", cells.join(" | "));
        }
        let [flushes, fua, metadata, data] = counted[0].rows;
        println!(
            "\next4-ordered, for a transaction: {flushes:.1} flushes, {fua:.1} FUA writes, {:.2} and {:.2} KB to the journal",
            metadata / 1e3,
            data / 1e3
        );
        let mut claims = Vec::new();
        for (name, limits) in LIMITS {
            let n = COLUMNS.iter().position(|(way, _)| way.name == name).expect("a column");
            for (row, what) in ROWS.iter().enumerate() {
                claims.push(Claim::at_most(format!("{name}, {what}"), percent(n, row), limits[half][row]));
            }
            let what = format!("{name}, average delta in % of a block");
            claims.push(Claim::at_most(what, counted[n].delta, LARGEST_DELTA[half]));
        }
        missed += claims::print(&format!("table 1, {journal:?}"), &claims);
    }
    Ok(missed)
}
