//! A device that fails, or a file system that runs full, in the middle of a workload.
//!
//! The definition, for errors that the device reports (of reads, writes, flushes; no space on the host; the device
//! gone):
//!
//! - A call that fails has changed nothing but, at most, the data of the file that it writes.
//! - An fsync that failed once is never reported as success later, by whatever descriptor.
//! - When the log could not be written, the volume is read-only; what was durable is readable, now and after a crash.
//! - After a crash the tree is a legal state ([`crate::check`]) for what was acknowledged, and e2fsck finds nothing.
//!
//! When the device lies (a write that is lost, a bit that flips) nothing of that can be promised: there are only typed
//! errors then.
//!
//! With NVRAM the disk fails; what was fenced in the memory stays.
//!
//! On a full disk, and when any one allocation finds no space, or all from some on, each call is done or refused with
//! "no space", whole; nothing leaks: when everything is deleted, all space is free again, and e2fsck finds nothing.

use crate::check::{Floors, first_legal, floors};
use crate::explore::{Config, fsck};
use crate::mixes::generate;
use crate::model::{History, Kind, NodeId, Outcome, ROOT, State};
use crate::observe::{ObservedKind, observe};
use crate::ops::{DIRS, NAMES, Place, SimOp};
use crate::run::{call, mount_options};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Clock, IoOp, Region};
use quire_fs::shortage;
use quire_fs::{Checkpoint, Devices, Error, Options, Volume};
use quire_testkit::{Fault, FaultKind, Faulty, Image, NvramModel, PowerLossDevice, PowerLossOptions, VirtualClock};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

/// On what a workload runs.
#[derive(Clone, Debug)]
pub struct Rig {
    pub config: Config,
    /// Bytes of a memory that holds the log, and how it is reclaimed.
    pub nvram: Option<(usize, Checkpoint)>,
}

impl Rig {
    /// A memory that was never used.
    fn memory(&self) -> Option<Arc<NvramModel>> {
        self.nvram.map(|(size, _)| Arc::new(NvramModel::new(vec![0; size])))
    }

    fn mount(
        &self,
        device: Arc<dyn BlockDevice>,
        memory: Option<&Arc<NvramModel>>,
        clock: Arc<dyn Clock>,
    ) -> quire_fs::Result<Volume> {
        let mut options = mount_options(self.config.how);
        let mut devices = Devices::one(device);
        if let (Some((_, checkpoint)), Some(memory)) = (self.nvram, memory) {
            options = Options { checkpoint, ..options };
            devices = devices.with_nvram(memory.clone());
        }
        Volume::open(devices, clock, options)
    }
}

/// What happened in a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// The fault hit something.
    pub hit: bool,
    /// Calls that failed because of it.
    pub failed: u64,
    /// Calls that were refused for want of space.
    pub full: u64,
    pub read_only: bool,
    /// A failed fsync was asked for again.
    pub asked_again: u64,
}

/// A workload that the model follows although calls fail.
struct Follower {
    ops: Vec<SimOp>,
    history: History,
    /// Files whose data nobody knows: a write to them failed.
    tainted: BTreeSet<NodeId>,
    /// Files that lost data, and told so: an fsync of them failed.
    lossy: BTreeSet<NodeId>,
    /// Inodes of which an fsync has failed.
    unsynced: BTreeSet<NodeId>,
    seen: Seen,
}

impl Follower {
    fn new() -> Self {
        let (tainted, lossy, unsynced) = Default::default();
        Follower { ops: Vec::new(), history: History::default(), tainted, lossy, unsynced, seen: Seen::default() }
    }

