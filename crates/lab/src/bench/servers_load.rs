//! pgbench and sysbench on servers that guard their pages against tears, or leave that to the file system.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result, bail};

use crate::servers::mariadb::{self, MariaDb};
use crate::servers::postgres::{self, Postgres, Stop};

/// Who sees to it that pages do not tear.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Guard {
    /// `full_page_writes`, the doublewrite buffer.
    Server,
    /// Nobody else.
    FileSystem,
}

/// What is run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Load {
    /// `pgbench -N` on PostgreSQL.
    Pgbench,
    /// `sysbench oltp_write_only` on MariaDB.
    Sysbench,
}

impl FromStr for Load {
    type Err = anyhow::Error;
    fn from_str(name: &str) -> Result<Self> {
        Ok(match name {
            "pgbench" => Load::Pgbench,
            "sysbench" => Load::Sysbench,
            _ => bail!("want pgbench or sysbench"),
        })
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Load::Pgbench => "pgbench -N",
            Load::Sysbench => "sysbench oltp_write_only",
        })
    }
}

/// What a run gives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Done {
    /// Transactions a second.
    pub rate: f64,
    pub transactions: u64,
    pub p99_micros: Option<f64>,
}

/// Called when the database is loaded and before the run.
pub(super) type Loaded<'l> = dyn FnMut() -> Result<()> + 'l;

const PG_SETTINGS: &str = "shared_buffers=256MB\nmax_wal_size=2GB\ncheckpoint_timeout=30s\n";
const MY_SETTINGS: &[&str] = &[
    "--innodb-buffer-pool-size=256M",
    "--innodb-log-file-size=256M",
    "--innodb-flush-log-at-trx-commit=1",
    // Dirty pages are written while the run lasts, as a checkpoint every 30 s does it for PostgreSQL.
    "--innodb-max-dirty-pages-pct-lwm=1",
];
const ROWS_FOR_EACH: u32 = 4_000;

impl Load {
    pub(super) fn unavailable(self) -> Option<String> {
        match self {
            Load::Pgbench => postgres::unavailable(),
            Load::Sysbench => mariadb::unavailable(),
        }
    }

    /// Makes a database on the mount, loads it, runs, and ends the server in order.
    pub(super) fn run(
        self,
        (mnt, sockets): (&Path, &Path),
        how: (u32, u32, u32),
        guard: Guard,
        loaded: &mut Loaded<'_>,
    ) -> Result<Done> {
        if sockets.exists() {
            // Another server's user may own it.
            std::fs::remove_dir_all(sockets)?;
        }
        match self {
            Load::Pgbench => pgbench((&mnt.join("pg"), sockets), how, guard, loaded),
            Load::Sysbench => sysbench((&mnt.join("my"), sockets), how, guard, loaded),
        }
    }
}

fn pgbench(
    (data, sockets): (&Path, &Path),
    (clients, seconds, scale): (u32, u32, u32),
    guard: Guard,
    loaded: &mut Loaded<'_>,
) -> Result<Done> {
    let full = if guard == Guard::Server { "on" } else { "off" };
    let cluster = Postgres::new(data, sockets)?;
    cluster.init(&["--data-checksums"], &format!("{PG_SETTINGS}full_page_writes={full}\n"))?;
    let server = cluster.start(&[])?;
    server.client("pgbench", &["-i", "-s", &scale.to_string(), "-q", "postgres"])?;
    server.query("checkpoint")?;
    loaded()?;
    let (clients, seconds) = (clients.to_string(), seconds.to_string());
    let said = server.client("pgbench", &["-N", "-c", &clients, "-j", "2", "-T", &seconds, "postgres"]);
    server.stop(Stop::Fast)?;
    let said = said?;
    let number = |what: &str, word: usize| -> Result<&str> {
        let line = said.lines().find(|l| l.starts_with(what)).context("pgbench's result")?;
        line.split_whitespace().nth(word).context("a number")
    };
    let transactions = number("number of transactions actually processed:", 5)?;
    let transactions = transactions.split('/').next().context("a count")?.parse()?;
    Ok(Done { rate: number("tps", 2)?.parse()?, transactions, p99_micros: None })
}

fn sysbench(
    (data, sockets): (&Path, &Path),
    (clients, seconds, scale): (u32, u32, u32),
    guard: Guard,
    loaded: &mut Loaded<'_>,
) -> Result<Done> {
    let server = MariaDb::new(data, sockets)?;
    server.init()?;
    let double = if guard == Guard::Server { "--innodb-doublewrite=ON" } else { "--skip-innodb-doublewrite" };
    let running = server.start(&[MY_SETTINGS, &[double]].concat())?;
    running.query("create database sbtest")?;
    let tables = ["--tables=4".to_owned(), format!("--table-size={}", ROWS_FOR_EACH * scale)];
    let bench = |more: &[&str]| {
        let tables: Vec<&str> = tables.iter().map(String::as_str).collect();
        running.sysbench(&[&tables[..], more].concat())
    };
    bench(&["prepare"])?;
    loaded()?;
    let (threads, time) = (format!("--threads={clients}"), format!("--time={seconds}"));
    let said = bench(&[&threads, "--percentile=99", &time, "run"]);
    running.stop()?;
    let said = said?;
    let line = |what: &str| said.lines().find(|l| l.contains(what)).context("sysbench's result");
    let counted = line("transactions:")?;
    let transactions = counted.split_whitespace().nth(1).context("its count")?.parse()?;
    let rate = counted.split('(').nth(1).and_then(|l| l.split_whitespace().next()).context("its rate")?.parse()?;
    let p99: f64 = line("99th percentile:")?.split_whitespace().last().context("its latency")?.parse()?;
    Ok(Done { rate, transactions, p99_micros: Some(p99 * 1e3) })
}
