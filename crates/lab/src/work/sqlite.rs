//! The SQLite cases of JoJ (FAST '14, section 3.1): a table of an integer key and 100 characters; insert, update and
//! delete of all rows, the last two in random order; by one operation and by a thousand to a transaction; with a
//! write-ahead log and with a rollback journal.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rusqlite::Connection;

use quire_testkit::rng::Rng;

/// How SQLite protects its transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    Wal,
    /// A rollback journal, deleted at each commit.
    Delete,
    /// None: no journal, nothing synchronous (JoJ, figure 4).
    None,
}

impl Protection {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Protection::Wal => "wal",
            Protection::Delete => "delete",
            Protection::None => "none",
        }
    }

    fn pragmas(self) -> [(&'static str, &'static str); 2] {
        match self {
            Protection::Wal => [("journal_mode", "wal"), ("synchronous", "full")],
            Protection::Delete => [("journal_mode", "delete"), ("synchronous", "full")],
            Protection::None => [("journal_mode", "off"), ("synchronous", "off")],
        }
    }
}

/// What is done to each row.
pub const STEPS: [&str; 3] = ["insert", "update", "delete"];

/// Characters of a value.
const VALUE: usize = 100;

/// The database, and what SQLite may put beside it.
pub const DATABASE: &str = "cases.db";
pub const SUFFIXES: [&str; 4] = ["", "-wal", "-shm", "-journal"];

/// A page of a database by SQLite's default since 3.12, in bytes, and by that of JoJ's SQLite (3.8).
pub const PAGE: u32 = 4096;
pub const PAGE_OF_2013: u32 = 1024;

/// What is done in three steps, one for each of [`STEPS`].
#[derive(Clone, Copy, Debug)]
pub struct Load {
    pub protection: Protection,
    /// Of a transaction.
    pub operations: u64,
    pub rows: u64,
    /// Bytes of a page of the database.
    pub page: u32,
}

/// Milliseconds a transaction of each step, on a fresh database in `dir`.
///
/// # Errors
/// SQLite's, or the file system's under it.
pub fn run(dir: &Path, load: Load) -> Result<[f64; 3]> {
    for suffix in SUFFIXES {
        let path = dir.join(format!("{DATABASE}{suffix}"));
        if path.exists() {
            std::fs::remove_file(path)?;
        }
    }
    let start = Instant::now();
    run_on(&Connection::open(dir.join(DATABASE))?, load, &|| start.elapsed())
}

/// As [`run`], on an empty database, by a clock.
///
/// # Errors
/// As [`run`].
pub fn run_on(db: &Connection, load: Load, now: &dyn Fn() -> Duration) -> Result<[f64; 3]> {
    let Load { protection, operations, rows, page } = load;
    db.pragma_update(None, "page_size", page)?;
    for (name, value) in protection.pragmas() {
        db.pragma_update(None, name, value)?;
    }
    db.execute_batch("create table t(k integer primary key, v text)")?;
    let mut rng = Rng::from_parts(&[1, rows]);
    let mut keys: Vec<u64> = (0..rows).collect();
    let mut times = [0.0; 3];
    for (step, time) in times.iter_mut().enumerate() {
        if step > 0 {
            shuffle(&mut keys, &mut rng);
        }
        let start = now();
        let mut transactions = 0;
        for group in keys.chunks(usize::try_from(operations)?) {
            transaction(db, step, group, &mut rng)?;
            transactions += 1;
        }
        *time = now().saturating_sub(start).as_secs_f64() * 1e3 / f64::from(transactions);
    }
    let left: u64 = db.query_row("select count(*) from t", [], |row| row.get(0))?;
    ensure!(left == 0, "{left} rows are left after all were deleted");
    let verdict: String = db.query_row("pragma integrity_check", [], |row| row.get(0))?;
    ensure!(verdict == "ok", "integrity_check: {verdict}");
    Ok(times)
}

fn transaction(db: &Connection, step: usize, keys: &[u64], rng: &mut Rng) -> Result<()> {
    db.execute_batch("begin")?;
    for k in keys {
        let value = format!("{:0VALUE$}", rng.below(1_000_000_000));
        let changed = match step {
            0 => db.prepare_cached("insert into t values(?1, ?2)")?.execute((k, &value))?,
            1 => db.prepare_cached("update t set v = ?2 where k = ?1")?.execute((k, &value))?,
            _ => db.prepare_cached("delete from t where k = ?1")?.execute((k,))?,
        };
        ensure!(changed == 1, "{} of row {k} changed {changed} rows", STEPS[step]);
    }
    Ok(db.execute_batch("commit")?)
}

fn shuffle(keys: &mut [u64], rng: &mut Rng) {
    for n in (1..keys.len()).rev() {
        keys.swap(n, rng.index(n + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_comes_changes_and_goes_in_every_mode() {
        let dir = tempfile::tempdir().unwrap();
        for protection in [Protection::Wal, Protection::Delete, Protection::None] {
            for operations in [1, 7] {
                let times = run(dir.path(), Load { protection, operations, rows: 20, page: PAGE_OF_2013 }).unwrap();
                assert!(times.iter().all(|t| *t > 0.0));
            }
        }
    }

    #[test]
    fn a_shuffle_keeps_every_key() {
        let mut keys: Vec<u64> = (0..100).collect();
        shuffle(&mut keys, &mut Rng::from_parts(&[3]));
        assert_ne!(keys, (0..100).collect::<Vec<_>>());
        keys.sort_unstable();
        assert_eq!(keys, (0..100).collect::<Vec<_>>());
    }
}
