//! TPC-C on SQLite on the library: file systems with the loaded database on them, and a run of the mix.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use quire_device::Clock;
use quire_device::sync::Arc;
use quire_fs::{Cred, JournalStats, New, NewKind, WriteFlags};
use quire_layout::Ino;
use quire_testkit::{Model, VirtualThreads};

use super::super::ways::{self, Place, Way};
use crate::cmd::{command, run, text};
use crate::image::Image;
use crate::interrupt::{Folder, MEMORY};
use crate::mounter::Mounter;
use crate::rig::{Body, Rig, Traffic};
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
    /// How often what the processor bounds is measured: how fast that is changes while other programs run.
    pub rounds: usize,
    /// Size of every journal, in MiB.
    pub journal_mib: u64,
    /// Of SQLite: PERSIST and WAL, or one of them.
    pub journals: Vec<Journal>,
}

/// What a run has beside its way, SQLite's journal and the plan.
#[derive(Clone, Copy, Debug)]
pub(in crate::studies) struct Machine {
    pub model: Model,
    /// What a cache line takes that is stored in NVRAM, beside the memory's own time.
    pub line: Duration,
    /// How many times as long computing takes as here.
    pub computing: f64,
    /// How long inode times stand still.
    pub file_tick: Duration,
}

impl Machine {
    /// This machine with such drives, and NVRAM as fast as its memory.
    pub(in crate::studies) const fn with(model: Model) -> Self {
        Machine { model, line: Duration::ZERO, computing: 1.0, file_tick: ways::TICK }
    }
}

/// The clock of a machine that computes so many times as long: what is charged as computed passes so many times.
struct Slower {
    clock: VirtualThreads,
    times: f64,
}

impl Clock for Slower {
    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn realtime(&self) -> Duration {
        self.clock.realtime()
    }

    fn sleep(&self, computed: Duration) {
        self.clock.sleep(computed.mul_f64(self.times));
    }
}

/// What a run came to.
#[derive(Clone, Debug)]
pub(in crate::studies) struct Outcome {
    pub report: Report,
    pub traffic: Traffic,
    /// Before and after.
    pub journal: [JournalStats; 2],
}

/// Of pages and blocks in memory: a small part of the paper's 8 GB.
pub(in crate::studies) const CACHE: u64 = 1 << 30;
const DATABASE: &str = "tpcc.db";
const SEED: u64 = 2;

/// File systems with the loaded database on them.
pub(in crate::studies) struct Loaded {
    mib: u64,
    journal_mib: u64,
    database: Vec<u8>,
    internal: Vec<Vec<u8>>,
    external: Vec<Vec<u8>>,
}

impl Loaded {
    pub(in crate::studies) fn new(plan: &Plan) -> Result<Self> {
        let dir = Folder::in_memory("quire-tpcc-")?;
        let db = dir.path().join(DATABASE);
        eprintln!("loading {} warehouses", plan.scale.warehouses);
        tpcc::load(&db, Journal::Delete, plan.scale, 1)?;
        let database = fs::read(&db)?;
        let mib = (database.len() as u64 >> 20) * 3 / 2 + plan.journal_mib + 256;
        let mut loaded = Loaded { mib, journal_mib: plan.journal_mib, database, internal: vec![], external: vec![] };
        let free = Machine::with(Model::default());
        loaded.internal = Rig::filled(&loaded.plan(ways::ORDERED, free), |rig| loaded.fill(rig))?;
        loaded.external = Rig::filled(&loaded.plan(ways::EXTERNAL, free), |rig| loaded.fill(rig))?;
        Ok(loaded)
    }

    fn fill(&self, rig: &Rig) -> Result<()> {
        let new = New { kind: NewKind::File, mode: 0o600, umask: 0, cred: Cred::default() };
        let ino = rig.volume.create(Ino::ROOT, DATABASE.as_bytes(), &new)?.ino;
        rig.volume.write(ino, 0, &self.database, WriteFlags::default())?;
        rig.volume.sync().map_err(Into::into)
    }

    fn plan(&self, way: Way, on: Machine) -> crate::rig::Plan {
        // The page cache above keeps what was read.
        let mut plan = way.plan(Model { cached: true, ..on.model }, self.mib, self.journal_mib, on.line);
        plan.options.cache_bytes = CACHE;
        plan.file_tick = on.file_tick;
        plan
    }

    /// Runs so many transactions; a tenth as many go before them.
    pub(in crate::studies) fn run(&self, way: Way, on: Machine, journal: Journal, plan: &Plan) -> Result<Outcome> {
        let is_fast = way.place == Place::Nvram || on.model == Model::default();
        let n = if is_fast { plan.transactions } else { plan.on_devices };
        let contents = if way.place == Place::External { &self.external } else { &self.internal };
        let rig = Rig::over(&self.plan(way, on), contents.clone())?;
        let clock = Slower { clock: rig.world.clone(), times: on.computing };
        let vfs = Vfs::new("quire", rig.volume.clone(), Arc::new(clock))?;
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
        let Machine { line, computing, file_tick, .. } = on;
        eprintln!(
            "{journal:?}, {}, +{line:?}, computing x{computing:.1}, tick {file_tick:?}: tpmC {:.0}, {:?}",
            way.name,
            outcome.report.tpm_c(),
            outcome.traffic
        );
        Ok(outcome)
    }

    /// Runs the mix with a cache of so many bytes; the blocks that SQLite touched, and the most images that the log
    /// pinned after a transaction.
    pub(in crate::studies) fn observed(
        &self,
        journal: Journal,
        plan: &Plan,
        cache: u64,
    ) -> Result<(Vec<(Ino, u64)>, u64)> {
        let mut made = self.plan(ways::DJFS, Machine::with(Model::default()));
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
    pub(super) fn in_memory(&self, journal: Journal, plan: &Plan) -> Result<[f64; 2]> {
        let dir = Folder::new(Path::new(MEMORY), "quire-tpcc-")?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// With `locking_mode=exclusive` SQLite counts changes once instead of with each commit.
    #[test]
    fn a_commit_of_persist_logs_the_databases_first_page() {
        const COMMITS: u64 = 10;
        let logged = |locking: Option<&str>| {
            let rig = Rig::new(&ways::JOURNAL.plan(Model::default(), 64, 8, Duration::ZERO)).unwrap();
            let vfs = Vfs::new("quire", rig.volume.clone(), Arc::new(rig.world.clone())).unwrap();
            let db = vfs.open(DATABASE).unwrap();
            locking.into_iter().for_each(|mode| db.pragma_update(None, "locking_mode", mode).unwrap());
            db.execute_batch("pragma journal_mode = persist; create table t (x); insert into t values (0)").unwrap();
            let blocks = || rig.volume.maintenance().journal_stats().blocks;
            let before = blocks();
            (0..COMMITS).for_each(|n| assert_eq!(db.execute("update t set x = ?", [n]).unwrap(), 1));
            let logged = blocks() - before;
            drop(db);
            drop(vfs);
            rig.close().unwrap();
            logged
        };
        assert!(logged(None) >= logged(Some("exclusive")) + COMMITS);
    }

    #[test]
    fn a_slower_machine_lets_more_time_pass() {
        let clock = Slower { clock: VirtualThreads::default(), times: 2.5 };
        clock.sleep(Duration::from_micros(10));
        assert_eq!(clock.monotonic(), Duration::from_micros(25));
    }
}
