//! The workloads of [`super::clients`], each as functions over a mount point. `prepare` is not measured.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::servers_load::{Guard, Load};
use crate::cmd::{command, run, run_tool, text};
use crate::stats::float;

/// What a run of a workload gives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outcome {
    /// In the workload's unit; more is better.
    pub rate: f64,
    pub p99_micros: Option<f64>,
}

/// A workload.
pub(crate) struct Workload {
    pub name: &'static str,
    pub unit: &'static str,
    /// Programs without which it is skipped.
    pub needs: &'static [&'static str],
    pub prepare: fn(&Path) -> Result<()>,
    pub run: fn(&Path, u32) -> Result<Outcome>,
}

const fn fsync(name: &'static str, run: fn(&Path, u32) -> Result<Outcome>) -> Workload {
    Workload { name, unit: "fsync/s", needs: &["fio"], prepare: |_| Ok(()), run }
}

/// All of them, in the order in which they run.
pub(crate) static WORKLOADS: [Workload; 13] = [
    fsync("fsync1", |mnt, s| fio_fsync(mnt, 1, s)),
    fsync("fsync4", |mnt, s| fio_fsync(mnt, 4, s)),
    fsync("fsync16", |mnt, s| fio_fsync(mnt, 16, s)),
    fsync("fsync64", |mnt, s| fio_fsync(mnt, 64, s)),
    Workload { name: "randread16", unit: "read/s", needs: &["fio"], prepare: |_| Ok(()), run: random_reads },
    Workload { name: "dbench", unit: "MB/s", needs: &["dbench"], prepare: |_| Ok(()), run: dbench },
    Workload { name: "pgbench1", unit: "tps", needs: PG, prepare: |_| Ok(()), run: |mnt, s| pgbench(mnt, 1, s) },
    Workload { name: "pgbench16", unit: "tps", needs: PG, prepare: |_| Ok(()), run: |mnt, s| pgbench(mnt, 16, s) },
    Workload { name: "sysbench1", unit: "tps", needs: MY, prepare: |_| Ok(()), run: |mnt, s| sysbench(mnt, 1, s) },
    Workload { name: "sysbench16", unit: "tps", needs: MY, prepare: |_| Ok(()), run: |mnt, s| sysbench(mnt, 16, s) },
    Workload { name: "git", unit: "1/s", needs: &["git"], prepare: make_repository, run: git },
    Workload { name: "tar", unit: "1/s", needs: &["tar"], prepare: make_archive, run: untar },
    Workload { name: "names8", unit: "op/s", needs: &[], prepare: |_| Ok(()), run: names },
];

const PG: &[&str] = crate::servers::postgres::NEEDS;
const MY: &[&str] = crate::servers::mariadb::NEEDS;

/// Files of the trees for git and tar.
const FILES: u64 = 5000;

fn fio(mnt: &Path, args: &[String]) -> Result<serde_json::Value> {
    let dir = mnt.join("fio");
    fs::create_dir_all(&dir)?;
    let mut c = command("fio");
    c.args(["--name=x", "--bs=4k", "--ioengine=psync", "--group_reporting", "--output-format=json"]);
    let said = run(c.arg(format!("--directory={}", text(&dir))).args(args))?;
    let at = said.find('{').context("fio prints no JSON")?;
    Ok(serde_json::from_str::<serde_json::Value>(&said[at..])?["jobs"][0].clone())
}

/// Random overwrites of 4 KiB, each followed by fdatasync, by `jobs` processes with a file each.
fn fio_fsync(mnt: &Path, jobs: u32, seconds: u32) -> Result<Outcome> {
    let size = (64 / jobs).max(4);
    let args = [
        "--rw=randwrite".to_owned(),
        "--fdatasync=1".to_owned(),
        "--fallocate=none".to_owned(),
        format!("--size={size}m"),
        format!("--numjobs={jobs}"),
        "--time_based".to_owned(),
        format!("--runtime={seconds}"),
    ];
    let job = fio(mnt, &args)?;
    let rate = job["write"]["iops"].as_f64().context("fio's write rate")?;
    let p99 = job["sync"]["lat_ns"]["percentile"]["99.000000"].as_f64().map(|ns| ns / 1e3);
    Ok(Outcome { rate, p99_micros: p99 })
}

/// Random reads of 4 KiB with O_DIRECT by 16 processes.
fn random_reads(mnt: &Path, seconds: u32) -> Result<Outcome> {
    let args = ["--rw=randread", "--direct=1", "--size=32m", "--numjobs=16", "--time_based"].map(str::to_owned);
    let job = fio(mnt, &[&args[..], &[format!("--runtime={seconds}")]].concat())?;
    let rate = job["read"]["iops"].as_f64().context("fio's read rate")?;
    let p99 = job["read"]["clat_ns"]["percentile"]["99.000000"].as_f64().map(|ns| ns / 1e3);
    Ok(Outcome { rate, p99_micros: p99 })
}

