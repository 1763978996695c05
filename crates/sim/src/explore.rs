//! Cuts the power at every step of a run, recovers what is left, and checks it.
//!
//! For each moment between two steps of the device, some outcomes of its volatile cache are made; each is mounted
//! (sometimes with another power cut in the middle of recovery, and another), its tree is compared with what the model
//! allows, e2fsck looks at some of them, and the survivor is used on and unmounted.

use crate::known::{Known, Moment, Seen};
use crate::mixes::{Mix, generate};
use crate::observe::{FILLER, Observed, observe};
use crate::ops::SimOp;
pub use crate::outcomes::Effort;
use crate::outcomes::{Digest, Exhausted, LogArea, exhausted, outcomes};
use crate::run::{How, Run, call, mount, run};
use quire_device::BlockDevice;
use quire_device::sync::Arc;
use quire_fs::{Cred, Error, Falloc, New, NewKind, Volume};
use quire_layout::Ino;
use quire_testkit::{Completion, Crash, Image, PowerLossDevice, PowerLossOptions, VirtualClock};
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;

/// What is explored.
#[derive(Clone, Debug)]
pub struct Config {
    pub name: &'static str,
    pub how: How,
    pub mix: Mix,
    /// Blocks that are left free, if the image is filled up first.
    pub leave: Option<u64>,
    /// Arguments of mke2fs.
    pub mke2fs: &'static [&'static str],
    /// Size of the image for mke2fs.
    pub size: &'static str,
}

/// What was explored.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct Report {
    pub runs: u64,
    /// Moments at which the power was cut, and those of them of which every outcome was made.
    pub moments: u64,
    pub exhausted: u64,
    pub states: u64,
    /// States after the mount whose bytes differ from those of all others of their configuration.
    pub distinct: u64,
    pub lost: u64,
    pub torn: u64,
    pub reordered: u64,
    /// Regions of NVRAM that were filled.
    pub switches: u64,
    /// States that lost power again during recovery, and then again.
    pub double: u64,
    /// States that e2fsck has judged.
    pub fsck: u64,
    /// How many different images they were after recovery: those that e2fsck saw, and that were used on and judged
    /// again.
    pub used: u64,
}

impl Report {
    pub(crate) fn count(&mut self, crash: &Crash) {
        self.states += 1;
        self.lost += u64::from(crash.lost > 0);
        self.torn += u64::from(crash.torn > 0);
        self.reordered += u64::from(crash.reordered > 0);
    }

    pub fn add(&mut self, r: &Report) {
        self.runs += r.runs;
        self.moments += r.moments;
        self.exhausted += r.exhausted;
        self.states += r.states;
        self.distinct += r.distinct;
        self.lost += r.lost;
        self.torn += r.torn;
        self.reordered += r.reordered;
        self.switches += r.switches;
        self.double += r.double;
        self.fsck += r.fsck;
        self.used += r.used;
    }
}

/// A run that broke a promise.
#[derive(Clone, Debug)]
pub struct Failure {
    pub config: &'static str,
    pub mix: Mix,
    /// The test that found it: the target `writers`, or a module of the target `it`.
    pub test: &'static str,
    pub seed: u64,
    /// Device steps that were complete, and which outcome of them; `None`: before any crash.
    pub crash: Option<(u64, u64)>,
    pub why: String,
    /// Which of the calls that the seed makes were done.
    pub kept: Vec<usize>,
    pub ops: Vec<SimOp>,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "configuration {} {:?}, seed {}, {} calls", self.config, self.mix, self.seed, self.ops.len())?;
        if let Some((steps, outcome)) = self.crash {
            writeln!(f, "power cut after {steps} steps, outcome {outcome}")?;
        }
        writeln!(f, "{}", self.why)?;
        for (i, op) in self.ops.iter().enumerate() {
            writeln!(f, "  {i}: {op:?}")?;
        }
        write!(f, "repeat: QUIRE_SIM_SEED={} QUIRE_SIM_MIX={:?}", self.seed, self.mix)?;
        if !self.kept.is_empty() {
            let kept: Vec<String> = self.kept.iter().map(usize::to_string).collect();
            write!(f, " QUIRE_SIM_KEEP={}", kept.join(","))?;
        }
        match self.test {
            "writers" => write!(f, " cargo test -p quire-sim --features shuttle --test writers {}", self.config),
            module => write!(f, " cargo test -p quire-sim --test it {module}::{}", self.config),
        }
    }
}

/// A fresh image.
///
/// # Panics
/// If mke2fs is missing or fails.
#[must_use]
pub fn fresh_image(config: &Config) -> Image {
    let image = Image::from_bytes(&quire_testkit::mke2fs(config.size, config.mke2fs));
    match config.leave {
        Some(leave) => filled(config, image, leave),
        None => image,
    }
}

