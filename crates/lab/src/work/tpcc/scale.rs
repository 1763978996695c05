//! The size of a population, and how its database is opened.

use std::path::Path;

use anyhow::{Result, ensure};
use clap::ValueEnum;
use rusqlite::Connection;

/// Districts of a warehouse (1.2).
pub(super) const DISTRICTS: u32 = 10;

/// How SQLite keeps its own journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Journal {
    Delete,
    Persist,
    Wal,
}

impl Journal {
    /// As SQLite calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Journal::Delete => "DELETE",
            Journal::Persist => "PERSIST",
            Journal::Wal => "WAL",
        }
    }
}

/// What SQLite commits at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Grain {
    /// A transaction of the specification.
    Transaction,
    /// Each statement, as SQLite does where nobody says `begin`. No order is rolled back then: 1 % of them end before
    /// their first change.
    Statement,
}

/// How large the population is. The specification's own is [`Scale::specified`]; a smaller one keeps all ratios that
/// the transactions see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scale {
    pub warehouses: u32,
    /// To a district; as many orders are there from the start, the last 30 % of them not delivered.
    pub customers: u32,
    pub items: u32,
    /// Bytes of SQLite's pages: 4096 today, 1024 before SQLite 3.12 (2016).
    pub page: u32,
}

impl Scale {
    /// 3,000 customers to a district and 100,000 items (4.3.3.1): about 100 MB to a warehouse.
    #[must_use]
    pub fn specified(warehouses: u32) -> Self {
        Self { warehouses, customers: 3000, items: 100_000, page: 4096 }
    }

    /// The same divided by `by`.
    #[must_use]
    pub fn divided(warehouses: u32, by: u32) -> Self {
        let whole = Self::specified(warehouses);
        Self { customers: (whole.customers / by).max(30), items: (whole.items / by).max(200), ..whole }
    }

    /// As the tables of a database say.
    pub(super) fn of(connection: &Connection) -> Result<Self> {
        let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, u32>(0));
        let scale = Self {
            warehouses: count("select count(*) from warehouse")?,
            customers: count("select count(*) from customer where c_w_id = 1 and c_d_id = 1")?,
            items: count("select count(*) from item")?,
            page: count("pragma page_size")?,
        };
        ensure!(scale.warehouses > 0 && scale.customers > 0 && scale.items > 0, "the database is not loaded");
        Ok(scale)
    }
}

pub(super) fn open(db: &Path, journal: Journal, page: Option<u32>) -> Result<Connection> {
    let connection = Connection::open(db)?;
    if let Some(page) = page {
        connection.pragma_update(None, "page_size", page)?;
    }
    set(&connection, journal)?;
    Ok(connection)
}

pub(super) fn set(connection: &Connection, journal: Journal) -> Result<()> {
    let mode = match journal {
        Journal::Delete => "delete",
        Journal::Persist => "persist",
        Journal::Wal => "wal",
    };
    let set: String = connection.pragma_update_and_check(None, "journal_mode", mode, |row| row.get(0))?;
    ensure!(set == mode, "journal_mode is {set}, not {mode}");
    Ok(connection.pragma_update(None, "synchronous", "FULL")?)
}
