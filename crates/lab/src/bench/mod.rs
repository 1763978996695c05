//! Speed, side by side: the kernel's ext4, fuse2fs and Quire on the same loop device in the same run. The order rotates
//! from round to round, each gets a fresh file system, and the medians are printed with the ratio to the first.
//!
//! Not a test: nothing here fails because something is slow.

pub mod clients;
mod cpus;
pub mod databases;
pub(crate) mod programs;
mod results;
mod servers_load;
pub mod start;
pub(crate) mod table;
pub mod toolbox;
mod work;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cmd::{is_root, quire, run, run_tool, text};
use crate::mounter::{Mounter, Who};
use crate::served::{Kind, Looped};
use crate::stats::{median, mib, range};

/// What to measure.
#[derive(Debug)]
pub struct Plan {
    pub mounters: Vec<Mounter>,
    pub rounds: usize,
    /// Files of the tree.
    pub files: u64,
    /// MiB of the sequential file.
    pub mib: u64,
    /// Durable 4 KiB writes.
    pub writes: u32,
    /// Where the image under the loop device is made.
    pub work: PathBuf,
}

/// A line of the table, and its unit.
const FIGURES: [(&str, &str); 12] = [
    ("overwrite 4 KiB + fdatasync", "us"),
    ("append 4 KiB + fdatasync", "us"),
    ("unpack the tree + sync", "s"),
    ("delete the tree + sync", "s"),
    ("sequential write", "MiB/s"),
    ("sequential read", "MiB/s"),
    ("daemon, peak resident", "MiB"),
    ("unmount", "s"),
    ("FUSE requests to unpack a file", ""),
    ("the same, root's tar", ""),
    ("FUSE requests to delete a file", ""),
    ("a cache line to another CPU and back, before deleting", "ns"),
];

/// Figures of one round, by the index in `FIGURES`.
type Round = [Option<f64>; FIGURES.len()];

/// Measures and prints the table.
pub fn measure(plan: &Plan) -> Result<()> {
    if !is_root() {
        bail!("the benchmark needs root, for the loop device and the kernel's ext4");
    }
    let mounters = Mounter::available(&plan.mounters)?;
    let dir = tempfile::Builder::new().prefix("quire-bench-").tempdir_in(&plan.work)?;
    // An ordinary user, whose tree it is, comes by on the way to the mount.
    std::fs::set_permissions(dir.path(), PermissionsExt::from_mode(0o711))?;
    let tar = work::archive(dir.path(), plan.files)?;
    let size = (plan.mib << 20) * 2 + plan.files * 24 * 1024 + (512 << 20);
    let disk = Looped::new(&Kind::Own, size >> 20 << 20, dir.path())?;
    println!(
        "{} rounds on {} ({} MiB); {} files; {} MiB sequential",
        plan.rounds,
        disk.device().display(),
        size >> 20,
        plan.files,
        plan.mib
    );

    let (mut raw, mut trips) = (Vec::new(), Vec::new());
    let mut rounds: BTreeMap<usize, Vec<Round>> = BTreeMap::new();
    for round in 0..plan.rounds {
        raw.push(work::raw_write(disk.device(), plan.writes)?);
        for turn in 0..mounters.len() {
            let who = (turn + round) % mounters.len();
            let mounter = &mounters[who];
            eprintln!("round {}: {mounter}", round + 1);
            trips.extend(cpus::round_trip()?);
            let figures = one(plan, mounter, disk.device(), dir.path(), &tar).with_context(|| format!("{mounter}"))?;
            rounds.entry(who).or_default().push(figures);
        }
    }
    println!("\nraw device, 4 KiB O_DIRECT write + fdatasync: {:.0} us", median(&raw));
    if let Some((least, most)) = range(&trips) {
        println!("a cache line to another CPU and back: {:.0} ns ({least:.0} .. {most:.0})", median(&trips));
    }
    println!();
    print_table(&mounters, &rounds);
    Ok(())
}

fn one(plan: &Plan, mounter: &Mounter, device: &Path, dir: &Path, tar: &Path) -> Result<Round> {
    run_tool(
        "mke2fs",
        [
            "-q",
            "-F",
            "-t",
            "ext4",
            "-b",
            "4096",
            "-i",
            "12288",
            "-E",
            "lazy_itable_init=0,lazy_journal_init=0",
            text(device),
        ],
    )?;
    let mut figures = Round::default();
    let mounted = mounter.mount(device, &dir.join("mnt"))?;
    let mnt = mounted.dir();
    figures[0] = Some(work::overwrite(mnt, plan.writes)?);
    figures[1] = Some(work::append(mnt, plan.writes)?);
    let before = requests(mounter, mnt)?;
    figures[2] = Some(work::unpack(mnt, tar)?);
    figures[8] = requests(mounter, mnt)?.zip(before).map(|(after, before)| (after - before) / files(plan));
    let before = requests(mounter, mnt)?;
    figures[11] = cpus::round_trip()?;
    figures[3] = Some(work::delete(mnt)?);
    figures[10] = requests(mounter, mnt)?.zip(before).map(|(after, before)| (after - before) / files(plan));
    figures[4] = Some(work::stream_write(mnt, plan.mib)?);
    if let Some(before) = requests(mounter, mnt)? {
        work::unpack_as_root(mnt, tar)?;
        figures[9] = requests(mounter, mnt)?.map(|after| (after - before) / files(plan));
    }
    let written = mounted.peak_memory();
    let start = std::time::Instant::now();
    mounted.unmount()?;
    figures[7] = Some(start.elapsed().as_secs_f64());
    // A fresh mount has nothing of the file in memory, neither the kernel nor a daemon.
    let mounted = mounter.mount(device, &dir.join("mnt"))?;
    figures[5] = Some(work::stream_read(mounted.dir(), plan.mib)?);
    figures[6] = written.max(mounted.peak_memory()).map(mib);
    mounted.unmount()?;
    Ok(figures)
}

fn files(plan: &Plan) -> f64 {
    f64::from(u32::try_from(plan.files).unwrap_or(u32::MAX))
}

/// How many FUSE requests Quire has served.
fn requests(mounter: &Mounter, mnt: &Path) -> Result<Option<f64>> {
    if mounter.who != Who::Quire {
        return Ok(None);
    }
    let said = run(Command::new(quire()?).args(["stats", "--json"]).arg(mnt))?;
    let stats: serde_json::Value = serde_json::from_str(&said)?;
    Ok(stats["requests"].as_f64())
}

/// Medians, and in brackets the ratio to the first column.
fn print_table(mounters: &[Mounter], rounds: &BTreeMap<usize, Vec<Round>>) {
    let names: Vec<String> = mounters.iter().map(ToString::to_string).collect();
    println!("| | unit | {} |", names.join(" | "));
    println!("|---|---|{}", "---|".repeat(names.len()));
    for (n, (figure, unit)) in FIGURES.iter().enumerate() {
        let medians: Vec<Option<f64>> = (0..mounters.len())
            .map(|who| {
                let values: Vec<f64> = rounds.get(&who)?.iter().filter_map(|round| round[n]).collect();
                (!values.is_empty()).then(|| median(&values))
            })
            .collect();
        let base = medians[0];
        let cells: Vec<String> = medians
            .iter()
            .map(|value| match (value, base) {
                (None, _) => "-".to_owned(),
                (Some(value), Some(base)) if base > 0.0 => format!("{value:.2} ({:.2})", value / base),
                (Some(value), _) => format!("{value:.2}"),
            })
            .collect();
        println!("| {figure} | {unit} | {} |", cells.join(" | "));
    }
}
