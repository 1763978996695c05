//! What it is worth that pages do not tear: PostgreSQL and MariaDB that guard against torn pages by themselves, on the
//! kernel's ext4, against the same servers without that, on Quire. Transactions a second, and bytes to the device.
//!
//! Each run has a fresh file system and a fresh database on the same device. The bytes are those that the device was
//! asked to write from the first transaction until after the unmount, so nothing that is only put off is left out.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::servers_load::{Guard, Load};
use crate::cmd::{is_root, run_tool, text};
use crate::mounter::Mounter;
use crate::results::{Host, date};
use crate::served::{Kind, Looped};
use crate::stats::{float, median};

/// What to measure.
#[derive(Debug, clap::Args)]
pub struct Plan {
    /// own, free, ssd, samsung840, intel311, emmc, hdd7200 or hdd15k; may be repeated
    #[arg(long, default_value = "ssd")]
    pub device: Vec<Kind>,
    /// pgbench or sysbench; may be repeated
    #[arg(long, default_values = ["pgbench", "sysbench"])]
    pub load: Vec<Load>,
    #[arg(long, value_delimiter = ',', default_values_t = [1, 16])]
    pub clients: Vec<u32>,
    /// Who has to trust that pages do not tear
    #[arg(long, default_value = "quire:profile=database,cache_size=1G")]
    pub quire: Mounter,
    /// Whose server guards its pages
    #[arg(long, default_value = "kernel:data=ordered")]
    pub kernel: Mounter,
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// How long each run lasts; checkpoints come every 30 s
    #[arg(long, default_value_t = 300)]
    pub seconds: u32,
    /// Size of the database: for each 100,000 accounts of pgbench, or 4,000 rows in each of sysbench's four tables
    #[arg(long, default_value_t = 20)]
    pub scale: u32,
    /// Size of the device in MiB
    #[arg(long, default_value_t = 3072)]
    pub mib: u64,
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    pub work: PathBuf,
    /// A data file (bench/results) whose rows of the same name are replaced
    #[arg(long)]
    pub save: Option<PathBuf>,
}

/// One run.
#[derive(Clone, Copy, Debug)]
struct Measured {
    /// Transactions a second.
    rate: f64,
    transactions: f64,
    written_bytes: f64,
}

impl Measured {
    fn bytes_each(&self) -> f64 {
        self.written_bytes / self.transactions.max(1.0)
    }
}

/// The two that are compared, over all rounds.
struct Pair {
    name: String,
    kernel: Vec<Measured>,
    quire: Vec<Measured>,
}

fn middle(of: &[Measured], what: impl Fn(&Measured) -> f64) -> f64 {
    median(&of.iter().map(what).collect::<Vec<_>>())
}

impl Pair {
    /// As the columns of the table.
    fn cells(&self) -> [String; 7] {
        let of = |what: fn(&Measured) -> f64| (middle(&self.kernel, what), middle(&self.quire, what));
        let (rate, bytes) = (of(|m| m.rate), of(Measured::bytes_each));
        [
            self.name.clone(),
            format!("{:.0}", rate.0),
            format!("{:.0}", rate.1),
            format!("{:.2}", rate.1 / rate.0),
            format!("{:.0}", bytes.0),
            format!("{:.0}", bytes.1),
            format!("{:.2}", bytes.1 / bytes.0),
        ]
    }
}

impl fmt::Display for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| {} |", self.cells().join(" | "))
    }
}

const COLUMNS: [&str; 6] = ["kernel, tps", "Quire, tps", "ratio", "kernel, bytes each", "Quire, bytes each", "ratio"];

/// Measures and prints the table. A server that is missing is skipped by name.
///
/// # Errors
/// Not root; no Quire; a run fails.
pub fn measure(plan: &Plan) -> Result<()> {
    ensure!(is_root(), "the benchmark needs root, for the loop device and the kernel's ext4");
    for mounter in [&plan.quire, &plan.kernel] {
        if let Some(why) = mounter.unavailable() {
            bail!("{mounter}: {why}");
        }
    }
    println!("{} rounds of {} s, scale {}", plan.rounds, plan.seconds, plan.scale);
    println!("| | {} |\n|{}", COLUMNS.join(" | "), "---|".repeat(COLUMNS.len() + 1));
    for kind in &plan.device {
        let dir = tempfile::Builder::new().prefix("quire-databases-").tempdir_in(&plan.work)?;
        run_tool("chmod", ["0755", text(dir.path())])?;
        let device = Looped::new(kind, plan.mib << 20, dir.path())?;
        for load in &plan.load {
            if let Some(why) = load.unavailable() {
                println!("skipped {load}: {why}");
                continue;
            }
            for clients in &plan.clients {
                let pair = compare(plan, *load, *clients, (kind, device.device(), dir.path()))?;
                println!("{pair}");
                if let Some(file) = &plan.save {
                    save(file, plan, &pair).with_context(|| format!("{}", file.display()))?;
                }
            }
        }
    }
    Ok(())
}