/// An image of which so many blocks are free.
///
/// # Panics
/// If it is not sound.
#[must_use]
pub fn filled(config: &Config, image: Image, leave: u64) -> Image {
    let device = Arc::new(PowerLossDevice::from_image(image, PowerLossOptions::default()));
    let v = mount(device.clone(), Arc::new(VirtualClock::default()), config.how).expect("mount");
    let new = New { kind: NewKind::File, mode: 0o600, umask: 0, cred: Cred { uid: 0, gid: 0 } };
    let ino = v.create(Ino::ROOT, FILLER, &new).expect("create").ino;
    let free = v.statfs().free.saturating_sub(leave);
    // As many as the allocator's reserve allows.
    let bits = v.superblock().block_size().bits();
    let fill = |n: u64| v.fallocate(ino, Falloc::Allocate { keep_size: false }, 0, n << bits);
    (free.saturating_sub(400)..=free).rev().find(|n| fill(*n).is_ok()).expect("fill");
    v.forget(ino, 1);
    v.close().expect("unmount");
    device.live()
}

/// Explores one seed. `seen` are the states that other runs of the configuration have shown.
///
/// # Errors
/// The first promise that was broken.
pub fn explore(
    config: &Config,
    base: &Image,
    seed: u64,
    effort: Effort,
    seen: &mut Seen,
) -> Result<Report, Box<Failure>> {
    let all: Vec<usize> = (0..generate(config.mix, seed, effort.calls).len()).collect();
    explore_kept(config, base, seed, &all, effort, seen)
}

/// Explores some of the calls that a seed makes.
///
/// # Errors
/// As [`explore`].
pub fn explore_kept(
    config: &Config,
    base: &Image,
    seed: u64,
    kept: &[usize],
    effort: Effort,
    seen: &mut Seen,
) -> Result<Report, Box<Failure>> {
    let all = generate(config.mix, seed, effort.calls);
    let ops: Vec<SimOp> = kept.iter().filter_map(|i| all.get(*i).cloned()).collect();
    let ops = ops.as_slice();
    let fail = |(crash, why): Broken| {
        let (kept, ops) = (kept.to_vec(), ops.to_vec());
        Box::new(Failure { config: config.name, mix: config.mix, test: "crash", seed, crash, why, kept, ops })
    };
    let log = LogArea::of(base).map_err(|why| fail((None, why)))?;
    let mut known = Known::default();
    let mut explorer = Explorer { config, base, log: &log, effort, seen, known: &mut known };
    // The moments before the mount has returned are the same for every seed: some see them.
    let from = if seed % 8 == 1 { From::Start } else { From::Mount };
    explorer.explore(&Calls { ops, seed, from, unmount: true, edges: false }).map_err(fail)
}

/// When the power was cut (device steps that were complete, and which outcome of them), and what was broken.
pub(crate) type Broken = (Option<(u64, u64)>, String);

/// A list of calls, and which of its crashes are looked at.
pub(crate) struct Calls<'a> {
    pub(crate) ops: &'a [SimOp],
    /// Chooses how the device completes writes, and those outcomes that are not enumerated.
    pub(crate) seed: u64,
    pub(crate) from: From,
    /// The volume is unmounted afterwards, and crashes during that are looked at, too.
    pub(crate) unmount: bool,
    /// Where a moment has too many outcomes for all of them: nothing and everything survives, each prefix of the
    /// writes, each write lost alone and surviving alone.
    pub(crate) edges: bool,
}

/// The first moment that is looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum From {
    /// When the device was made.
    Start,
    /// When the mount had returned.
    Mount,
    /// When so many calls had returned, of one or more.
    Call(usize),
}

/// Explores lists of calls on one base.
pub(crate) struct Explorer<'a> {
    pub(crate) config: &'a Config,
    pub(crate) base: &'a Image,
    pub(crate) log: &'a LogArea,
    pub(crate) effort: Effort,
    pub(crate) seen: &'a mut Seen,
    /// What earlier lists of calls have shown of crash states.
    pub(crate) known: &'a mut Known,
}

