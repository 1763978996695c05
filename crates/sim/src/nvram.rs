//! Crash states of two devices: a disk with a volatile cache, and NVRAM with stores that were not fenced.
//!
//! Each store and fence notes how many steps of the disk were complete then. So the moments of both have one order; at
//! each some outcomes of both are made at once.
//!
//! ```text
//! disk    w1 ────── flush ─────────── w2 ───
//! NVRAM   ── s1 s2 f ──── s3 f s4 f ─────── s5      a moment: k steps of the disk, m events of the NVRAM
//! ```

use crate::explore::{Config, Effort, Failure, Report, fsck, work_on};
use crate::known::{Known, Moment, Seen};
use crate::mixes::generate;
use crate::observe::{Observed, observe};
use crate::ops::SimOp;
use crate::outcomes::{Digest, LogArea, hash_bytes};
use crate::run::{Rig, Run, mount_options};
use quire_device::sync::Arc;
use quire_fs::{Checkpoint, Devices, Error, Options, Volume};
use quire_testkit::NvramCrashPoint;
use quire_testkit::{CrashPoint, Image, NvramModel, PowerLossDevice, PowerLossOptions, VirtualClock};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::rc::Rc;

/// A configuration with its journal in NVRAM.
#[derive(Clone, Debug)]
pub struct NvramConfig {
    pub base: Config,
    pub checkpoint: Checkpoint,
    /// Bytes of the memory.
    pub size: usize,
    /// One in so many moments is looked at: long runs fill more regions.
    pub one_in: u64,
}

impl NvramConfig {
    fn mount(&self, device: Arc<PowerLossDevice>, memory: Arc<NvramModel>) -> quire_fs::Result<Volume> {
        let options = Options { checkpoint: self.checkpoint, ..mount_options(self.base.how) };
        Volume::open(Devices::one(device).with_nvram(memory), Arc::new(VirtualClock::default()), options)
    }
}

/// Explores one seed. `seen` are the states that other runs of the configuration have shown.
///
/// # Errors
/// The first promise that was broken.
pub fn explore_nvram(
    config: &NvramConfig,
    base: &Image,
    seed: u64,
    effort: Effort,
    kept: Option<&[usize]>,
    seen: &mut Seen,
) -> Result<Report, Box<Failure>> {
    let all = generate(config.base.mix, seed, effort.calls);
    let every: Vec<usize> = (0..all.len()).collect();
    let kept = kept.unwrap_or(&every);
    let ops: Vec<SimOp> = kept.iter().filter_map(|i| all.get(*i).cloned()).collect();
    let ops = ops.as_slice();
    let fail = |crash, why: String| {
        let (name, mix, test) = (config.base.name, config.base.mix, "nvram");
        Box::new(Failure { config: name, mix, test, seed, crash, why, kept: kept.to_vec(), ops: ops.to_vec() })
    };
    let options = PowerLossOptions { record: true, ..PowerLossOptions::default() };
    let device = Arc::new(PowerLossDevice::from_image(base.clone(), options));
    let beside = device.clone();
    let memory = Arc::new(NvramModel::new(vec![0; config.size]).recording(move || beside.completed()));
    let clock = Arc::new(VirtualClock::default());
    let options = Options { checkpoint: config.checkpoint, ..mount_options(config.base.how) };
    let devices = Devices::one(device.clone()).with_nvram(memory.clone());
    let mount = || Volume::open(devices.clone(), clock.clone(), options.clone());
    let volume = mount().map_err(|e| fail(None, format!("mount: {e}")))?;
    let steps = || device.completed() + memory.steps();
    let mounted_at = steps();
    let mut rig = Rig { volume, mount: &mount, steps: &steps, clock: &clock };
    let done = rig.run(ops).map_err(|why| fail(None, why))?;
    let volume = rig.volume;
    let switches = volume.maintenance().journal_stats().nvram.map_or(0, |n| n.switches);
    volume.close().map_err(|e| fail(None, format!("unmount: {e}")))?;
    fsck(&device.live()).map_err(|why| fail(None, format!("after a clean unmount: {why}")))?;
    let mut found = Explored {
        config,
        done: &done,
        ops,
        mounted_at,
        seed,
        effort,
        log: LogArea::of(base).map_err(|why| fail(None, why))?,
        durable: (base.clone(), Digest::default()),
        moment: Moment::default(),
        known: Known::default(),
        seen,
        report: Report::default(),
    };
    found.report.runs = 1;
    found.report.switches = switches;
    found.all_moments(&device, &memory).map_err(|(at, why)| fail(Some(at), why))?;
    Ok(found.report)
}