fn compare(plan: &Plan, load: Load, clients: u32, (kind, device, dir): (&Kind, &Path, &Path)) -> Result<Pair> {
    let (mut kernel, mut quire) = (Vec::new(), Vec::new());
    for round in 0..plan.rounds {
        for turn in 0..2 {
            // Who comes first changes from round to round.
            let is_quire = (turn + round) % 2 == 1;
            let (mounter, guard) =
                if is_quire { (&plan.quire, Guard::FileSystem) } else { (&plan.kernel, Guard::Server) };
            eprintln!("{load}, {clients} clients, {kind}, round {}: {mounter}", round + 1);
            let measured = one(plan, load, clients, (mounter, guard), (device, dir))
                .with_context(|| format!("{load} on {mounter}"))?;
            if is_quire { quire.push(measured) } else { kernel.push(measured) }
        }
    }
    let plural = if clients == 1 { "" } else { "s" };
    Ok(Pair { name: format!("{load}, {clients} client{plural}, {kind}"), kernel, quire })
}

fn one(
    plan: &Plan,
    load: Load,
    clients: u32,
    (mounter, guard): (&Mounter, Guard),
    (device, dir): (&Path, &Path),
) -> Result<Measured> {
    let lazy = "lazy_itable_init=0,lazy_journal_init=0,nodiscard";
    run_tool("mke2fs", ["-q", "-F", "-t", "ext4", "-E", lazy, text(device)])?;
    let mounted = mounter.mount(device, &dir.join("mnt"))?;
    let mut before = 0;
    let done = load.run(
        (mounted.dir(), &dir.join("sockets")),
        (clients, plan.seconds, plan.scale),
        guard,
        &mut || -> Result<()> {
            run_tool("sync", ["-f", text(mounted.dir())])?;
            before = written_bytes(device)?;
            Ok(())
        },
    );
    mounted.unmount()?;
    let done = done?;
    let written = written_bytes(device)? - before;
    Ok(Measured { rate: done.rate, transactions: float(done.transactions), written_bytes: float(written) })
}

/// What a block device has been asked to write: Documentation/block/stat.rst of the kernel, field 7, in sectors.
fn written_bytes(device: &Path) -> Result<u64> {
    const SECTOR: u64 = 512;
    let name = device.file_name().context("a device")?;
    let stat = fs::read_to_string(Path::new("/sys/block").join(name).join("stat"))?;
    let sectors: u64 = stat.split_whitespace().nth(6).context("seven fields")?.parse()?;
    Ok(sectors * SECTOR)
}

/// Puts a row into a data file, in the place of the one of its name.
fn save(file: &Path, plan: &Plan, pair: &Pair) -> Result<()> {
    let mut data: Value = match fs::read_to_string(file) {
        Ok(text) => serde_json::from_str(&text)?,
        Err(_) => json!({ "rows": [] }),
    };
    data["title"] = "Databases that guard their pages on the kernel's ext4, and need not on Quire".into();
    data["date"] = date(SystemTime::now()).into();
    data["host"] = Host::here().line().into();
    data["note"] = format!(
        "Medians of {} rounds of {} s, scale {}; {} with full_page_writes=on and the doublewrite buffer, {} with both off.",
        plan.rounds, plan.seconds, plan.scale, plan.kernel, plan.quire
    )
    .into();
    data["command"] = "make bench-databases".into();
    data["columns"] = json!(COLUMNS);
    let mut rows = data["rows"].as_array().cloned().unwrap_or_default();
    let new = json!(pair.cells());
    match rows.iter_mut().find(|old| old[0] == new[0]) {
        Some(old) => *old = new,
        None => rows.push(new),
    }
    data["rows"] = rows.into();
    Ok(fs::write(file, serde_json::to_string_pretty(&data)? + "\n")?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_quires_to_the_kernels() {
        let m = |rate, written_bytes| Measured { rate, transactions: 100.0, written_bytes };
        let pair = Pair { name: "x".into(), kernel: vec![m(10.0, 800.0)], quire: vec![m(15.0, 400.0)] };
        assert_eq!(pair.to_string(), "| x | 10 | 15 | 1.50 | 8 | 4 | 0.50 |");
    }
}