impl Explorer<'_> {
    /// Runs the calls, cuts the power at every chosen moment, and checks what is recovered.
    pub(crate) fn explore(&mut self, calls: &Calls<'_>) -> Result<Report, Broken> {
        let (ops, seed, effort) = (calls.ops, calls.seed, self.effort);
        let device = Arc::new(PowerLossDevice::from_image(self.base.clone(), options(seed)));
        let (done, mounted_at) = self.run(calls, &device).map_err(|why| (None, why))?;
        let from = match calls.from {
            From::Start => 0,
            From::Mount => mounted_at,
            From::Call(n) => done.returned_at[n - 1],
        };
        let recording = device.recording().expect("it records");
        let mut report = Report { runs: 1, ..Report::default() };
        self.known.begin_run();
        let (config, log, base) = (self.config, self.log, self.base);
        let (known, seen) = (&mut *self.known, &mut *self.seen);
        let mut state = Survivors { config, log, done: &done, ops, moment: Moment::default(), known, seen };
        let (mut durable, mut digest) = (base.clone(), Digest::default());
        let stride = (recording.len() as u64).checked_div(effort.moments).unwrap_or(1).max(1);
        let mixed = |at: u64| seed.wrapping_add(at).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(20);
        let chosen = |at| mixed(at).is_multiple_of(stride);
        for (steps, point) in recording.crash_points_at(|at, _| at >= from && chosen(at)) {
            digest = digest.after(&durable, &point.durable, log);
            durable = point.durable.clone();
            report.moments += 1;
            state.moment.goes_to(ops, &done, steps, steps < mounted_at);
            report.exhausted += u64::from(exhausted(&point, effort) == Exhausted::Units);
            let chosen = seed ^ steps.rotate_left(32);
            for (n, crash) in (0u64..).zip(outcomes(&point, effort, calls.edges, chosen)) {
                report.count(&crash);
                state.moment.is_marked(&crash.image).map_err(|why| (Some((steps, n)), why))?;
                let digest = digest.after(&durable, &crash.image, log);
                report.distinct += u64::from(steps >= mounted_at && state.seen.states.insert(digest.all));
                state
                    .outcome(Left { image: crash.image, digest }, effort, seed, &mut report)
                    .map_err(|why| (Some((steps, n)), why))?;
            }
        }
        Ok(report)
    }

    /// Does the calls on a volume. Returns them, and how far the device was when the mount had returned.
    fn run(&mut self, calls: &Calls<'_>, device: &Arc<PowerLossDevice>) -> Result<(Run, u64), String> {
        let (volume, done, mounted_at) = run(device, self.config.how, calls.ops)?;
        if calls.unmount {
            volume.close().map_err(|e| format!("unmount: {e}"))?;
            fsck(&device.live()).map_err(|why| format!("after a clean unmount: {why}"))?;
        }
        Ok((done, mounted_at))
    }
}

/// A device that records. With every third seed a write is complete only when somebody has waited for it.
fn options(seed: u64) -> PowerLossOptions {
    let completion = if seed.is_multiple_of(3) { Completion::AtWait } else { Completion::AtSubmit };
    PowerLossOptions { record: true, completion, ..PowerLossOptions::default() }
}

/// What a crash has left.
#[derive(Clone)]
struct Left {
    image: Image,
    digest: Digest,
}

/// Recovers what crashes of one run have left. What has been recovered once is not recovered again, but looked at
/// again: at another moment other promises hold.
struct Survivors<'a> {
    config: &'a Config,
    log: &'a LogArea,
    done: &'a Run,
    ops: &'a [SimOp],
    moment: Moment,
    known: &'a mut Known,
    seen: &'a mut Seen,
}