    /// Does a call. `excuse` says whether an error is one that may come now.
    fn step(
        &mut self,
        v: &Volume,
        held: &mut Vec<quire_layout::Ino>,
        op: &SimOp,
        excuse: impl Fn(&Error) -> bool,
    ) -> Result<(), String> {
        let outcome = self.history.apply(op);
        self.ops.push(op.clone());
        let said = call(v, held, op);
        let about = match outcome {
            Outcome::Done(about) => about,
            Outcome::Refused => None,
        };
        let i = self.ops.len() - 1;
        match (&said, outcome) {
            (Ok(()), Outcome::Refused) => return Err(format!("call {i}, {op:?} succeeds, although it cannot")),
            (Err(e), Outcome::Done(_)) if !excuse(e) => return Err(format!("call {i}, {op:?}: {e}")),
            (Err(_), Outcome::Done(_)) => {
                self.seen.failed += 1;
                self.seen.full += u64::from(matches!(said, Err(Error::NoSpace | Error::NoInodes)));
                self.history.refuse_last();
                match op {
                    SimOp::Fsync(_) | SimOp::Fdatasync(_) => self.lossy.extend(about),
                    op if changes_data(op) => {
                        self.tainted.extend(about);
                        about.into_iter().for_each(|id| self.history.forget_mtime(id));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        if let (SimOp::Fsync(_) | SimOp::Fdatasync(_) | SimOp::FsyncDir(_), Some(id)) = (op, about) {
            let again = self.unsynced.contains(&id);
            self.seen.asked_again += u64::from(again);
            match said {
                Ok(()) if again => return Err(format!("call {i}, {op:?} succeeds, although it failed before")),
                // A read that failed on the way is not yet a failed write-back.
                Err(Error::Device(e)) if e.op == IoOp::Read => {}
                Err(_) => {
                    self.unsynced.insert(id);
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Compares a volume with the newest state: names and attributes, and the data of files of which nothing failed.
    fn compare(&self, v: &Volume) -> Result<(), String> {
        let seen = observe(v).map_err(|e| format!("reading the tree: {e}"))?;
        let state = self.history.now();
        let files = crate::check::names_match(state, &seen)?;
        for (id, path) in files {
            let (Kind::File(want), ObservedKind::File(got)) = (&state.nodes[&id].kind, &seen.nodes[&path].kind) else {
                continue;
            };
            if !self.tainted.contains(&id) && !self.lossy.contains(&id) && want.as_slice() != got.as_slice() {
                return Err(format!("{} differs", String::from_utf8_lossy(&path)));
            }
        }
        Ok(())
    }
}

fn changes_data(op: &SimOp) -> bool {
    matches!(
        op,
        SimOp::Write { .. }
            | SimOp::MapWrite { .. }
            | SimOp::Append { .. }
            | SimOp::Truncate(..)
            | SimOp::Punch { .. }
            | SimOp::Allocate { .. }
            | SimOp::Zero { .. }
            | SimOp::Collapse { .. }
            | SimOp::Insert { .. }
            | SimOp::Copy { .. }
    )
}

/// A fault that a seed chooses: what, where, and after how many operations.
fn fault(rng: &mut StdRng, kind: FaultKind) -> Fault {
    let op = match kind {
        FaultKind::Lost => IoOp::Write,
        FaultKind::FlipBit(_) if rng.random() => IoOp::Read,
        FaultKind::FlipBit(_) | FaultKind::Torn { .. } => IoOp::Write,
        FaultKind::Error(_) => [IoOp::Read, IoOp::Write, IoOp::Write, IoOp::Flush][rng.random_range(0..4)],
    };
    let fault =
        Fault { times: rng.random::<bool>().then_some(1), ..Fault::once(op, kind) }.after(rng.random_range(0..6));
    let regions = [Region::Log, Region::LogSuperblock, Region::Data, Region::Metadata];
    match (op, rng.random_range(0..6)) {
        (IoOp::Write | IoOp::Read, n) if n < regions.len() => fault.in_region(regions[n]),
        _ => fault,
    }
}

/// Runs a workload of `calls` calls under one fault of this kind.
///
/// # Errors
/// What was broken.
pub fn device_fails(rig: &Rig, base: &Image, seed: u64, calls: usize, kind: FaultKind) -> Result<Seen, String> {
    let mut rng = StdRng::seed_from_u64(seed ^ 0xFA17);
    let disk = Arc::new(PowerLossDevice::from_image(base.clone(), PowerLossOptions::default()));
    let device = Arc::new(Faulty::new(disk.clone()));
    let (memory, clock) = (rig.memory(), Arc::new(VirtualClock::default()));
    let v = rig.mount(device.clone(), memory.as_ref(), clock.clone()).map_err(|e| format!("mount: {e}"))?;
    let ops = generate(rig.config.mix, seed, calls);
    let at = rng.random_range(0..ops.len() / 2);
    let (mut f, mut held) = (Follower::new(), Vec::new());
    let lies = matches!(kind, FaultKind::Lost | FaultKind::FlipBit(_));
    for (i, op) in ops.iter().enumerate() {
        if i == at {
            device.inject(fault(&mut rng, kind));
        }
        let hit = device.hits() > 0;
        let typed = |e: &Error| matches!(e, Error::Device(_) | Error::Journal(_) | Error::ReadOnly(_));
        let excuse = |e: &Error| device.hits() > 0 && (typed(e) || lies && matches!(e, Error::Corrupt(_)));
        let done = f.step(&v, &mut held, op, excuse);
        if lies && hit {
            continue;
        }
        done?;
        clock.sleep(Duration::from_millis(700));
    }
    f.seen.hit = device.hits() > 0;
    f.seen.read_only = v.status().read_only.is_some();
    if f.seen.hit && lies {
        // Whatever it is now, it can be unmounted and mounted without a panic.
        let _ = v.close();
        if let Ok(v) = rig.mount(disk, memory.as_ref(), clock) {
            let _ = observe(&v);
            let _ = v.close();
        }
        return Ok(f.seen);
    }
    device.heal();
    if f.seen.read_only {
        refuses_changes(&v)?;
    }
    // Whose data was lost on the way is told by an fsync; that of all others is as it should be.
    let typed = |e: &Error| matches!(e, Error::Device(_) | Error::Journal(_) | Error::ReadOnly(_));
    let places = (0..=DIRS).flat_map(|dir| (0..NAMES).map(move |name| Place { dir, name }));
    places.map(SimOp::Fsync).try_for_each(|op| f.step(&v, &mut held, &op, typed))?;
    f.compare(&v).map_err(|e| format!("after the fault: {e}"))?;
    drop(v);
    survives(rig, &f, &disk, memory.as_deref(), seed)?;
    Ok(f.seen)
}

/// A volume that had to stop takes no change.
fn refuses_changes(v: &Volume) -> Result<(), String> {
    let mut held = Vec::new();
    let place = Place { dir: 0, name: NAMES };
    for op in [SimOp::Create(place), SimOp::Mkdir(DIRS + 1)] {
        match call(v, &mut held, &op) {
            Err(Error::ReadOnly(_) | Error::Journal(_)) => {}
            said => return Err(format!("read-only, but {op:?}: {said:?}")),
        }
    }
    Ok(())
}

/// What a crash leaves then: a legal state for what was acknowledged.
fn survives(
    rig: &Rig,
    f: &Follower,
    disk: &PowerLossDevice,
    memory: Option<&NvramModel>,
    seed: u64,
) -> Result<(), String> {
    let device = Arc::new(PowerLossDevice::from_image(disk.crash(seed).image, PowerLossOptions::default()));
    let memory = memory.map(|m| Arc::new(NvramModel::new(m.crash_point().crash(seed.rotate_left(9)))));
    let v = rig
        .mount(device.clone(), memory.as_ref(), Arc::new(VirtualClock::default()))
        .map_err(|e| format!("mounting after a crash: {e}"))?;
    let seen = observe(&v).map_err(|e| format!("reading after a crash: {e}"))?;
    let n = f.ops.len();
    let promised = Floors { lossy: f.lossy.clone(), unknown: f.tainted.clone(), ..floors(&f.ops, &f.history, n) };
    first_legal(rig.config.how.route, &f.ops, &f.history, &promised, (n, n), &seen)
        .map_err(|e| format!("after a crash: {e}"))?;
    v.close().map_err(|e| format!("unmounting after a crash: {e}"))?;
    fsck(&device.live()).map_err(|e| format!("after a crash: {e}"))
}

/// Runs a workload on an image that has few blocks free, then deletes everything.
///
/// # Errors
/// What was broken.
pub fn disk_is_full(rig: &Rig, base: &Image, seed: u64, calls: usize) -> Result<Seen, String> {
    space_runs_out(rig, base, seed, calls, 0..0).map(|(seen, _)| seen)
}

/// Runs a workload in which these allocations find no space, then deletes everything. What happened, and how many
/// allocations there were.
///
/// # Errors
/// What was broken.
pub fn space_runs_out(
    rig: &Rig,
    base: &Image,
    seed: u64,
    calls: usize,
    refused: Range<u64>,
) -> Result<(Seen, u64), String> {
    let device = Arc::new(PowerLossDevice::from_image(base.clone(), PowerLossOptions::default()));
    let (memory, clock) = (rig.memory(), Arc::new(VirtualClock::default()));
    let v = rig.mount(device.clone(), memory.as_ref(), clock.clone()).map_err(|e| format!("mount: {e}"))?;
    let before = v.statfs();
    let mut f = Follower::new();
    let for_ever = refused.end == u64::MAX;
    shortage::begin(refused);
    let ran = work_on_little(&v, &clock, &mut f, &generate(rig.config.mix, seed, calls));
    let ran = ran.and_then(|()| if for_ever { delete_all(&v, f.history.now()) } else { Ok(()) });
    let allocations = shortage::end();
    ran?;
    if !for_ever {
        delete_all(&v, f.history.now())?;
    }
    v.sync().map_err(|e| format!("sync: {e}"))?;
    let after = v.statfs();
    // The root directory keeps the blocks that it grew to.
    let kept = v.getattr(quire_layout::Ino::ROOT).map_err(|e| e.to_string())?.size / 1024 - 1;
    if (after.free + kept, after.free_inodes) != (before.free, before.free_inodes) {
        return Err(format!("a leak: {before:?} before, {after:?} after all is deleted"));
    }
    v.close().map_err(|e| format!("unmount: {e}"))?;
    fsck(&device.live())?;
    Ok((f.seen, allocations))
}

/// Each call is done, or refused for want of space, whole.
fn work_on_little(v: &Volume, clock: &VirtualClock, f: &mut Follower, ops: &[SimOp]) -> Result<(), String> {
    let mut held = Vec::new();
    let excuse = |e: &Error| matches!(e, Error::NoSpace | Error::NoInodes);
    // The three directories that a workload begins with may find no space: it then goes on in the root.
    for op in ops.iter().chain([&SimOp::Release]) {
        f.step(v, &mut held, op, excuse)?;
        clock.sleep(Duration::from_millis(700));
    }
    f.compare(v)
}

fn delete_all(v: &Volume, tree: &State) -> Result<(), String> {
    for (path, id) in crate::check::paths(tree).into_iter().rev().filter(|(_, id)| *id != ROOT) {
        let (dir, name) = match path.iter().position(|b| *b == b'/') {
            Some(at) => (Some(&path[..at]), &path[at + 1..]),
            None => (None, path.as_slice()),
        };
        let remove = || {
            let parent = match dir {
                Some(dir) => v.lookup(quire_layout::Ino::ROOT, dir).map(|a| {
                    v.forget(a.ino, 1);
                    a.ino
                })?,
                None => quire_layout::Ino::ROOT,
            };
            if matches!(tree.nodes[&id].kind, Kind::Dir(_)) { v.rmdir(parent, name) } else { v.unlink(parent, name) }
        };
        remove().map_err(|e| format!("removing {}: {e}", String::from_utf8_lossy(&path)))?;
    }
    Ok(())
}
