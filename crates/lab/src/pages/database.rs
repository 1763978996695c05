//! What a database has to do here: make itself, work, and be looked at.

use std::fmt;
use std::str::FromStr;

use anyhow::{Result, bail};

use super::place::{Mark, Place};
use super::{mariadb, postgres};

/// Which database.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Database {
    /// Pages of 8 KiB, through the kernel's page cache if there is one.
    Postgres,
    /// InnoDB's pages of 16 KiB, with O_DIRECT.
    MariaDb,
}

impl FromStr for Database {
    type Err = anyhow::Error;
    fn from_str(name: &str) -> Result<Self> {
        Ok(match name {
            "postgres" => Database::Postgres,
            "mariadb" => Database::MariaDb,
            _ => bail!("want postgres or mariadb"),
        })
    }
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Database::Postgres => "postgres",
            Database::MariaDb => "mariadb",
        })
    }
}

impl Database {
    pub(super) fn unavailable(self) -> Option<String> {
        match self {
            Database::Postgres => crate::servers::postgres::unavailable(),
            Database::MariaDb => crate::servers::mariadb::unavailable(),
        }
    }

    /// Makes the database in a directory that does not exist yet, and stops the server in order.
    pub(super) fn make(self, place: Place<'_>) -> Result<()> {
        match self {
            Database::Postgres => postgres::make(place),
            Database::MariaDb => mariadb::make(place),
        }
    }

    /// Works on it; then the server ends at once.
    pub(super) fn work(self, place: Place<'_>, seconds: u32, seed: u64, mark: &mut Mark<'_>) -> Result<()> {
        match self {
            Database::Postgres => postgres::work(place, seconds, seed, mark),
            Database::MariaDb => mariadb::work(place, seconds, seed, mark),
        }
    }

    /// Counts the bad pages of a copy as the crash has left it; the copy stays as it is.
    pub(super) fn bad_pages(self, place: Place<'_>) -> Result<u64> {
        match self {
            Database::Postgres => postgres::bad_pages(place),
            Database::MariaDb => mariadb::bad_pages(place),
        }
    }

    /// Starts the server on a copy, which recovers; looks at everything; looks at the pages again.
    pub(super) fn start_and_look(self, place: Place<'_>) -> Result<()> {
        match self {
            Database::Postgres => postgres::start_and_look(place),
            Database::MariaDb => mariadb::start_and_look(place),
        }
    }
}
