//! DJFS, figures 8 and 9: TPC-C on SQLite, on the library on the modelled Samsung 840. Time is what the devices take
//! (virtual) and what the database's thread computes, SQLite and the file system (measured, and charged as it is used);
//! the background thread has a processor of its own.
//!
//! Where computing bounds the factor, the cap is shown: the same run on devices that take no time and without a
//! journal; on tmpfs; and on a mount whose disk and NVRAM are files in memory, both in real time.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use quire_device::Clock;
use quire_device::sync::Arc;
use quire_fs::{Cred, JournalStats, New, NewKind, WriteFlags};
use quire_layout::Ino;
use quire_testkit::Model;

use super::claims::{self, Claim};
use super::ways::{self, Place, Way};
use crate::cmd::{command, run, text};
use crate::image::Image;
use crate::mounter::Mounter;
use crate::rig::{Body, Rig, Traffic};
use crate::stats::median;
use crate::work::tpcc::{self, Grain, Journal, Limit, Report, Scale};
use crate::work::vfs::Vfs;

/// What is measured.
#[derive(Clone, Debug)]
pub struct Plan {
    pub scale: Scale,
    pub grain: Grain,
    /// Transactions where the journal is in NVRAM, and where it is on a device.
    pub transactions: u64,
    pub on_devices: u64,
    /// Size of every journal, in MiB.
    pub journal_mib: u64,
    /// Of SQLite: PERSIST and WAL, or one of them.
    pub journals: Vec<Journal>,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub report: Report,
    pub traffic: Traffic,
    /// Before and after.
    pub journal: [JournalStats; 2],
}

/// Of pages and blocks in memory: a small part of the paper's 8 GB.
const CACHE: u64 = 1 << 30;
const DATABASE: &str = "tpcc.db";
const SEED: u64 = 2;

/// File systems with the loaded database on them.
pub(super) struct Loaded {
    mib: u64,
    journal_mib: u64,
    database: Vec<u8>,
    internal: Vec<Vec<u8>>,
    external: Vec<Vec<u8>>,
}