impl Survivors<'_> {
    /// Recovers one outcome; it may lose power again meanwhile, and e2fsck may judge it.
    fn outcome(&mut self, left: Left, effort: Effort, seed: u64, report: &mut Report) -> Result<(), String> {
        let turn = seed.wrapping_add(report.states);
        let every = |n: u64| n > 0 && turn.is_multiple_of(n);
        let judge = every(effort.fsck_every);
        if every(effort.double_every) {
            self.survive_cuts(&left, turn, effort.every_cut, judge, report)
        } else {
            self.survive(left, judge, report)
        }
    }

    /// Loses power in recovery, twice, and checks what that leaves.
    fn survive_cuts(
        &mut self,
        left: &Left,
        turn: u64,
        every_cut: bool,
        judge: bool,
        report: &mut Report,
    ) -> Result<(), String> {
        let total = match self.known.steps.get(&left.digest.all) {
            Some(total) => *total,
            None => {
                let probe = Arc::new(PowerLossDevice::from_image(left.image.clone(), PowerLossOptions::default()));
                drop(self.mount(probe.clone())?);
                self.known.steps.insert(left.digest.all, probe.steps());
                probe.steps()
            }
        };
        let cuts = if every_cut { 1..=total } else { turn % (total + 1)..=turn % (total + 1) };
        for cut in cuts {
            let then = (turn / 7).wrapping_add(cut * 5) % (total + 1);
            let (image, cuts) = self.crash_in_recovery(left.image.clone(), turn, [cut, then])?;
            report.double += u64::from(cuts == 2);
            let digest = left.digest.after(&left.image, &image, self.log);
            self.survive(Left { image, digest }, judge, report)
                .map_err(|e| format!("{e}\npower lost again after {cut} and {then} steps of recovery"))?;
        }
        Ok(())
    }

    /// Recovers an image and checks everything about it.
    fn survive(&mut self, left: Left, judge: bool, report: &mut Report) -> Result<(), String> {
        report.fsck += u64::from(judge);
        let judge = judge && self.known.judged.insert(left.digest.all);
        let known = self.known.tree(left.digest.all).filter(|_| !judge);
        if let Some(seen) = known {
            return self.is_legal(left.digest, &seen);
        }
        let device = Arc::new(PowerLossDevice::from_image(left.image.clone(), PowerLossOptions::default()));
        let volume = self.mount(device.clone())?;
        let seen = Rc::new(observe(&volume).map_err(|e| format!("reading the recovered tree: {e}"))?);
        self.known.keep(left.digest.all, &seen);
        self.is_legal(left.digest, &seen)?;
        if !judge {
            return Ok(());
        }
        volume.close().map_err(|e| format!("unmounting the survivor: {e}"))?;
        let closed = left.digest.after(&left.image, &device.live(), self.log);
        // The log is empty then: equal without it is equal.
        if self.seen.clean.insert(closed.without_log) {
            report.used += 1;
            fsck(&device.live())?;
            let volume = self.mount(device.clone())?;
            work_on(&volume)?;
            volume.close().map_err(|e| format!("unmounting the survivor again: {e}"))?;
            fsck(&device.live()).map_err(|e| format!("after working on: {e}"))?;
        }
        Ok(())
    }

    /// Checks a tree against what was promised at this moment.
    fn is_legal(&mut self, digest: Digest, seen: &Observed) -> Result<(), String> {
        self.known.is_legal(self.config.how.route, self.ops, self.done, &self.moment, digest.all, seen)
    }

    fn mount(&self, device: Arc<dyn BlockDevice>) -> Result<Volume, String> {
        let volume = mount(device, Arc::new(VirtualClock::default()), self.config.how)
            .map_err(|e| format!("mounting the crash image: {e}"))?;
        match volume.status().read_only {
            Some(why) => Err(format!("the crash image is mounted read-only: {why}")),
            None => Ok(volume),
        }
    }

    /// Loses power in the middle of recovery, and of the next one. How many of the two recoveries had got so far.
    fn crash_in_recovery(&self, image: Image, turn: u64, cuts: [u64; 2]) -> Result<(Image, u32), String> {
        let (mut image, mut reached) = (image, 0);
        for cut in cuts {
            let device = Arc::new(PowerLossDevice::from_image(image, PowerLossOptions::default()));
            device.cut_at(cut);
            match mount(device.clone(), Arc::new(VirtualClock::default()), self.config.how) {
                Ok(_) | Err(Error::Device(_) | Error::Journal(_)) => {}
                Err(e) => return Err(format!("mounting while power fails: {e}")),
            }
            reached += u32::from(device.is_cut());
            image = device.crash(turn ^ cut.rotate_left(17)).image;
        }
        Ok((image, reached))
    }
}

/// Uses a survivor: it must still be a working file system.
pub(crate) fn work_on(v: &Volume) -> Result<(), String> {
    let mut held = Vec::new();
    for op in generate(Mix::Reuse, 7, 25) {
        if let Err(e @ (Error::Corrupt(_) | Error::Device(_) | Error::Journal(_))) = call(v, &mut held, &op) {
            return Err(format!("working on, {op:?}: {e}"));
        }
    }
    held.drain(..).for_each(|ino| v.forget(ino, 1));
    Ok(())
}

/// Asks `e2fsck -fn`.
///
/// # Errors
/// What it says, if the image is not clean.
pub fn fsck(image: &Image) -> Result<(), String> {
    let dir = if Path::new("/dev/shm").is_dir() { "/dev/shm" } else { "/tmp" };
    let file = tempfile::NamedTempFile::new_in(dir).map_err(|e| e.to_string())?;
    image.save(file.path()).map_err(|e| e.to_string())?;
    let out = Command::new("e2fsck").arg("-fn").arg(file.path()).stdin(Stdio::null()).output();
    let out = out.map_err(|e| format!("e2fsck: {e}"))?;
    if out.status.success() { Ok(()) } else { Err(format!("e2fsck: {}", String::from_utf8_lossy(&out.stdout))) }
}
