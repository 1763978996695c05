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

use super::ways::{self, Place, Way};
use crate::cmd::{command, run, text};
use crate::image::Image;
use crate::mounter::Mounter;
use crate::results::{Claim, Figure, Findings};
use crate::rig::{Body, Rig, Traffic};
use crate::stats::{Spread, left_by_line};
use crate::work::tpcc::{self, Grain, Journal, Limit, Report, Scale};
use crate::work::vfs::Vfs;
use calibration::COMPUTED;

mod calibration;

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
        self.run_beside(way, model, line, journal, plan, Duration::ZERO)
    }

    /// As [`Loaded::run`], where each transaction takes so much time beside what is computed and waited for.
    fn run_beside(
        &self,
        way: Way,
        model: Model,
        line: Duration,
        journal: Journal,
        plan: &Plan,
        beside: Duration,
    ) -> Result<Outcome> {
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
                rig.world.sleep(beside);
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
pub fn figure8(plan: &Plan, in_memory: bool) -> Result<Findings> {
    let loaded = Loaded::new(plan)?;
    let mut f = plan.assumed();
    for journal in plan.journals.iter().copied() {
        let mode = journal.name();
        let printed = if journal == Journal::Wal { "26.5" } else { "64.2" };
        let tpm_c =
            |way, model| Ok::<_, anyhow::Error>(loaded.run(way, model, Duration::ZERO, journal, plan)?.report.tpm_c());
        let each: Vec<f64> = WAYS.iter().map(|way| tpm_c(*way, Model::samsung_840())).collect::<Result<_>>()?;
        let free = loaded.run(ways::NONE, Model::default(), Duration::ZERO, journal, plan)?.report;
        let cap = free.tpm_c();
        let title = format!("{mode}: TPC-C on SQLite, {}", grain(plan.grain));
        let id = format!("djfs-8-{}", mode.to_lowercase());
        let mut figure = Figure::bars(&id, "figure 8", title, "journal", "tpmC").of_series(["tpmC"]).logarithmic();
        for (way, tpm_c) in WAYS.iter().zip(&each) {
            figure.place(way.name, [*tpm_c]);
        }
        figure.place("no device", [cap]);
        if in_memory {
            let [tmpfs, fuse] = loaded.in_memory(journal, plan)?;
            figure.place("tmpfs", [tmpfs]);
            figure.place("FUSE", [fuse]);
        }
        f.figures.push(figure);
        f.figures.push(loaded.by_flush(journal, plan, printed)?);
        let (figure, swept) = loaded.by_computing(journal, plan, free.rate(), printed)?;
        f.figures.push(figure);
        let slowest = each[..3].iter().copied().fold(f64::INFINITY, f64::min);
        let says = format!("DJFS is up to {printed} times as fast as ext4 with its journal on a device");
        let what = format!("{mode}: djfs / the slowest of three");
        f.claims
            .push(Claim::at_least("figure 8", &says, what, each[4] / slowest, printed).calibrated(&swept, COMPUTED));
    }
    if in_memory {
        f.assume("tmpfs, FUSE: the same in real time, everything in memory; no device: what computing alone allows");
    }
    Ok(f)
}

pub(super) fn grain(grain: Grain) -> &'static str {
    match grain {
        Grain::Transaction => "a commit for each transaction",
        Grain::Statement => "a commit for each statement",
    }
}

impl Plan {
    /// What the studies of TPC-C take for granted.
    pub(super) fn assumed(&self) -> Findings {
        let mut f = Findings::default();
        let s = &self.scale;
        f.assume(format!(
            "TPC-C with {} warehouses, {} customers and {} items to each (the paper: 10, 3000, 100000)",
            s.warehouses, s.customers, s.items
        ));
        f.assume(format!(
            "SQLite's pages of {} bytes, its default then; {}, which is assumed: table 1 shows which multiple of \
             ordered's data ext4-journal then writes to the journal, beside the paper's",
            s.page,
            grain(self.grain)
        ));
        f.assume(format!(
            "drive: model samsung840 (write 50 us, 130 MB/s, flush 2 ms and 1 us to each dirty \
             KiB; all of it assumed); journals of {} MiB; {} transactions in NVRAM, {} on \
             devices",
            self.journal_mib, self.transactions, self.on_devices
        ));
        f.assume(ways::ASSUMED);
        f.assume(
            "time is what devices take (virtual) and what the database's thread computes (measured): not \
             the same to the byte in two runs",
        );
        f
    }
}

