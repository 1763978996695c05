//! DJFS, table 1: what TPC-C on SQLite makes a journal do. Flushes, FUA writes, journal metadata and journal data for each way to keep it, as
//! percentages of an ext4 in ordered mode. All are counts of one mount, by Quire's own counters; how fast the machine is does not matter.
//!
//! "Journal metadata" is the journal's superblock, descriptors, revokes and commits; "data" every other byte of the log. Ordered mode's has no
//! file data. SQLite's pages are of 1 KiB, as they were then; with 4 KiB a block changes as a whole more often.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use quire_layout::superblock;
use serde_json::Value;

use super::claims::{self, Claim};
use crate::cmd::{command, quire, run, text};
use crate::image::Image;
use crate::mounter::{Mounted, Mounter};
use crate::rig::bind;
use crate::stats::float;
use crate::work::tpcc::{self, Journal, Limit, Scale};

/// What is measured.
#[derive(Debug, Clone)]
pub struct Plan {
    pub scale: Scale,
    pub transactions: u64,
    /// Size of the image, in MiB.
    pub mib: u64,
    /// Size of every journal, in MiB.
    pub journal_mib: u64,
    /// Where images are made.
    pub work: PathBuf,
    /// Where a simulated NVRAM is made.
    pub memory: PathBuf,
}

/// A way to keep the journal: its name, the profile, where the journal is, and what the paper has (in the order of [`ROWS`]) for PERSIST
/// and WAL.
struct Column {
    name: &'static str,
    profile: &'static str,
    kind: Kind,
    paper: [[f64; 4]; 2],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Internal,
    External,
    Nvram,
}

const fn column(name: &'static str, profile: &'static str, kind: Kind, paper: [[f64; 4]; 2]) -> Column {
    Column { name, profile, kind, paper }
}

const COLUMNS: [Column; 6] = [
    column("ext4-ordered", "ext4-ordered", Kind::Internal, [[100.0; 4], [100.0; 4]]),
    column("ext4-journal", "ext4-journal", Kind::Internal, [[99.2, 99.3, 99.3, 297.4], [99.3, 100.0, 100.0, 313.3]]),
    column("external", "ext4-journal", Kind::External, [[99.5, 99.6, 99.5, 298.2], [99.3, 100.0, 100.0, 312.6]]),
    column("nvj", "nvj", Kind::Nvram, [[0.4, 0.0, 104.6, 239.8], [1.3, 0.0, 103.7, 274.6]]),
    column("djfs", "djfs", Kind::Nvram, [[0.003, 0.0, 2.1, 33.7], [0.02, 0.0, 2.6, 93.4]]),
    column("djfs4", "djfs4", Kind::Nvram, [[0.006, 0.0, 2.1, 35.0], [0.03, 0.0, 2.7, 101.1]]),
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

/// Counts of one run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Counts {
    /// In the order of [`ROWS`]; the last two in bytes.
    rows: [u64; 4],
    delta_records: u64,
    delta_bytes: u64,
}

impl Counts {
    /// What the counters of a mount say.
    fn of(stats: &Value, block: u64) -> Self {
        let number = |v: &Value| v.as_u64().unwrap_or(0);
        let devices: Vec<&Value> = stats["devices"].as_object().into_iter().flat_map(|all| all.values()).collect();
        let regions = || devices.iter().filter_map(|d| d["regions"].as_object()).flatten();
        let flushes = devices.iter().map(|d| number(&d["flushes"]["count"])).sum();
        let fua = regions().map(|(_, r)| number(&r["fua"]["count"])).sum();
        let journal = &stats["journal"];
        let nvram = &journal["nvram"];
        let (metadata, data) = if nvram.is_object() {
            (number(&nvram["metadata_bytes"]), number(&nvram["data_bytes"]))
        } else {
            let log: u64 =
                regions().filter(|(name, _)| name.starts_with("log")).map(|(_, r)| number(&r["writes"]["bytes"])).sum();
            let data = number(&journal["blocks"]) * block;
            (log.saturating_sub(data), data)
        };
        Counts {
            rows: [flushes, fua, metadata, data],
            delta_records: number(&journal["delta_records"]),
            delta_bytes: number(&nvram["delta_bytes"]),
        }
    }

    fn since(self, before: Self) -> Self {
        let rows = std::array::from_fn(|i| self.rows[i] - before.rows[i]);
        Counts {
            rows,
            delta_records: self.delta_records - before.delta_records,
            delta_bytes: self.delta_bytes - before.delta_bytes,
        }
    }
}