impl Loaded {
    pub(super) fn new(plan: &Plan) -> Result<Self> {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory)? } else { tempfile::tempdir()? };
        let db = dir.path().join(DATABASE);
        eprintln!("loading {} warehouses", plan.scale.warehouses);
        tpcc::load(&db, Journal::Delete, plan.scale, 1)?;
        let database = fs::read(&db)?;
        let mib = (database.len() as u64 >> 20) * 3 / 2 + plan.journal_mib + 256;
        let mut loaded = Loaded { mib, journal_mib: plan.journal_mib, database, internal: vec![], external: vec![] };
        loaded.internal =
            Rig::filled(&loaded.plan(ways::ORDERED, Model::default(), Duration::ZERO), |rig| loaded.fill(rig))?;
        loaded.external =
            Rig::filled(&loaded.plan(ways::EXTERNAL, Model::default(), Duration::ZERO), |rig| loaded.fill(rig))?;
        Ok(loaded)
    }

    fn fill(&self, rig: &Rig) -> Result<()> {
        let new = New { kind: NewKind::File, mode: 0o600, umask: 0, cred: Cred::default() };
        let ino = rig.volume.create(Ino::ROOT, DATABASE.as_bytes(), &new)?.ino;
        rig.volume.write(ino, 0, &self.database, WriteFlags::default())?;
        rig.volume.sync().map_err(Into::into)
    }

    fn plan(&self, way: Way, model: Model, line: Duration) -> crate::rig::Plan {
        // The page cache above keeps what was read.
        let mut plan = way.plan(Model { cached: true, ..model }, self.mib, self.journal_mib, line);
        plan.options.cache_bytes = CACHE;
        plan
    }

    /// Runs so many transactions; a tenth as many go before them.
    pub(super) fn run(&self, way: Way, model: Model, line: Duration, journal: Journal, plan: &Plan) -> Result<Outcome> {
        let n =
            if way.place == Place::Nvram || model == Model::default() { plan.transactions } else { plan.on_devices };
        let contents = if way.place == Place::External { &self.external } else { &self.internal };
        let rig = Rig::over(&self.plan(way, model, line), contents.clone())?;
        let vfs = Vfs::new("quire", rig.volume.clone(), Arc::new(rig.world.clone()))?;
        let body: Body<'_, Result<Outcome>> = Box::new(|| {
            vfs.charge().start();
            let mut connection = vfs.open(DATABASE)?;
            let now = || {
                vfs.charge().pass();
                rig.world.monotonic()
            };
            tpcc::run_on(&mut connection, journal, plan.grain, SEED + 1, Limit::Transactions(n / 10), &now)?;
            let (before, stats) = (rig.counted(), rig.volume.maintenance().journal_stats());
            let report = tpcc::run_on(&mut connection, journal, plan.grain, SEED, Limit::Transactions(n), &now)?;
            let outcome = Outcome {
                report,
                traffic: rig.traffic(&before),
                journal: [stats, rig.volume.maintenance().journal_stats()],
            };
            drop(connection);
            Ok(outcome)
        });
        let outcome = rig.run(vec![body]).pop().expect("one thread").with_context(|| way.name)?;
        drop(vfs);
        rig.volume.close()?;
        eprintln!("{journal:?}, {}, +{line:?}: tpmC {:.0}, {:?}", way.name, outcome.report.tpm_c(), outcome.traffic);
        Ok(outcome)
    }

    /// Runs the mix with a cache of so many bytes; the blocks that SQLite touched, and the most images that the log
    /// pinned after a transaction.
    pub(super) fn observed(&self, journal: Journal, plan: &Plan, cache: u64) -> Result<(Vec<(Ino, u64)>, u64)> {
        let mut made = self.plan(ways::DJFS, Model::default(), Duration::ZERO);
        made.options.cache_bytes = cache;
        let rig = Rig::over(&made, self.internal.clone())?;
        let vfs = Vfs::new("quire", rig.volume.clone(), Arc::new(rig.world.clone()))?;
        let body: Body<'_, Result<u64>> = Box::new(|| {
            vfs.charge().start();
            let mut connection = vfs.open(DATABASE)?;
            vfs.trace();
            let most = Cell::new(0);
            let now = || {
                vfs.charge().pass();
                most.set(most.get().max(rig.volume.maintenance().journal_stats().memory.live as u64));
                rig.world.monotonic()
            };
            tpcc::run_on(&mut connection, journal, plan.grain, SEED, Limit::Transactions(plan.transactions), &now)?;
            Ok(most.get())
        });
        let most = rig.run(vec![body]).pop().expect("one thread")?;
        let trace = vfs.trace();
        drop(vfs);
        rig.volume.close()?;
        Ok((trace, most))
    }

    /// Transactions of New-Order a minute on tmpfs, and on a mount with everything in memory; in real time.
    fn in_memory(&self, journal: Journal, plan: &Plan) -> Result<[f64; 2]> {
        let dir = tempfile::tempdir_in("/dev/shm")?;
        let db = dir.path().join(DATABASE);
        let on = |db: &Path| -> Result<f64> {
            fs::write(db, &self.database)?;
            tpcc::run(db, journal, plan.grain, SEED + 1, Limit::Transactions(plan.transactions / 10))?;
            Ok(tpcc::run(db, journal, plan.grain, SEED, Limit::Transactions(plan.transactions))?.tpm_c())
        };
        let tmpfs = on(&db)?;
        fs::remove_file(&db)?;
        if let Some(why) = Mounter::quire("").unavailable() {
            println!("skipped the mount: {why}");
            return Ok([tmpfs, f64::NAN]);
        }
        let image = Image::make(&dir.path().join("image"), self.mib << 20, &["-b", "4096"])?;
        let nvram =
            format!("nvram={},nvram_simulated,nvram_size={}M", text(&dir.path().join("nvram")), self.journal_mib);
        let mounted =
            Mounter::quire(&format!("profile=djfs,noatime,{nvram}")).mount(image.path(), &dir.path().join("mnt"))?;
        let fuse = on(&mounted.dir().join(DATABASE))?;
        run(command("sync").arg(mounted.dir()))?;
        mounted.unmount()?;
        Ok([tmpfs, fuse])
    }
}

