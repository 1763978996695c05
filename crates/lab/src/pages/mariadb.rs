//! MariaDB without the doublewrite buffer, under sysbench.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use super::place::{Mark, Place};
use crate::cmd::{command, say};
use crate::servers::mariadb::MariaDb;

/// A small pool that is flushed all the time, and a small log, so that pages are written and copies are cheap.
const SETTINGS: &[&str] = &[
    "--skip-innodb-doublewrite",
    "--innodb-buffer-pool-size=8M",
    "--innodb-log-file-size=8M",
    "--innodb-flush-log-at-trx-commit=1",
    "--innodb-max-dirty-pages-pct=5",
    "--innodb-max-dirty-pages-pct-lwm=1",
    "--innodb-io-capacity=2000",
    "--innodb-buffer-pool-dump-at-shutdown=OFF",
];
const TABLES: [&str; 2] = ["--tables=2", "--table-size=10000"];

fn server(place: Place<'_>) -> Result<MariaDb> {
    MariaDb::new(place.data, place.sockets)
}

pub(super) fn make(place: Place<'_>) -> Result<()> {
    let server = server(place)?;
    server.init()?;
    let running = server.start(SETTINGS)?;
    running.query("create database sbtest")?;
    running.sysbench(&[&TABLES[..], &["prepare"]].concat())?;
    running.stop()
}

pub(super) fn work(place: Place<'_>, seconds: u32, seed: u64, mark: &mut Mark<'_>) -> Result<()> {
    let running = server(place)?.start(SETTINGS)?;
    mark();
    let how = ["--threads=4".to_owned(), format!("--time={}", seconds), format!("--rand-seed={seed}")];
    let how: Vec<&str> = how.iter().map(String::as_str).chain(["run"]).collect();
    let worked = running.sysbench(&[&TABLES[..], &how].concat());
    mark();
    running.kill();
    ensure!(worked?.contains("transactions:"), "sysbench says nothing");
    Ok(())
}

/// All files that hold pages of InnoDB.
fn tablespaces(dir: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if entry.file_type()?.is_dir() {
            tablespaces(&path, found)?;
        } else if name.ends_with(".ibd") || name.starts_with("ibdata") || name.starts_with("undo") {
            found.push(path);
        }
    }
    Ok(())
}

pub(super) fn bad_pages(place: Place<'_>) -> Result<u64> {
    let mut files = Vec::new();
    tablespaces(place.data, &mut files)?;
    ensure!(files.len() > 3, "only {} tablespaces", files.len());
    let mut bad = 0;
    for file in files {
        let said = say(command("innochecksum").arg("--allow-mismatches=1000000").arg(&file))?;
        let pages = said.text.matches("Fail: page::").count();
        ensure!(said.code == 0 || pages > 0, "innochecksum {}: {}", file.display(), said.text);
        bad += u64::try_from(pages)?;
    }
    Ok(bad)
}

/// Whether CHECK TABLE calls both tables whole. It warns of deleted entries of an index whose rows have been purged; so
/// it does after a SIGKILL of a server that has its doublewrite buffer, on any file system (10.11: 3 of 12 times).
fn is_whole(said: &str) -> bool {
    let is_ok = |l: &&str| l.ends_with("\tstatus\tOK");
    let is_purged = |l: &str| l.contains("\tWarning\tInnoDB: Clustered index record not found for index");
    said.lines().filter(is_ok).count() == 2 && said.lines().all(|l| is_ok(&l) || is_purged(l))
}

pub(super) fn start_and_look(place: Place<'_>) -> Result<()> {
    let server = server(place)?;
    server.adopt()?;
    let running = server.start(SETTINGS).context("the server's recovery")?;
    let said = running.query("check table sbtest.sbtest1, sbtest.sbtest2 extended")?;
    ensure!(is_whole(&said), "CHECK TABLE: {said}");
    running.stop()?;
    let bad = bad_pages(place)?;
    ensure!(bad == 0, "{bad} bad pages after the server's recovery");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::is_whole;

    #[test]
    fn purged_rows_are_no_damage_and_all_else_is() {
        let ok = "sbtest.sbtest1\tcheck\tstatus\tOK\nsbtest.sbtest2\tcheck\tstatus\tOK\n";
        let purged = "sbtest.sbtest1\tcheck\tWarning\tInnoDB: Clustered index record not found for index `k_1`\n";
        assert!(is_whole(ok) && is_whole(&format!("{purged}{ok}")));
        let corrupt = ok.replacen("status\tOK", "error\tCorrupt", 1);
        assert!(!is_whole(&corrupt) && !is_whole("sbtest.sbtest1\tcheck\tstatus\tOK\n"));
        assert!(!is_whole(&format!("sbtest.sbtest1\tcheck\tWarning\tInnoDB: page is corrupt\n{ok}")));
    }
}