/// Prints both halves of the table, and the claims.
///
/// # Errors
/// A mount or the workload fails.
pub fn print(plan: &Plan) -> Result<usize> {
    let mut missed = 0;
    for (half, journal) in [Journal::Persist, Journal::Wal].into_iter().enumerate() {
        let mut counted = Vec::new();
        for column in &COLUMNS {
            let counts = measure(plan, column, journal).with_context(|| format!("{} with {journal:?}", column.name))?;
            counted.push(counts);
        }
        println!("\nTable 1, SQLite in {journal:?} mode, % of ext4-ordered (the paper's in brackets):");
        print!("{:<18}", "");
        COLUMNS.iter().for_each(|c| print!("{:>20}", c.name));
        println!();
        let percent = |n: usize, row: usize| share(counted[n].rows[row], counted[0].rows[row]);
        for (row, name) in ROWS.iter().enumerate() {
            print!("{name:<18}");
            for (n, column) in COLUMNS.iter().enumerate() {
                print!("{:>20}", format!("{:.3} ({})", percent(n, row), column.paper[half][row]));
            }
            println!();
        }
        let mut claims = Vec::new();
        for (name, limits) in LIMITS {
            let n = COLUMNS.iter().position(|c| c.name == name).expect("a column");
            for (row, what) in ROWS.iter().enumerate() {
                claims.push(Claim::at_most(format!("{name}, {what}"), percent(n, row), limits[half][row]));
            }
            let delta = share(counted[n].delta_bytes, counted[n].delta_records * u64::from(BLOCK));
            claims.push(Claim::at_most(format!("{name}, average delta in % of a block"), delta, LARGEST_DELTA[half]));
        }
        missed += claims::print(&format!("table 1, {journal:?}"), &claims);
    }
    Ok(missed)
}

/// Bytes of a block.
const BLOCK: u32 = 4096;

fn share(part: u64, whole: u64) -> f64 {
    if part == 0 { 0.0 } else { float(part) / float(whole) * 100.0 }
}

fn measure(plan: &Plan, column: &Column, journal: Journal) -> Result<Counts> {
    let dir = tempfile::tempdir_in(&plan.work)?;
    let memory = tempfile::tempdir_in(&plan.memory)?;
    let block = BLOCK.to_string();
    let size = format!("size={}", plan.journal_mib);
    let image = Image::make(&dir.path().join("image"), plan.mib << 20, &["-b", &block, "-J", &size])?;
    let profile = Mounter::quire(&format!("profile={}", column.profile));
    let mounter = match column.kind {
        Kind::Internal => profile,
        Kind::External => {
            let log = external(&image, dir.path(), plan.journal_mib)?;
            profile.with(&format!("journal_path={}", text(&log)))
        }
        Kind::Nvram => {
            let nvram = memory.path().join("nvram");
            profile.with(&format!("nvram={},nvram_simulated,nvram_size={}M", text(&nvram), plan.journal_mib))
        }
    };
    let mounted = mounter.mount(image.path(), &dir.path().join("mnt"))?;
    let db = mounted.dir().join("tpcc.db");
    tpcc::load(&db, journal, plan.scale, 1)?;
    let before = counts(&mounted)?;
    tpcc::run(&db, journal, 2, Limit::Transactions(plan.transactions))?;
    let counts = counts(&mounted)?.since(before);
    tpcc::check(&db)?;
    mounted.unmount()?;
    if column.kind != Kind::External {
        image.check_clean()?;
    }
    Ok(counts)
}

/// An image whose journal is a file of its own, and that file.
fn external(image: &Image, dir: &Path, mib: u64) -> Result<PathBuf> {
    let log = dir.join("log");
    let mut mke2fs = command("mke2fs");
    mke2fs.args(["-q", "-F", "-b", &BLOCK.to_string(), "-O", "journal_dev", text(&log)]);
    run(mke2fs.arg(format!("{mib}M")))?;
    run(command("tune2fs").args(["-O", "^has_journal", text(image.path())]))?;
    let head = |file: &File| -> Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(superblock::OFFSET)? + superblock::SIZE];
        file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    };
    let fs = File::options().read(true).write(true).open(image.path())?;
    let mut bytes = head(&fs)?;
    bind(&mut bytes, &head(&File::open(&log)?)?)?;
    fs.write_all_at(&bytes, 0)?;
    Ok(fs::canonicalize(log)?)
}

fn counts(mounted: &Mounted) -> Result<Counts> {
    let said = run(Command::new(quire()?).args(["stats", "--json"]).arg(mounted.dir()))?;
    Ok(Counts::of(&serde_json::from_str(&said)?, u64::from(BLOCK)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_the_counters_say_is_sorted_into_the_papers_rows() {
        let region = |writes: u64, fua: u64| json!({"writes": {"count": 9, "bytes": writes}, "fua": {"count": fua}});
        let fs = json!({"regions": {"log": region(40_960, 2), "log superblock": region(4096, 1), "data": region(77, 0)},
            "flushes": {"count": 5}});
        let stats = json!({"devices": {"fs": fs, "journal": {"regions": {}, "flushes": {"count": 1}}},
            "journal": {"blocks": 7}});
        let counts = Counts::of(&stats, 4096);
        assert_eq!(counts.rows, [6, 3, 45_056 - 28_672, 28_672]);
        let stats = json!({"devices": {}, "journal": {"blocks": 7, "delta_records": 3,
            "nvram": {"metadata_bytes": 10, "data_bytes": 20, "delta_bytes": 12}}});
        let nvram = Counts::of(&stats, 4096);
        assert_eq!(nvram, Counts { rows: [0, 0, 10, 20], delta_records: 3, delta_bytes: 12 });
        assert_eq!(nvram.since(nvram), Counts::default());
    }
}
