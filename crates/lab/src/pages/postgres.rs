//! PostgreSQL with `full_page_writes=off` and data checksums, under pgbench.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::place::{Mark, Place};
use crate::cmd::{run_tool, text};
use crate::servers::postgres::{Postgres, Stop};

/// Small buffers and steady flushes, so that pages are written all the time; a small log, so that copies are cheap.
const SETTINGS: &str = "full_page_writes=off\nshared_buffers=2MB\nmax_wal_size=8MB\nmin_wal_size=2MB\n\
    bgwriter_delay=10ms\nbackend_flush_after=64kB\nbgwriter_flush_after=64kB\ncheckpoint_flush_after=64kB\n\
    max_connections=20\nautovacuum_naptime=1s\n";
/// The loss of a copy is none.
const ON_A_COPY: &[&str] = &["fsync=off", "full_page_writes=off", "shared_buffers=16MB"];
const CLIENTS: &str = "4";
/// Between two checkpoints, besides those that the log's size asks for.
const CHECKPOINT_PAUSE: Duration = Duration::from_millis(300);

fn cluster(place: Place<'_>) -> Result<Postgres> {
    Postgres::new(place.data, place.sockets)
}

pub(super) fn make(place: Place<'_>) -> Result<()> {
    let cluster = cluster(place)?;
    cluster.init(&["--data-checksums", "--wal-segsize=1"], SETTINGS)?;
    let server = cluster.start(&["fsync=off"])?;
    server.query("create extension amcheck")?;
    server.client("pgbench", &["-i", "-s", "2", "-q", "postgres"])?;
    server.stop(Stop::Fast)
}

pub(super) fn work(place: Place<'_>, seconds: u32, seed: u64, mark: &mut Mark<'_>) -> Result<()> {
    let cluster = cluster(place)?;
    let server = cluster.start(&[])?;
    mark();
    let over = AtomicBool::new(false);
    let worked = thread::scope(|scope| {
        let checkpoints = scope.spawn(|| -> Result<u32> {
            let mut done = 0;
            while !over.load(Ordering::Relaxed) {
                server.query("checkpoint")?;
                done += 1;
                thread::sleep(CHECKPOINT_PAUSE);
            }
            Ok(done)
        });
        let (seconds, seed) = (seconds.to_string(), format!("--random-seed={seed}"));
        let args = ["-N", "-n", "-c", CLIENTS, "-j", "2", "-T", &seconds, &seed, "postgres"];
        let worked = server.client("pgbench", &args);
        over.store(true, Ordering::Relaxed);
        let checkpoints = checkpoints.join().expect("it returns its errors")?;
        ensure!(checkpoints > 0, "no checkpoint");
        worked
    });
    mark();
    server.stop(Stop::Immediate)?;
    ensure!(worked?.contains("tps"), "pgbench says nothing");
    Ok(())
}

/// pg_checksums refuses a cluster that was not shut down, so pg_resetwal calls a second view of the files clean: hard
/// links, with a control file of its own.
pub(super) fn bad_pages(place: Place<'_>) -> Result<u64> {
    let view = place.data.with_extension("view");
    if view.exists() {
        std::fs::remove_dir_all(&view)?;
    }
    run_tool("cp", ["-al", text(place.data), text(&view)])?;
    run_tool("rm", ["-r", text(&view.join("pg_wal"))])?;
    run_tool("cp", ["-a", text(&place.data.join("pg_wal")), text(&view.join("pg_wal"))])?;
    let control = Path::new("global/pg_control");
    run_tool("cp", ["-a", "--remove-destination", text(&place.data.join(control)), text(&view.join(control))])?;
    std::fs::remove_file(view.join("postmaster.pid")).or_else(absent)?;
    let view = Postgres::new(&view, place.sockets)?;
    view.adopt()?;
    view.offline("pg_resetwal", &["-f"])?;
    match view.offline("pg_checksums", &["--check"]) {
        Ok(said) => bad_checksums(&said),
        // It ends with an error if it finds any, and says how many.
        Err(error) => bad_checksums(&format!("{error:#}")).with_context(|| format!("{error:#}")),
    }
}

/// What pg_checksums counted.
fn bad_checksums(said: &str) -> Result<u64> {
    let line = said.lines().find_map(|l| l.strip_prefix("Bad checksums:")).context("pg_checksums counts nothing")?;
    Ok(line.trim().parse()?)
}

/// The file is not there: all the better.
fn absent(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

pub(super) fn start_and_look(place: Place<'_>) -> Result<()> {
    std::fs::remove_file(place.data.join("postmaster.pid")).or_else(absent)?;
    let cluster = cluster(place)?;
    cluster.adopt()?;
    let server = cluster.start(ON_A_COPY).context("the server's recovery")?;
    // Each transaction adds the same to an account as it notes in the history.
    let sums =
        "select (select sum(abalance) from pgbench_accounts) = (select coalesce(sum(delta), 0) from pgbench_history)";
    let agree = server.query(sums)?;
    ensure!(agree == "t", "accounts and history do not agree: {agree}");
    server.client("pg_amcheck", &["--heapallindexed", "-d", "postgres"]).context("pg_amcheck")?;
    server.stop(Stop::Fast)?;
    let bad = bad_checksums(&cluster.offline("pg_checksums", &["--check"])?)?;
    ensure!(bad == 0, "{bad} bad pages after the server's recovery");
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_count_of_bad_checksums_is_read() {
        let said = "Checksum operation completed\nFiles scanned:   957\nBad checksums:  12\nData checksum version: 1\n";
        assert_eq!(super::bad_checksums(said).unwrap(), 12);
        assert!(super::bad_checksums("pg_checksums: error: cluster must be shut down").is_err());
    }
}
