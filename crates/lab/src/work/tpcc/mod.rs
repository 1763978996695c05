//! TPC-C on SQLite: the schema, the population and the five transactions of the specification (TPC Benchmark C,
//! revision 5.11), run by one terminal without think times, as the SQLite experiments of DJFS do (section 5.3). Money
//! is in cents, so sums are exact.
//!
//! It is a workload, not an audited benchmark: the numbers say what a file system costs a database that commits like
//! this. What the transactions leave is checked by the specification's consistency conditions.

mod check;
mod draw;
mod load;
mod scale;
mod transactions;

pub use check::check;
pub use load::load;
pub use transactions::Kind;

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use rusqlite::Connection;

use draw::Draw;
use scale::set;
pub use scale::{Grain, Journal, Scale};
use transactions::{Done, Terminal};

/// When a run ends.
#[derive(Debug, Clone, Copy)]
pub enum Limit {
    Time(Duration),
    Transactions(u64),
}

/// What a run did.
#[derive(Debug, Default, Clone)]
pub struct Report {
    /// Committed transactions of each kind, in the order of [`Kind::ALL`].
    pub committed: [u64; 5],
    /// New-Order transactions that chose an item that is not there (1 %, 2.4.1.4).
    pub rolled_back: u64,
    pub took: Duration,
}

impl Report {
    /// Transactions in all.
    #[must_use]
    pub fn transactions(&self) -> u64 {
        self.committed.iter().sum::<u64>() + self.rolled_back
    }

    /// New-Order transactions a minute: the specification's measure.
    #[must_use]
    pub fn tpm_c(&self) -> f64 {
        crate::stats::float(self.committed[Kind::NewOrder.index()]) * 60.0 / self.took.as_secs_f64()
    }

    /// Transactions a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a count far below 2^53")]
        let n = self.transactions() as f64;
        n / self.took.as_secs_f64()
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} transactions in {:.2} s, {:.1} a second:",
            self.transactions(),
            self.took.as_secs_f64(),
            self.rate()
        )?;
        for (kind, n) in Kind::ALL.iter().zip(self.committed) {
            write!(f, " {n} {kind:?},")?;
        }
        write!(f, " {} rolled back", self.rolled_back)
    }
}

/// Runs the mix of 5.2.3 on a loaded database.
pub fn run(db: &Path, journal: Journal, grain: Grain, seed: u64, limit: Limit) -> Result<Report> {
    let start = Instant::now();
    run_on(&mut Connection::open(db)?, journal, grain, seed, limit, &|| start.elapsed())
}

/// As [`run`] on a connection, by a clock that is looked at before each transaction.
pub fn run_on(
    connection: &mut Connection,
    journal: Journal,
    grain: Grain,
    seed: u64,
    limit: Limit,
    now: &dyn Fn() -> Duration,
) -> Result<Report> {
    set(connection, journal)?;
    let scale = Scale::of(connection)?;
    let mut terminal = Terminal::new(scale, grain, Draw::new(seed, draw::Phase::Run));
    let mut report = Report::default();
    let start = now();
    loop {
        report.took = now() - start;
        let over = match limit {
            Limit::Time(time) => report.took >= time,
            Limit::Transactions(n) => report.transactions() >= n,
        };
        if over {
            return Ok(report);
        }
        let kind = terminal.next();
        match terminal.transaction(connection, kind)? {
            Done::Committed => report.committed[kind.index()] += 1,
            Done::RolledBack => report.rolled_back += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: Scale = Scale { warehouses: 2, customers: 30, items: 200, page: 4096 };

    #[test]
    fn every_kind_commits_and_the_database_stays_consistent() {
        let dir = tempfile::tempdir().unwrap();
        for (n, journal) in [Journal::Persist, Journal::Wal, Journal::Delete].into_iter().enumerate() {
            let db = dir.path().join(format!("{n}.db"));
            load(&db, journal, SMALL, 1).unwrap();
            check(&db).unwrap();
            let report = run(&db, journal, Grain::Transaction, 7, Limit::Transactions(400)).unwrap();
            assert_eq!(report.transactions(), 400);
            assert!(report.committed.iter().all(|n| *n > 0) && report.rolled_back > 0, "{report:?}");
            check(&db).unwrap();
            run(&db, journal, Grain::Statement, 8, Limit::Transactions(10)).unwrap();
            check(&db).unwrap();
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_database() {
        let dir = tempfile::tempdir().unwrap();
        let sums: Vec<Vec<i64>> = (0..2)
            .map(|n| {
                let db = dir.path().join(format!("{n}.db"));
                load(&db, Journal::Persist, SMALL, 1).unwrap();
                run(&db, Journal::Persist, Grain::Transaction, 3, Limit::Transactions(200)).unwrap();
                let connection = Connection::open(&db).unwrap();
                [
                    "sum(w_ytd) from warehouse",
                    "sum(c_balance) from customer",
                    "sum(s_quantity) from stock",
                    "count(*) from new_order",
                ]
                .map(|what| connection.query_row(&format!("select {what}"), [], |row| row.get(0)).unwrap())
                .to_vec()
            })
            .collect();
        assert_eq!(sums[0], sums[1]);
    }

    #[test]
    fn a_lost_payment_and_a_lost_line_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let db = dir.path().join("db");
        load(&db, Journal::Persist, SMALL, 1).unwrap();
        run(&db, Journal::Persist, Grain::Transaction, 3, Limit::Transactions(50)).unwrap();
        let tampered = |sql: &str, expected: &str| {
            let copy = dir.path().join("copy");
            std::fs::copy(&db, &copy).unwrap();
            assert_eq!(Connection::open(&copy).unwrap().execute(sql, []).unwrap(), 1);
            assert!(check(&copy).unwrap_err().to_string().contains(expected));
        };
        tampered("update warehouse set w_ytd = w_ytd - 1 where w_id = 1", "condition 1");
        tampered("update district set d_next_o_id = d_next_o_id + 1 where d_w_id = 2 and d_id = 3", "condition 2");
        tampered("delete from order_line where rowid = (select max(rowid) from order_line)", "condition 4");
    }
}