const WAYS: [Way; 6] = [ways::ORDERED, ways::JOURNAL, ways::EXTERNAL, ways::NVJ, ways::DJFS, ways::DJFS4];

/// Figure 8.
///
/// # Errors
/// A file system or SQLite failed.
pub fn figure8(plan: &Plan, in_memory: bool) -> Result<usize> {
    let loaded = Loaded::new(plan)?;
    let mut missed = 0;
    for journal in plan.journals.iter().copied() {
        let limit = if journal == Journal::Wal { 26.0 } else { 64.0 };
        let tpm_c =
            |way, model| Ok::<_, anyhow::Error>(loaded.run(way, model, Duration::ZERO, journal, plan)?.report.tpm_c());
        let each: Vec<f64> = WAYS.iter().map(|way| tpm_c(*way, Model::samsung_840())).collect::<Result<_>>()?;
        let cap = tpm_c(ways::NONE, Model::default())?;
        let [tmpfs, fuse] = if in_memory { loaded.in_memory(journal, plan)? } else { [f64::NAN; 2] };
        println!(
            "\nDJFS, figure 8, SQLite in {journal:?} mode, {}: tpmC on the modelled Samsung 840\n",
            grain(plan.grain)
        );
        println!(
            "| | {} | no device, no journal | tmpfs, real time | djfs in memory, FUSE, real time |",
            WAYS.map(|w| w.name).join(" | ")
        );
        println!("|---|{}", "---|".repeat(WAYS.len() + 3));
        let row = |name: &str, f: &dyn Fn(f64) -> String| {
            let cells: Vec<String> = each.iter().chain(&[cap, tmpfs, fuse]).map(|t| f(*t)).collect();
            println!("| {name} | {} |", cells.join(" | "));
        };
        row("tpmC", &|t| format!("{t:.0}"));
        let slowest = each[..3].iter().copied().fold(f64::INFINITY, f64::min);
        row("times the slowest", &|t| format!("{:.1}", t / slowest));
        let djfs = each[4];
        println!(
            "djfs / ordered {:.1}, / journal {:.1}, / external {:.1}",
            djfs / each[0],
            djfs / each[1],
            djfs / each[2]
        );
        missed += claims::print(
            &format!("figure 8, {journal:?}"),
            &[capped("djfs / the slowest", djfs / slowest, limit, cap / slowest)],
        );
    }
    Ok(missed)
}

pub(super) fn grain(grain: Grain) -> &'static str {
    match grain {
        Grain::Transaction => "a commit for each transaction",
        Grain::Statement => "a commit for each statement",
    }
}

/// A factor that is reached, or as good as the processor allows.
fn capped(what: &str, factor: f64, limit: f64, cap: f64) -> Claim {
    if factor >= limit {
        return Claim::at_least(what, factor, limit);
    }
    Claim::at_least(format!("{what} is {factor:.1} of {limit}; of the processor's cap of {cap:.1}"), factor / cap, 0.8)
}

/// What a cache line takes longer than in DRAM, in nanoseconds.
const LATENCIES: [u64; 5] = [0, 10, 20, 30, 40];
/// Rounds of what the processor bounds: how fast that is changes while other programs run.
const ROUNDS: usize = 3;

