//! Many clients and whole programs, side by side: each mounter gets a fresh file system for each workload, the order
//! rotates from round to round, and medians are printed with their spread and the ratio to the first mounter. Of Quire
//! also the daemon's threads, context switches to a request, and fsyncs to a commit.
//!
//! Not a test: nothing here fails because something is slow. A workload whose program is missing is skipped by name.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::programs::{Outcome, WORKLOADS, Workload};
use super::results::{self, Row};
use crate::cmd::{have, is_root, quire, run, run_tool, text};
use crate::mounter::{Mounter, Who};
use crate::served::{Kind, Looped};
use crate::stats::{float, median};
use crate::turns::turns;

/// Bytes of the disk that all use.
pub(crate) const DISK_BYTES: u64 = 2 << 30;

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Plan {
    /// kernel, fuse2fs or quire with :OPTIONS; the first is what the others are compared with
    #[arg(long = "mounter", default_values = ["kernel:data=ordered", "quire", "quire:tune=host"])]
    pub mounters: Vec<Mounter>,
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Only these: fsync1, fsync4, fsync16, fsync64, randread16, dbench, pgbench1, pgbench16, sysbench1, sysbench16,
    /// git, tar, names8
    #[arg(long = "only", value_delimiter = ',')]
    pub workloads: Vec<String>,
    /// How long each workload runs that has no end of its own
    #[arg(long, default_value_t = 6)]
    pub seconds: u32,
    /// own: a loop device over a file of the host; or a modelled device: ssd, hdd7200, ...
    #[arg(long = "on", default_value = "own", conflicts_with = "device")]
    pub on: Kind,
    /// A block device to use instead; its contents are lost
    #[arg(long)]
    pub device: Option<PathBuf>,
    /// Where the image under the loop device is made
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    pub work: PathBuf,
    /// A data file (bench/results) whose rows of these workloads and mounters are replaced
    #[arg(long)]
    pub save: Option<PathBuf>,
}

/// What the daemon did meanwhile.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Daemon {
    threads: usize,
    switches: f64,
    fsyncs: f64,
}

/// Measures and prints the table.
///
/// # Errors
/// Not root; an unknown workload; no mounter works here.
pub fn measure(plan: &Plan) -> Result<()> {
    if !is_root() {
        bail!("the benchmark needs root, for the loop device and the kernel's ext4");
    }
    let chosen = choose(&plan.workloads)?;
    let mounters = Mounter::available(&plan.mounters)?;
    let dir = tempfile::Builder::new().prefix("quire-bench-").tempdir_in(&plan.work)?;
    // Databases run as their own users, who come by on the way to the mount.
    fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let disk = match &plan.device {
        Some(_) => None,
        None => Some(Looped::new(&plan.on, DISK_BYTES, dir.path())?),
    };
    let device = plan.device.as_deref().or(disk.as_ref().map(Looped::device)).expect("one of the two");
    println!("{} rounds of {} s on {}", plan.rounds, plan.seconds, device.display());
    println!("{}", results::HEAD);
    for workload in chosen {
        if let Some(missing) = workload.needs.iter().find(|tool| !have(tool)) {
            println!("skipped {}: no {missing}", workload.name);
            continue;
        }
        let mut rounds: BTreeMap<usize, Vec<Round>> = BTreeMap::new();
        for (round, who) in turns(plan.rounds, mounters.len()) {
            eprintln!("{}, round {}: {}", workload.name, round + 1, mounters[who]);
            match one(plan.seconds, &mounters[who], workload, device, dir.path()) {
                Ok(outcome) => rounds.entry(who).or_default().push(outcome),
                Err(e) => println!("failed {} on {}: {e:#}", workload.name, mounters[who]),
            }
        }
        let rows = rows(workload, &mounters, &rounds);
        rows.iter().for_each(|row| println!("{row}"));
        if let Some(file) = &plan.save {
            results::save(file, &rows).with_context(|| format!("{}", file.display()))?;
        }
    }
    Ok(())
}

fn choose(names: &[String]) -> Result<Vec<&'static Workload>> {
    if names.is_empty() {
        return Ok(WORKLOADS.iter().collect());
    }
    names.iter().map(|name| workload(name)).collect()
}

/// The workload of this name.
///
/// # Errors
/// The names that there are.
pub(crate) fn workload(name: &str) -> Result<&'static Workload> {
    let all = || WORKLOADS.iter().map(|w| w.name).collect::<Vec<_>>().join(", ");
    WORKLOADS.iter().find(|w| w.name == name).with_context(|| format!("no workload {name}; there are {}", all()))
}

