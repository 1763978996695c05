//! Several writers on one volume, and its background work, interleaved wherever the engine takes a lock, waits, or does
//! I/O. One seed determines the calls and the interleaving (feature `shuttle`).
//!
//! Each writer has a directory of its own and a model of what is below; they share the allocator, the journal, the
//! orphans, the flushes. After a crash each tree must be a legal state for its writer ([`crate::check`]), and all of
//! them together a prefix: if a call is there, so is every call of another writer that had returned before it began.

use crate::check::{Floors, first_legal, floors};
use crate::explore::{Config, Effort, Failure, Report, fsck};
use crate::mixes::generate;
use crate::model::{History, Outcome};
use crate::observe::{Observed, observe_below};
use crate::ops::SimOp;
use crate::outcomes::{Digest, LogArea, outcomes};
use crate::run::{How, Route, call_below, mount};
use quire_device::Clock;
use quire_device::sync::{Arc, Mutex, lock, thread};
use quire_fs::{Cred, New, NewKind, Volume};
use quire_layout::Ino;
use quire_testkit::interleave;
use quire_testkit::{Image, PowerLossDevice, PowerLossOptions, VirtualClock};
use std::collections::HashSet;
use std::time::Duration;

/// When a call was under way: by the device's completed steps, and by the order of all beginnings and returns.
#[derive(Clone, Copy, Default)]
struct Span {
    began_at: u64,
    returned_at: u64,
    began: u64,
    returned: u64,
}

/// A writer's run.
struct Written {
    ops: Vec<SimOp>,
    history: History,
    spans: Vec<Span>,
}

/// What all writers work on.
struct Ground {
    volume: Volume,
    device: Arc<PowerLossDevice>,
    clock: Arc<VirtualClock>,
    order: Mutex<u64>,
}

impl Ground {
    /// The place in the order of things, and the device's completed steps.
    fn now(&self) -> (u64, u64) {
        let mut order = lock(&self.order);
        *order += 1;
        (*order, self.device.completed())
    }

    fn write(&self, top: Ino, ops: &[SimOp]) -> Result<Written, String> {
        let (mut history, mut spans, mut held) = (History::default(), Vec::new(), Vec::new());
        for (i, op) in ops.iter().enumerate() {
            let outcome = history.apply(op);
            let (began, began_at) = self.now();
            let said = call_below(&self.volume, top, &mut held, op);
            let (returned, returned_at) = self.now();
            if said.is_ok() != (outcome != Outcome::Refused) {
                return Err(format!("call {i}, {op:?}: the volume says {said:?}, the model {outcome:?}"));
            }
            spans.push(Span { began_at, returned_at, began, returned });
            self.clock.sleep(Duration::from_millis(300));
        }
        held.drain(..).for_each(|ino| self.volume.forget(ino, 1));
        Ok(Written { ops: ops.to_vec(), history, spans })
    }
}

/// Runs `writers` writers with one seed, and explores what crashes leave.
///
/// # Errors
/// The first promise that was broken.
pub fn explore(config: &Config, base: &Image, seed: u64, effort: Effort, writers: u64) -> Result<Report, Box<Failure>> {
    let found = std::sync::Arc::new(std::sync::Mutex::new(None));
    let (out, config, base) = (found.clone(), config.clone(), base.clone());
    interleave::once(seed, move || {
        *out.lock().expect("nobody panicked") = Some(one(&config, &base, seed, effort, writers));
    });
    let result = found.lock().expect("nobody panicked").take();
    result.expect("it ran")
}

fn one(config: &Config, base: &Image, seed: u64, effort: Effort, writers: u64) -> Result<Report, Box<Failure>> {
    let fail = |crash, why: String| {
        let (kept, ops) = (Vec::new(), Vec::new());
        Box::new(Failure { config: config.name, mix: config.mix, test: "writers", seed, crash, why, kept, ops })
    };
    let options = PowerLossOptions { record: true, ..PowerLossOptions::default() };
    let device = Arc::new(PowerLossDevice::from_image(base.clone(), options));
    let clock = Arc::new(VirtualClock::default());
    let volume = mount(device.clone(), clock.clone(), config.how).map_err(|e| fail(None, format!("mount: {e}")))?;
    let tops = tops(&volume, writers).map_err(|e| fail(None, e))?;
    let from = device.completed();
    let ground = Arc::new(Ground { volume: volume.clone(), device: device.clone(), clock, order: Mutex::new(0) });
    let threads: Vec<_> = (0u64..)
        .zip(&tops)
        .map(|(n, top)| {
            let (ground, top) = (ground.clone(), *top);
            let ops = generate(config.mix, seed.wrapping_mul(16).wrapping_add(n), effort.calls);
            thread::spawn(move || ground.write(top, &ops))
        })
        .collect();
    let behind = ground.clone();
    // Calls that come while it is frozen wait.
    let rounds = effort.calls / 4;
    let background = thread::spawn(move || {
        let maintenance = behind.volume.maintenance();
        (0..rounds).try_for_each(|n| {
            maintenance.step()?;
            if n % 8 < 7 { Ok(()) } else { maintenance.freeze().and_then(|()| maintenance.thaw()) }
        })
    });
    let mut written = Vec::new();
    for (n, t) in threads.into_iter().enumerate() {
        let w = t.join().map_err(|_| fail(None, format!("writer {n} panicked")))?;
        written.push(w.map_err(|why| fail(None, format!("writer {n}, {why}")))?);
    }
    let steps = background.join().map_err(|_| fail(None, "the background panicked".into()))?;
    steps.map_err(|e| fail(None, format!("background: {e}")))?;
    tops.iter().for_each(|ino| volume.forget(*ino, 1));
    volume.close().map_err(|e| fail(None, format!("unmount: {e}")))?;
    fsck(&device.live()).map_err(|why| fail(None, format!("after a clean unmount: {why}")))?;

    let recording = device.recording().expect("it records");
    let (mut report, mut seen) = (Report { runs: 1, ..Report::default() }, HashSet::new());
    let log = LogArea::of(base).map_err(|e| fail(None, e))?;
    let (mut durable, mut digest) = (base.clone(), Digest::default());
    for (steps, point) in recording.crash_points_at(|at, _| at >= from) {
        digest = digest.after(&durable, &point.durable, &log);
        durable = point.durable.clone();
        report.moments += 1;
        for (n, crash) in (0u64..).zip(outcomes(&point, effort, false, seed ^ steps.rotate_left(32))) {
            report.count(&crash);
            report.distinct += u64::from(seen.insert(digest.after(&durable, &crash.image, &log).all));
            let judge = effort.fsck_every > 0 && (seed + report.states).is_multiple_of(effort.fsck_every);
            report.fsck += u64::from(judge);
            survives(config.how, &written, steps, crash.image, judge).map_err(|why| fail(Some((steps, n)), why))?;
        }
    }
    Ok(report)
}

