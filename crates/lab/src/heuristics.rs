//! What each heuristic brings: what it is for, on a mount with it and on one without (`-o without=`), in changing
//! order, or in virtual time.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use quire_fs::{Profile, Without};
use quire_testkit::model::Model;

use crate::bench::clients::{self, DISK_BYTES};
use crate::bench::programs::Workload;
use crate::bench::table::{About, Row, Table};
use crate::cmd::is_root;
use crate::mounter::Mounter;
use crate::rig;
use crate::served::{Kind, Looped};
use crate::studies::isolation::{self, Into, Work};
use crate::turns::turns;

/// What a heuristic is measured with.
enum With {
    /// The rate of a workload, on a mount with these options over the machine's own disk or a modelled one.
    Rate(&'static str, &'static str, &'static str),
    /// The p99 of an append and fsync beside a stream, on a mount with these options over the modelled SSD.
    Mounted(&'static str),
    /// The same in virtual time on a disk that the stream overloads.
    Virtual(fn(&mut Without)),
}

/// By the names of `without=`.
const HEURISTICS: [(&str, With); 8] = [
    ("polling", With::Rate("tar", "", "own")),
    ("polling", With::Rate("tar", "tune=host", "own")),
    ("gathering", With::Rate("fsync16", "", "ssd")),
    ("dirty-limit", With::Mounted("tune=host")),
    ("streams-in-pages", With::Mounted("tune=host")),
    ("small-files", With::Virtual(|w| w.small_files = true)),
    ("pieces", With::Virtual(|w| w.pieces = true)),
    ("commit-first", With::Virtual(|w| w.commit_first = true)),
];

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Plan {
    /// Only these, by the names of without=
    #[arg(long = "only", value_delimiter = ',')]
    pub heuristics: Vec<String>,
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// How long a workload runs that has no end of its own
    #[arg(long, default_value_t = 6)]
    pub seconds: u32,
    /// Where images are made
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    pub work: PathBuf,
    /// A data file (bench/results) to write
    #[arg(long)]
    pub save: Option<PathBuf>,
}

/// Measures and prints the table.
///
/// # Errors
/// Not root; a mount or a workload failed.
pub fn measure(plan: &Plan) -> Result<()> {
    if !is_root() {
        bail!("the benchmark needs root, for the loop device");
    }
    let dir = tempfile::Builder::new().prefix("quire-bench-").tempdir_in(&plan.work)?;
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let mut table = Table { columns: vec!["with it".into(), "without".into()], rows: Vec::new() };
    let wanted = |name: &str| plan.heuristics.is_empty() || plan.heuristics.iter().any(|h| h == name);
    for (name, with) in HEURISTICS.iter().filter(|(name, _)| wanted(name)) {
        eprintln!("{name}");
        table.rows.push(row(plan, name, with, dir.path()).with_context(|| (*name).to_owned())?);
    }
    table.print();
    let note = format!("Medians of {} rounds in turn; in virtual time one, because all are the same", plan.rounds);
    let about = About { title: "What each heuristic brings", note, command: "sudo scripts/bench.sh heuristics" };
    plan.save.as_ref().map_or(Ok(()), |file| table.save(file, &about))
}

fn row(plan: &Plan, name: &str, with: &With, dir: &Path) -> Result<Row> {
    let mounters = |options: &str| {
        let on = Mounter::quire(options);
        let off = on.with(&format!("without={name}"));
        [on, off]
    };
    let row = |what: String, unit, values| Row { name: format!("`{name}`: {what}"), unit, values };
    match with {
        With::Rate(workload, options, disk) => {
            let workload = clients::workload(workload)?;
            let values = in_turn(plan.rounds, &mounters(options), rate(plan, workload, &disk.parse()?, dir)?)?;
            let disk = if *disk == "own" { "" } else { ", modelled SSD" };
            let what = if options.is_empty() { disk.to_owned() } else { format!("{disk}, `{options}`") };
            Ok(row(format!("{}{what}", workload.name), workload.unit, values))
        }
        With::Mounted(options) => {
            let disk = Looped::new(&"ssd".parse()?, isolation::DISK_BYTES, dir)?;
            let work = Work { rate: 200_000_000, time: Duration::from_secs(plan.seconds.into()) };
            let p99 = |mounter: &Mounter| {
                Ok(isolation::run_mounted(mounter, &disk, Into::Files, work, dir)?.latency.p99 / 1e3)
            };
            let values = in_turn(plan.rounds, &mounters(options), p99)?;
            Ok(row(format!("append + fsync beside a stream, p99, modelled SSD, `{options}`"), "ms", values))
        }
        With::Virtual(turn_off) => {
            let model = Model::named("hdd7200").context("hdd7200")?;
            let mut off = rig::Plan::new(model, Profile::Auto);
            turn_off(&mut off.options.without);
            let work = Work { rate: 50_000_000, time: Duration::from_secs(10) };
            let p99 = |plan| -> Result<_> { Ok(vec![isolation::run_on(plan, Into::Files, work)?.latency.p99 / 1e3]) };
            let values = vec![p99(rig::Plan::new(model, Profile::Auto))?, p99(off)?];
            Ok(row("append + fsync beside a stream, p99, modelled disk, virtual".into(), "ms", values))
        }
    }
}

/// What runs a workload on a mounter.
fn rate<'a>(
    plan: &Plan,
    workload: &'a Workload,
    disk: &Kind,
    dir: &'a Path,
) -> Result<impl Fn(&Mounter) -> Result<f64> + use<'a>> {
    let (disk, seconds) = (Looped::new(disk, DISK_BYTES, dir)?, plan.seconds);
    Ok(move |mounter: &Mounter| Ok(clients::one(seconds, mounter, workload, disk.device(), dir)?.0.rate))
}

/// Figures of both in each round.
fn in_turn(rounds: usize, mounters: &[Mounter; 2], figure: impl Fn(&Mounter) -> Result<f64>) -> Result<Vec<Vec<f64>>> {
    let mut values = vec![Vec::new(); mounters.len()];
    for (_, who) in turns(rounds, mounters.len()) {
        values[who].push(figure(&mounters[who]).with_context(|| mounters[who].to_string())?);
    }
    Ok(values)
}