/// Figure 9.
///
/// # Errors
/// As [`figure8`].
pub fn figure9(plan: &Plan) -> Result<usize> {
    let loaded = Loaded::new(plan)?;
    let model = Model::samsung_840();
    let tpm_c = |(way, model, ns): (Way, Model, u64)| {
        Ok::<_, anyhow::Error>(loaded.run(way, model, Duration::from_nanos(ns), Journal::Persist, plan)?.report.tpm_c())
    };
    let external = tpm_c((ways::EXTERNAL, model, 0))?;
    let journal = tpm_c((ways::JOURNAL, model, 0))?;
    // The cap first, then NVJ and DJFS at each latency.
    let mut points = vec![(ways::NONE, Model::default(), 0)];
    points.extend(LATENCIES.iter().flat_map(|ns| [(ways::NVJ, model, *ns), (ways::DJFS, model, *ns)]));
    let mut measured = vec![Vec::new(); points.len()];
    for round in 0..ROUNDS {
        for turn in 0..points.len() {
            let n = (turn + round * points.len() / ROUNDS) % points.len();
            measured[n].push(tpm_c(points[n])?);
        }
    }
    let medians: Vec<f64> = measured.iter().map(|rounds| median(rounds)).collect();
    let (cap, rows) = (medians[0], medians[1..].chunks(2).map(|row| (row[0], row[1])).collect::<Vec<_>>());
    println!(
        "\nDJFS, figure 9, SQLite in Persist mode, {}: tpmC / external journaling's, medians of {ROUNDS} rounds\n",
        grain(plan.grain)
    );
    println!("| + ns | nvj | djfs | djfs / nvj |\n|---|---|---|---|");
    for (ns, (nvj, djfs)) in LATENCIES.iter().zip(&rows) {
        println!("| {ns} | {:.1} | {:.1} | {:.2} |", nvj / external, djfs / external, djfs / nvj);
    }
    println!("ext4-journal {:.2}; without device and journal {:.1}", journal / external, cap / external);
    let ((first_nvj, first_djfs), (nvj, djfs)) = (rows[0], rows[LATENCIES.len() - 1]);
    let claims = [
        capped("+40 ns: djfs / nvj (the paper: 3.52)", djfs / nvj, 3.5, cap / nvj),
        capped("+40 ns: djfs / ext4-journal (the paper: 38.89)", djfs / journal, 38.0, cap / journal),
        capped("+40 ns: nvj / ext4-journal (the paper: 11.06)", nvj / journal, 11.0, cap / journal),
        Claim::at_least(
            "djfs falls less than nvj: what is left of djfs / of nvj",
            djfs / first_djfs / (nvj / first_nvj),
            1.0,
        ),
    ];
    Ok(claims::print("figure 9", &claims))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tpc_c_runs_on_the_library_and_nvram_spares_every_flush() {
        if !crate::cmd::have("mke2fs") {
            println!("skipped: tpc_c_runs_on_the_library_and_nvram_spares_every_flush: no mke2fs");
            return;
        }
        let scale = Scale { warehouses: 1, customers: 30, items: 200, page: 1024 };
        let plan = Plan {
            scale,
            grain: Grain::Statement,
            transactions: 40,
            on_devices: 20,
            journal_mib: 16,
            journals: vec![],
        };
        let loaded = Loaded::new(&plan).unwrap();
        for journal in [Journal::Persist, Journal::Wal, Journal::Delete] {
            let run = |way| loaded.run(way, Model::samsung_840(), Duration::ZERO, journal, &plan).unwrap();
            let (ordered, djfs) = (run(ways::ORDERED), run(ways::DJFS));
            assert_eq!((ordered.report.transactions(), djfs.report.transactions()), (20, 40));
            assert!(ordered.traffic.flushes > 20, "{ordered:?}");
            assert_eq!(
                (djfs.traffic.flushes, djfs.traffic.journal),
                (0, 0),
                "no region was filled: no device is touched"
            );
            assert!(djfs.report.tpm_c() > 5.0 * ordered.report.tpm_c());
        }
    }
}