/// A file server's operations by 8 clients, all synchronous.
fn dbench(mnt: &Path, seconds: u32) -> Result<Outcome> {
    let said = run(command("dbench").args(["-D", text(mnt), "-t", &seconds.to_string(), "-s", "8"]))?;
    let line = said.lines().rev().find(|l| l.starts_with("Throughput")).context("dbench's result")?;
    let mut words = line.split_whitespace();
    let rate = words.nth(1).context("dbench's rate")?.parse()?;
    let p99 = line.split("max_latency=").nth(1).and_then(|l| l.split_whitespace().next()?.parse::<f64>().ok());
    // dbench tells the largest latency only.
    Ok(Outcome { rate, p99_micros: p99.map(|ms| ms * 1e3) })
}

/// A server as its distribution has it: it guards its pages.
fn server(load: Load, mnt: &Path, clients: u32, seconds: u32) -> Result<Outcome> {
    const SCALE: u32 = 5;
    let sockets = tempfile::tempdir()?;
    std::fs::set_permissions(sockets.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let place = (mnt, &*sockets.path().join("s"));
    let done = load.run(place, (clients, seconds, SCALE), Guard::Server, &mut || Ok(()))?;
    Ok(Outcome { rate: done.rate, p99_micros: done.p99_micros })
}

fn pgbench(mnt: &Path, clients: u32, seconds: u32) -> Result<Outcome> {
    server(Load::Pgbench, mnt, clients, seconds)
}

fn sysbench(mnt: &Path, threads: u32, seconds: u32) -> Result<Outcome> {
    server(Load::Sysbench, mnt, threads, seconds)
}

/// A directory beside the mount, where sources of git and tar are made once.
fn beside(mnt: &Path, name: &str) -> PathBuf {
    mnt.with_file_name(name)
}

fn make_repository(mnt: &Path) -> Result<()> {
    let dir = beside(mnt, "repository");
    if dir.exists() {
        return Ok(());
    }
    crate::tree::make(&dir, FILES, 2, crate::tree::Flavour::Plain)?;
    let git = |args: &[&str]| {
        let mut c = command("git");
        c.args(["-C", text(&dir), "-c", "user.name=bench", "-c", "user.email=bench@localhost"]).args(args);
        run(&mut c)
    };
    git(&["init", "-q"])?;
    git(&["add", "."])?;
    git(&["commit", "-q", "-m", "one"])?;
    Ok(())
}

/// Clones a repository, asks for its state, and reads every file.
fn git(mnt: &Path, _: u32) -> Result<Outcome> {
    let (from, to) = (beside(mnt, "repository"), mnt.join("clone"));
    let start = Instant::now();
    run_tool("git", ["-c", "core.fsync=all", "clone", "-q", "--no-hardlinks", text(&from), text(&to)])?;
    run_tool("git", ["-C", text(&to), "status", "-s"])?;
    crate::cmd::say(command("grep").args(["-r", "no such line"]).arg(&to))?;
    run_tool("sync", ["-f", text(mnt)])?;
    Ok(Outcome { rate: 1.0 / start.elapsed().as_secs_f64(), p99_micros: None })
}

fn make_archive(mnt: &Path) -> Result<()> {
    let (tree, tar) = (beside(mnt, "tree"), beside(mnt, "tree.tar"));
    if tar.exists() {
        return Ok(());
    }
    crate::tree::make(&tree, FILES, 1, crate::tree::Flavour::Plain)?;
    run_tool("tar", ["-C", text(&tree), "-cf", text(&tar), "."])?;
    Ok(fs::remove_dir_all(&tree)?)
}

fn untar(mnt: &Path, _: u32) -> Result<Outcome> {
    let start = Instant::now();
    run_tool("tar", ["-C", text(mnt), "-xf", text(&beside(mnt, "tree.tar"))])?;
    run_tool("sync", ["-f", text(mnt)])?;
    Ok(Outcome { rate: 1.0 / start.elapsed().as_secs_f64(), p99_micros: None })
}

/// Eight clients with a directory each: create, stat and delete a file, again and again.
fn names(mnt: &Path, seconds: u32) -> Result<Outcome> {
    let limit = Duration::from_secs(seconds.into());
    let start = Instant::now();
    let client = |n: u32| -> Result<u64> {
        let dir = mnt.join(n.to_string());
        fs::create_dir(&dir)?;
        let mut operations = 0;
        while start.elapsed() < limit {
            for file in 0..16 {
                fs::write(dir.join(file.to_string()), b"")?;
            }
            for file in 0..16 {
                fs::metadata(dir.join(file.to_string()))?;
                fs::remove_file(dir.join(file.to_string()))?;
            }
            operations += 48;
        }
        Ok(operations)
    };
    let operations = thread::scope(|scope| {
        let clients: Vec<_> = (0..8).map(|n| scope.spawn(move || client(n))).collect();
        clients.into_iter().map(|c| c.join().expect("a client returns its errors")).sum::<Result<u64>>()
    })?;
    Ok(Outcome { rate: float(operations) / start.elapsed().as_secs_f64(), p99_micros: None })
}