/// A durable directory for each writer.
fn tops(v: &Volume, writers: u64) -> Result<Vec<Ino>, String> {
    let new = New { kind: NewKind::Dir, mode: 0o755, umask: 0, cred: Cred::default() };
    let make = |n| v.create(Ino::ROOT, name(n).as_bytes(), &new).map(|a| a.ino).map_err(|e| e.to_string());
    let tops = (0..writers).map(make).collect::<Result<Vec<_>, _>>()?;
    v.sync().map_err(|e| e.to_string())?;
    Ok(tops)
}

fn name(writer: u64) -> String {
    format!("writer{writer}")
}

fn survives(how: How, written: &[Written], steps: u64, image: Image, judge: bool) -> Result<(), String> {
    let device = Arc::new(PowerLossDevice::from_image(image, PowerLossOptions::default()));
    let v = mount(device.clone(), Arc::new(VirtualClock::default()), how)
        .map_err(|e| format!("mounting the crash image: {e}"))?;
    let mut trees = Vec::new();
    for n in 0..written.len() as u64 {
        let top = v.lookup(Ino::ROOT, name(n).as_bytes()).map_err(|e| format!("{}: {e}", name(n)))?.ino;
        trees.push(observe_below(&v, top).map_err(|e| format!("reading {}: {e}", name(n)))?);
        v.forget(top, 1);
    }
    check(how.route, written, steps, &trees)?;
    if judge {
        v.close().map_err(|e| format!("unmounting the survivor: {e}"))?;
        fsck(&device.live())?;
    }
    Ok(())
}

/// For each writer a legal state, all of them together a prefix: as long as a tree lacks a call that another tree's
/// last one came after, that other one must be an older state.
fn check(route: Route, written: &[Written], steps: u64, trees: &[Observed]) -> Result<(), String> {
    let mut most = Vec::new();
    let mut promised: Vec<Floors> = Vec::new();
    for w in written {
        let returned = w.spans.iter().take_while(|s| s.returned_at <= steps).count();
        most.push(w.spans.iter().take_while(|s| s.began_at <= steps).count());
        promised.push(floors(&w.ops, &w.history, returned));
    }
    // A sync promises what others had done before it began.
    for (a, w) in written.iter().enumerate() {
        let synced = |(op, s): (&SimOp, &Span)| (*op == SimOp::Sync && s.returned_at <= steps).then_some(s.began);
        let Some(last) = w.ops.iter().zip(&w.spans).filter_map(synced).max() else { continue };
        for b in (0..written.len()).filter(|b| *b != a) {
            let before = written[b].spans.iter().take_while(|s| s.returned < last).count();
            promised[b].names = promised[b].names.max(before);
            for id in written[b].history.states[before].nodes.keys() {
                let floor = promised[b].data.entry(*id).or_default();
                *floor = before.max(*floor);
            }
        }
    }
    let begun = most.clone();
    let mut k = vec![0; written.len()];
    let mut todo: Vec<usize> = (0..written.len()).collect();
    while !todo.is_empty() {
        for n in todo.drain(..) {
            let w = &written[n];
            k[n] = first_legal(route, &w.ops, &w.history, &promised[n], (most[n], begun[n]), &trees[n])
                .map_err(|why| format!("{}: {why}", name(n as u64)))?;
        }
        for (a, b) in (0..k.len()).flat_map(|a| (0..k.len()).map(move |b| (a, b))).filter(|(a, b)| a != b) {
            // The first call that is not in `a`'s tree returned before the last one in `b`'s began.
            let Some(lacks) = written[a].spans.get(k[a]) else { continue };
            let after = written[b].spans[..k[b]].iter().take_while(|s| s.began < lacks.returned).count();
            if after < k[b] && !todo.contains(&b) {
                most[b] = after;
                todo.push(b);
            }
        }
    }
    Ok(())
}