/// What a crash has left of both.
struct Left {
    image: Image,
    stored: Vec<u8>,
    disk: Digest,
    /// Identifies both.
    state: u64,
}

struct Explored<'a> {
    config: &'a NvramConfig,
    done: &'a Run,
    ops: &'a [SimOp],
    mounted_at: u64,
    seed: u64,
    effort: Effort,
    log: LogArea,
    /// What is durable on the disk.
    durable: (Image, Digest),
    moment: Moment,
    known: Known,
    seen: &'a mut Seen,
    report: Report,
}

impl Explored<'_> {
    /// Every moment of a run. An error names the moment and the outcome.
    fn all_moments(&mut self, device: &PowerLossDevice, memory: &NvramModel) -> Result<(), ((u64, u64), String)> {
        let disk = device.recording().expect("it records");
        let stored = memory.recorded().expect("it records");
        let mut events = stored.crash_points().zip(0u64..).map(|((at, point), m)| (at, m, point)).peekable();
        let (_, mut m, mut point) = events.next().expect("the start");
        for (k, disk_point) in disk.crash_points() {
            self.moment((k, &disk_point), (m, &point)).map_err(|(n, why)| ((k + m, n), why))?;
            // What the memory did when so many steps of the disk were complete. Of a forced write two moments come:
            // before it, and after.
            while events.peek().is_some_and(|(at, ..)| *at <= k) {
                (_, m, point) = events.next().expect("looked at");
                self.moment((k, &disk_point), (m, &point)).map_err(|(n, why)| ((k + m, n), why))?;
            }
        }
        Ok(())
    }

    /// Some outcomes of one moment. An error names the outcome.
    fn moment(
        &mut self,
        (k, disk): (u64, &CrashPoint),
        (m, memory): (u64, &NvramCrashPoint),
    ) -> Result<(), (u64, String)> {
        let mut h = DefaultHasher::new();
        (self.seed, k, m).hash(&mut h);
        if !h.finish().is_multiple_of(self.config.one_in.max(1)) {
            return Ok(());
        }
        let digest = self.durable.1.after(&self.durable.0, &disk.durable, &self.log);
        self.durable = (disk.durable.clone(), digest);
        self.moment.goes_to(self.ops, self.done, k + m, k + m < self.mounted_at);
        let certain = disk.pending.is_empty() && memory.is_certain();
        let outcomes = if certain { 1 } else { self.effort.outcomes };
        for n in 0..outcomes {
            let seed = (self.seed ^ k.rotate_left(32) ^ m.rotate_left(48)).wrapping_mul(0x9E37_79B9).wrapping_add(n);
            let crash = disk.crash(seed);
            let stored = memory.crash(seed.rotate_left(7));
            self.report.count(&crash);
            let disk = digest.after(&disk.durable, &crash.image, &self.log);
            let state = disk.all ^ hash_bytes(&stored);
            self.report.distinct += u64::from(k + m >= self.mounted_at && self.seen.states.insert(state));
            let turn = self.seed.wrapping_add(self.report.states);
            let left = Left { image: crash.image, stored, disk, state };
            self.survives(left, turn).map_err(|why| (n, why))?;
        }
        Ok(())
    }

    /// Recovers what is left and checks everything about it. What was recovered before is looked at again only: at
    /// another moment other promises hold.
    fn survives(&mut self, left: Left, turn: u64) -> Result<(), String> {
        let Left { image, stored, disk, state } = left;
        let every = |n: u64| n > 0 && turn.is_multiple_of(n);
        let (double, judge) = (every(self.effort.double_every), every(self.effort.fsck_every));
        self.report.fsck += u64::from(judge);
        let judge = judge && self.known.judged.insert(state);
        if let Some(seen) = self.known.tree(state).filter(|_| !judge && !double) {
            return self.is_legal(state, &seen);
        }
        self.report.double += u64::from(double);
        let (image, stored, disk, state) = if double {
            let (left, stored) = self.crash_in_recovery(image.clone(), stored, turn)?;
            let disk = disk.after(&image, &left, &self.log);
            let state = disk.all ^ hash_bytes(&stored);
            (left, stored, disk, state)
        } else {
            (image, stored, disk, state)
        };
        let device = Arc::new(PowerLossDevice::from_image(image.clone(), PowerLossOptions::default()));
        let memory = Arc::new(NvramModel::new(stored));
        let config = self.config;
        let mount = || config.mount(device.clone(), memory.clone());
        let volume = mount().map_err(|e| format!("mounting what is left: {e}"))?;
        let seen = Rc::new(observe(&volume).map_err(|e| format!("reading the recovered tree: {e}"))?);
        self.known.keep(state, &seen);
        self.is_legal(state, &seen)?;
        if judge {
            volume.close().map_err(|e| format!("unmounting the survivor: {e}"))?;
            let closed = disk.after(&image, &device.live(), &self.log);
            if !self.seen.clean.insert(closed.without_log) {
                return Ok(());
            }
            self.report.used += 1;
            fsck(&device.live())?;
            let volume = mount().map_err(|e| format!("mounting the survivor: {e}"))?;
            work_on(&volume)?;
            volume.close().map_err(|e| format!("unmounting the survivor again: {e}"))?;
            fsck(&device.live()).map_err(|e| format!("after working on: {e}"))?;
        }
        Ok(())
    }

    fn is_legal(&mut self, state: u64, seen: &Observed) -> Result<(), String> {
        self.known.is_legal(self.config.base.how.route, self.ops, self.done, &self.moment, state, seen)
    }

    /// Loses power in the middle of recovery, twice at different places, of both devices.
    fn crash_in_recovery(&self, image: Image, stored: Vec<u8>, turn: u64) -> Result<(Image, Vec<u8>), String> {
        let probe = Arc::new(PowerLossDevice::from_image(image.clone(), PowerLossOptions::default()));
        let memory = Arc::new(NvramModel::new(stored.clone()));
        drop(self.config.mount(probe.clone(), memory.clone()).map_err(|e| format!("mounting what is left: {e}"))?);
        let (disk_steps, memory_steps) = (probe.steps(), memory.steps());
        let (mut image, mut stored) = (image, stored);
        for n in [turn, turn / 7] {
            let device = Arc::new(PowerLossDevice::from_image(image, PowerLossOptions::default()));
            let memory = Arc::new(NvramModel::new(stored));
            device.cut_at(n % (disk_steps + 1));
            // The memory goes on until the disk's failure stops the mount, or is cut first: then nothing that follows
            // may count.
            let cut = n.is_multiple_of(2) && memory_steps > 0;
            if cut {
                memory.cut_at(1 + n % memory_steps);
                let (m, d) = (memory.clone(), device.clone());
                device_follows(&m, &d);
            }
            match self.config.mount(device.clone(), memory.clone()) {
                Ok(_) | Err(Error::Device(_) | Error::Journal(_)) => {}
                Err(e) => return Err(format!("mounting while power fails: {e}")),
            }
            image = device.crash(turn ^ n.rotate_left(17)).image;
            stored = memory.crash_point().crash(turn ^ n.rotate_left(29));
        }
        Ok((image, stored))
    }
}

/// When the power of the memory is gone, so is the disk's.
fn device_follows(memory: &Arc<NvramModel>, device: &Arc<PowerLossDevice>) {
    let device = device.clone();
    memory.when_cut(move || device.cut());
}