/// What a cache line takes longer than in DRAM, in nanoseconds.
const LATENCIES: [u64; 5] = [0, 10, 20, 30, 40];
/// Rounds of what the processor bounds: how fast that is changes while other programs run.
const ROUNDS: usize = 3;

/// Figure 9.
///
/// # Errors
/// As [`figure8`].
pub fn figure9(plan: &Plan) -> Result<Findings> {
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
            measured[n].push(tpm_c(points[n])? / external);
        }
    }
    let spread: Vec<Spread> = measured.into_iter().map(Spread::of).collect();
    let title = format!("TPC-C on SQLite (PERSIST) by the latency of NVRAM, {}", grain(plan.grain));
    let mut figure = Figure::bars("djfs-9", "figure 9", title, "ns more than DRAM", "times external journaling")
        .of_series(["nvj", "djfs", "no device"]);
    for (n, ns) in LATENCIES.iter().enumerate() {
        figure.place(ns, [&spread[1 + 2 * n], &spread[2 + 2 * n], &spread[0]]);
    }
    let medians: Vec<f64> = spread.iter().map(|s| s.median).collect();
    let free = loaded.run(ways::NONE, Model::default(), Duration::ZERO, Journal::Persist, plan)?.report;
    let (by_computing, computing) = loaded.figure9_by_computing(plan, free.rate())?;
    let (by_store, store) = loaded.by_store(plan)?;
    let mut f = plan.assumed();
    f.figures.extend([figure, by_computing, by_store]);
    f.claims = figure9_claims(journal / external, &medians, &computing, &store);
    Ok(f)
}

/// Of full journaling on the disk, and of the cap, NVJ and DJFS at each latency: times external journaling.
fn figure9_claims(journal: f64, medians: &[f64], [djfs, nvj]: &[Vec<f64>; 2], store: &[f64]) -> Vec<Claim> {
    let (last_nvj, last_djfs) = (medians[medians.len() - 2], medians[medians.len() - 1]);
    // The cap comes first, then NVJ and DJFS in turn.
    let of = |first: usize| -> Vec<f64> { medians[first..].iter().step_by(2).copied().collect() };
    let (left_of_nvj, left_of_djfs) = (left_by_line(&of(1)), left_by_line(&of(2)));
    let at = "figure 9";
    vec![
        Claim::at_least(
            at,
            "DJFS is up to 3.52 times as fast as journaling in NVRAM alone",
            "+40 ns: djfs / nvj",
            last_djfs / last_nvj,
            "3.52",
        )
        .calibrated(
            store,
            "a store is a cache line's latency here; the paper's flush each line and wait for a fence besides, and how long \
             that takes is not known",
        ),
        Claim::at_least(
            at,
            "DJFS is at worst 38.89 times as fast as full journaling on the disk",
            "+40 ns: djfs / ext4-journal",
            last_djfs / journal,
            "38.89",
        )
        .calibrated(djfs, COMPUTED),
        Claim::at_least(
            at,
            "journaling in NVRAM alone at worst 11.06 times",
            "+40 ns: nvj / ext4-journal",
            last_nvj / journal,
            "11.06",
        )
        .calibrated(nvj, COMPUTED),
        Claim::at_most(
            at,
            "journaling in NVRAM alone falls fast with the latency",
            "nvj: +40 ns / 0, by the line through all",
            left_of_nvj,
            0.9,
        ),
        Claim::above(
            at,
            "DJFS falls less than that",
            "what is left of djfs / of nvj, by the lines through all",
            left_of_djfs / left_of_nvj,
            1.0,
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tpc_c_runs_on_the_library_and_nvram_spares_every_flush() {
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