/// Runs a workload once, for `seconds` if it has no end of its own, on a fresh file system of the device.
///
/// # Errors
/// The file system or the workload failed.
pub(crate) fn one(seconds: u32, mounter: &Mounter, workload: &Workload, device: &Path, dir: &Path) -> Result<Round> {
    let lazy = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
    run_tool("mke2fs", ["-q", "-F", "-t", "ext4", "-E", lazy, text(device)])?;
    let mounted = mounter.mount(device, &dir.join("mnt"))?;
    let mnt = mounted.dir().to_owned();
    (workload.prepare)(&mnt)?;
    let pid = (mounter.who == Who::Quire).then(|| about(&mnt)).transpose()?;
    let before = pid.map(|pid| Usage::now(pid, &mnt)).transpose()?;
    let over = AtomicBool::new(false);
    let (outcome, threads) = thread::scope(|scope| {
        let watcher = pid.map(|pid| {
            scope.spawn({
                let over = &over;
                move || {
                    let mut most = 0;
                    while !over.load(Ordering::Relaxed) {
                        most = most.max(threads_of(pid).unwrap_or(0));
                        thread::sleep(Duration::from_millis(200));
                    }
                    most
                }
            })
        });
        let outcome = (workload.run)(&mnt, seconds);
        over.store(true, Ordering::Relaxed);
        (outcome, watcher.map(|w| w.join().expect("it only counts")))
    });
    let outcome = outcome?;
    let daemon = match (pid, before, threads) {
        (Some(pid), Some(before), Some(threads)) => Some(Usage::now(pid, &mnt)?.since(&before, threads)),
        _ => None,
    };
    mounted.unmount()?;
    Ok((outcome, daemon))
}

/// What a round gives.
pub(crate) type Round = (Outcome, Option<Daemon>);

/// Counters of a daemon.
struct Usage {
    switches: u64,
    requests: u64,
    fsyncs: u64,
    commits: u64,
}

impl Usage {
    fn now(pid: u32, mnt: &Path) -> Result<Self> {
        let stats = stats(&["stats", "--json"], mnt)?;
        let number = |path: &str| stats.pointer(path).and_then(serde_json::Value::as_u64).unwrap_or(0);
        Ok(Usage {
            switches: switches_of(pid)?,
            requests: number("/requests"),
            fsyncs: number("/requests_by_kind/fsync"),
            commits: number("/journal/transactions"),
        })
    }

    fn since(&self, before: &Usage, threads: usize) -> Daemon {
        let ratio = |a: u64, b: u64| float(a) / float(b.max(1));
        Daemon {
            threads,
            switches: ratio(self.switches.saturating_sub(before.switches), self.requests - before.requests),
            fsyncs: ratio(self.fsyncs - before.fsyncs, self.commits - before.commits),
        }
    }
}

fn stats(args: &[&str], mnt: &Path) -> Result<serde_json::Value> {
    Ok(serde_json::from_str(&run(Command::new(quire()?).args(args).arg(mnt))?)?)
}

/// The process that serves a mount: the one whose arguments name it.
fn about(mnt: &Path) -> Result<u32> {
    for entry in fs::read_dir("/proc")? {
        let entry = entry?;
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let Ok(line) = fs::read(entry.path().join("cmdline")) else { continue };
        let args: Vec<&[u8]> = line.split(|b| *b == 0).collect();
        let is_quire = args[0].ends_with(b"quire") && args.contains(&&b"mount"[..]);
        if is_quire && args.contains(&text(mnt).as_bytes()) {
            return Ok(pid);
        }
    }
    bail!("no daemon serves {}", mnt.display())
}

fn threads_of(pid: u32) -> Result<usize> {
    Ok(fs::read_dir(format!("/proc/{pid}/task"))?.count())
}

/// Context switches of all threads that live.
fn switches_of(pid: u32) -> Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        // A thread may end meanwhile.
        let status = fs::read_to_string(task?.path().join("status")).unwrap_or_default();
        let counts = status.lines().filter_map(|l| l.split_once("ctxt_switches:")?.1.trim().parse::<u64>().ok());
        sum += counts.sum::<u64>();
    }
    ensure!(sum > 0, "process {pid} has ended");
    Ok(sum)
}

/// A row for each mounter that has run.
fn rows(workload: &Workload, mounters: &[Mounter], rounds: &BTreeMap<usize, Vec<Round>>) -> Vec<Row> {
    let mut base = None;
    let row = |(who, rounds): (&usize, &Vec<Round>)| {
        let middle = |of: &dyn Fn(&Round) -> Option<f64>| {
            let values: Vec<f64> = rounds.iter().filter_map(of).collect();
            (!values.is_empty()).then(|| median(&values))
        };
        let rates: Vec<f64> = rounds.iter().map(|(o, _)| o.rate).collect();
        let rate = median(&rates);
        Row {
            workload: workload.name.to_owned(),
            unit: workload.unit.to_owned(),
            mounter: mounters[*who].to_string(),
            ratio: rate / *base.get_or_insert(rate),
            rate,
            rates,
            p99_micros: middle(&|(o, _)| o.p99_micros),
            threads: middle(&|(_, d)| d.map(|d| float(d.threads as u64))),
            switches: middle(&|(_, d)| d.map(|d| d.switches)),
            fsyncs: middle(&|(_, d)| d.map(|d| d.fsyncs)),
        }
    };
    rounds.iter().map(row).collect()
}
