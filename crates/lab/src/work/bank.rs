//! A bank on SQLite: several processes transfer money between accounts of one database, `synchronous=EXTRA` (with FULL,
//! DELETE mode does not make the deletion of its journal durable, which is the commit). A transfer is acknowledged when
//! its COMMIT returned; its number is then written to the log before the next one starts.
//!
//! Afterwards: `integrity_check` is ok, the sum of all balances is what it was, each balance is what the transfers say,
//! and every acknowledged transfer is there.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use clap::ValueEnum;
use rusqlite::{Connection, ErrorCode, TransactionBehavior, params};

use super::{AckLog, Stopped, lines};
use quire_testkit::rng::Rng;

const ACCOUNTS: i64 = 200;
const OPENING_BALANCE: i64 = 1000;

/// How SQLite keeps its own journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Journal {
    Wal,
    Delete,
}

/// What a check found; all of it as it should be.
#[derive(Debug, Clone, Copy)]
pub struct Report {
    pub accounts: i64,
    pub sum: i64,
    pub transfers: usize,
    pub acknowledged: usize,
}

fn open(db: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(db)?;
    connection.busy_timeout(Duration::from_secs(30))?;
    connection.pragma_update(None, "synchronous", "EXTRA")?;
    Ok(connection)
}

/// Makes the database.
pub fn create(db: &Path, journal: Journal) -> Result<()> {
    let mut connection = open(db)?;
    let mode = match journal {
        Journal::Wal => "wal",
        Journal::Delete => "delete",
    };
    let set: String = connection.pragma_update_and_check(None, "journal_mode", mode, |row| row.get(0))?;
    ensure!(
        set == mode,
        "journal_mode is {set}, not {mode}: does the file system give SQLite shared memory and locks?"
    );
    let transaction = connection.transaction()?;
    transaction.execute_batch(
        "create table account (id integer primary key, balance integer not null check (balance >= 0));
         create table transfer (worker integer, number integer, source integer, target integer, amount integer,
                                primary key (worker, number));",
    )?;
    for id in 0..ACCOUNTS {
        transaction.execute("insert into account values (?, ?)", params![id, OPENING_BALANCE])?;
    }
    Ok(transaction.commit()?)
}

/// Transfers until the time is over or the mount dies.
pub fn work(db: &Path, log: &Path, worker: u64, seed: u64, limit: Duration) -> Result<(), Stopped> {
    let mut rng = Rng::from_parts(&[seed, worker, 3]);
    let mut ack = AckLog::open(log, &log_name(worker))?;
    let mut connection = open(db).map_err(stopped)?;
    let worker = i64::try_from(worker).expect("a small number");
    let mut number: i64 = connection
        .query_row("select coalesce(max(number) + 1, 0) from transfer where worker = ?", [worker], |row| row.get(0))
        .map_err(stopped)?;
    let start = Instant::now();
    while start.elapsed() < limit {
        transfer(&mut connection, &mut rng, worker, number).map_err(stopped)?;
        answers(db, worker, number)?;
        ack.line(&number.to_string())?;
        number += 1;
    }
    Ok(())
}

/// Asks the file system something that it must answer itself. SQLite takes a COMMIT for done when the directory cannot
/// be *opened* to be fsynced after the journal's deletion (`unixDelete`), so of a mount that was killed between the two
/// its word is worth nothing. One that still answers after the COMMIT had opened and fsynced the directory.
fn answers(db: &Path, worker: i64, number: i64) -> std::io::Result<()> {
    match std::fs::symlink_metadata(db.with_file_name(format!("nothing-{worker}-{number}"))) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(std::io::Error::other("a file that nobody made is there")),
    }
}

fn transfer(connection: &mut Connection, rng: &mut Rng, worker: i64, number: i64) -> rusqlite::Result<()> {
    let mut account = || i64::try_from(rng.below(ACCOUNTS.unsigned_abs())).expect("below 200");
    let (source, target) = (account(), account());
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let balance: i64 = transaction.query_row("select balance from account where id = ?", [source], |row| row.get(0))?;
    let amount = i64::try_from(rng.below(100)).expect("below 100").min(balance);
    transaction.execute("update account set balance = balance - ? where id = ?", params![amount, source])?;
    transaction.execute("update account set balance = balance + ? where id = ?", params![amount, target])?;
    transaction
        .execute("insert into transfer values (?, ?, ?, ?, ?)", params![worker, number, source, target, amount])?;
    transaction.commit()
}

/// An I/O error is the mount dying; a corrupt database is never excused.
fn stopped(error: rusqlite::Error) -> Stopped {
    match error.sqlite_error_code() {
        Some(ErrorCode::SystemIoFailure | ErrorCode::CannotOpen) => Stopped::Cut,
        _ => Stopped::Failed(error.into()),
    }
}

fn log_name(worker: u64) -> String {
    format!("bank-{worker}")
}

/// Checks the database against the logs of its workers.
pub fn check(db: &Path, log: &Path, workers: u64) -> Result<Report> {
    let connection = open(db)?;
    let integrity: String = connection.query_row("pragma integrity_check", [], |row| row.get(0))?;
    ensure!(integrity == "ok", "pragma integrity_check says: {integrity}");
    let (accounts, sum): (i64, i64) =
        connection.query_row("select count(*), sum(balance) from account", [], |row| Ok((row.get(0)?, row.get(1)?)))?;
    ensure!(sum == ACCOUNTS * OPENING_BALANCE, "the balances sum to {sum}, not {}", ACCOUNTS * OPENING_BALANCE);
    let wrong: i64 = connection.query_row(
        "select count(*) from account a where balance != ?
            + (select coalesce(sum(amount), 0) from transfer where target = a.id)
            - (select coalesce(sum(amount), 0) from transfer where source = a.id)",
        [OPENING_BALANCE],
        |row| row.get(0),
    )?;
    ensure!(wrong == 0, "{wrong} balances are not what the transfers say");
    let mut statement = connection.prepare("select worker, number from transfer")?;
    let there: HashSet<(u64, u64)> = statement
        .query_map([], |row| Ok((row.get::<_, i64>(0)?.unsigned_abs(), row.get::<_, i64>(1)?.unsigned_abs())))?
        .collect::<rusqlite::Result<_>>()?;
    let mut acknowledged = 0;
    for worker in 0..workers {
        for line in lines(log, &log_name(worker))? {
            acknowledged += 1;
            if !there.contains(&(worker, line.parse()?)) {
                bail!("transfer {line} of worker {worker} was acknowledged and is not there");
            }
        }
    }
    Ok(Report { accounts, sum, transfers: there.len(), acknowledged })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_transfer_and_a_lost_sum_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("db");
        create(&db, Journal::Wal).unwrap();
        crate::work::end(work(&db, dir.path(), 0, 1, Duration::from_millis(200))).unwrap();
        let report = check(&db, dir.path(), 1).unwrap();
        assert!(report.acknowledged > 0 && report.acknowledged == report.transfers);
        AckLog::open(dir.path(), "bank-0").unwrap().line("999999").unwrap();
        assert!(check(&db, dir.path(), 1).unwrap_err().to_string().contains("999999"));
        open(&db).unwrap().execute("update account set balance = balance + 1 where id = 5", []).unwrap();
        assert!(check(&db, dir.path(), 1).unwrap_err().to_string().contains("sum"));
    }
}
