//! Bounded enumeration: every sequence of one or two calls on a small tree, as CrashMonkey's ACE makes them.
//!
//! The bounds are ACE's (Mohan et al., OSDI 2018): files `foo` and `A/foo`, second files `bar` and `A/bar`, directories
//! `A` and `B`; writes that append, that overlap unaligned, and that overlap and extend; each call may be followed by a
//! call that makes something durable (the last one is): an fsync of what was used, of its sibling or of its directory,
//! an fdatasync of what was used, or a sync. What a call needs is made before it.
//!
//! ```text
//! start state ─ [needed] call 1 ─ persist 1 or none ─ [needed] call 2 ─ persist 2 ─ (unmount, after a sync)
//!                                                     └──────── crashes of a sequence of two are here ────┘
//! ```
//! Before the second call a sequence of two is one of one, whose crashes are looked at there.

use crate::explore::{Broken, Calls, Config, Effort, Explorer, From, Report};
use crate::known::{Known, Seen};
use crate::model::{History, Outcome};
use crate::ops::{Place, SimOp};
use crate::outcomes::LogArea;
use quire_testkit::Image;

const FOO: Place = Place { dir: 0, name: 0 };
const BAR: Place = Place { dir: 0, name: 1 };
const A_FOO: Place = Place { dir: 1, name: 0 };
const A_BAR: Place = Place { dir: 1, name: 1 };
const FILES: [Place; 2] = [FOO, A_FOO];
const SECOND_FILES: [Place; 2] = [BAR, A_BAR];
const ALL_FILES: [Place; 4] = [FOO, A_FOO, BAR, A_BAR];
/// The directories `A` and `B`, and one that is never there before.
const A: u8 = 1;
const B: u8 = 2;
const C: u8 = 3;

/// Bytes of a file that a call finds.
const SIZE: u32 = 10_000;
/// Where a write, a hole or a reservation lies: behind the end, unaligned inside, over the end.
const APPEND: (u32, u32) = (SIZE, 4096);
const INSIDE: (u32, u32) = (1500, 4096);
const EXTEND: (u32, u32) = (8192, 4096);

/// What is there, and durable, before the first call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Before {
    /// Nothing: what a call needs is made before it, and not durable.
    Nothing,
    /// The tree, durable in the log.
    Synced,
    /// The tree, at home.
    AtHome,
}

impl Before {
    fn calls(self) -> Vec<SimOp> {
        let mut calls = vec![SimOp::Mkdir(A), SimOp::Mkdir(B)];
        for place in FILES {
            calls.extend([SimOp::Create(place), filled(place), SimOp::SetXattr(place, 0, 40)]);
        }
        match self {
            Before::Nothing => calls.clear(),
            Before::Synced => calls.push(SimOp::Sync),
            Before::AtHome => calls.extend([SimOp::Sync, SimOp::Checkpoint]),
        }
        calls
    }
}

fn filled(place: Place) -> SimOp {
    SimOp::Write { place, offset: 0, len: SIZE, fill: 0x11, sync: false }
}

/// The calls that sequences are made of. `turn` tells the first call of a sequence from the second by what it writes.
#[must_use]
pub fn core_calls(turn: u8) -> Vec<SimOp> {
    let fill = 0x20 + turn;
    let mut calls = vec![SimOp::Mkdir(A), SimOp::Mkdir(C), SimOp::RenameDir(A, B)];
    calls.extend(FILES.map(SimOp::Create));
    for place in FILES {
        let write = |(offset, len)| SimOp::Write { place, offset, len, fill, sync: false };
        calls.push(SimOp::Append { place, len: 4096, fill, sync: false });
        calls.extend([INSIDE, EXTEND].map(write));
        calls.push(SimOp::MapWrite { place, page: 1, at: 100, len: 600, fill });
        for (offset, len) in [APPEND, INSIDE, EXTEND] {
            calls.push(SimOp::Allocate { place, offset, len });
            calls.push(SimOp::Reserve { place, offset, len });
            calls.push(SimOp::Zero { place, offset, len });
        }
        calls.extend([INSIDE, EXTEND].map(|(offset, len)| SimOp::Punch { place, offset, len }));
        calls.extend([4096, 2500, 0].map(|size| SimOp::Truncate(place, size)));
        calls.extend([SimOp::SetXattr(place, 1, 200), SimOp::RemoveXattr(place, 0)]);
    }
    // A target that lies in the inode, and one that has a block.
    calls.extend([SimOp::Symlink(BAR, 20), SimOp::Symlink(A_BAR, 150)]);
    for to in SECOND_FILES {
        for from in ALL_FILES.into_iter().filter(|from| *from != to) {
            calls.extend([SimOp::Link(from, to), SimOp::Rename(from, to)]);
        }
    }
    calls.extend(ALL_FILES.map(SimOp::Unlink));
    calls
}

/// The files that a call is about, and the directories.
fn used(call: &SimOp) -> (Vec<Place>, Vec<u8>) {
    match *call {
        SimOp::Mkdir(dir) => (vec![], vec![dir]),
        SimOp::RenameDir(from, to) => (vec![], vec![from, to]),
        SimOp::Link(from, to) | SimOp::Rename(from, to) => (vec![from, to], vec![]),
        SimOp::Create(p) | SimOp::Unlink(p) | SimOp::Symlink(p, _) | SimOp::Truncate(p, _) => (vec![p], vec![]),
        SimOp::SetXattr(p, ..) | SimOp::RemoveXattr(p, _) => (vec![p], vec![]),
        SimOp::Write { place, .. } | SimOp::Append { place, .. } | SimOp::MapWrite { place, .. } => {
            (vec![place], vec![])
        }
        SimOp::Allocate { place, .. } | SimOp::Reserve { place, .. } => (vec![place], vec![]),
        SimOp::Zero { place, .. } | SimOp::Punch { place, .. } => (vec![place], vec![]),
        ref other => unreachable!("{other:?} is no call of a sequence"),
    }
}

/// True if the call makes its last file; other calls find all of them.
fn makes(call: &SimOp) -> bool {
    matches!(call, SimOp::Create(_) | SimOp::Symlink(..) | SimOp::Link(..) | SimOp::Rename(..))
}

/// The calls of a sequence, with what is done before them.
struct Building {
    calls: Vec<SimOp>,
    model: History,
}

impl Building {
    fn does(&mut self, call: SimOp) -> bool {
        let done = self.model.apply(&call) != Outcome::Refused;
        self.calls.push(call);
        done
    }

    fn succeeds(&self, call: &SimOp) -> bool {
        self.model.clone().apply(call) != Outcome::Refused
    }

    fn make(&mut self, call: SimOp) {
        if self.succeeds(&call) {
            self.does(call);
        }
    }

    /// Makes what a call needs, and does it. Returns false if it cannot succeed.
    fn call(&mut self, call: SimOp) -> bool {
        let (files, dirs) = used(&call);
        for place in &files {
            if place.dir > 0 {
                self.make(SimOp::Mkdir(place.dir));
            }
        }
        if matches!(call, SimOp::RenameDir(..)) {
            self.make(SimOp::Mkdir(dirs[0]));
        }
        let found = files.len() - usize::from(makes(&call));
        for place in &files[..found] {
            if self.succeeds(&SimOp::Create(*place)) {
                self.does(SimOp::Create(*place));
                self.does(filled(*place));
            }
        }
        if let (SimOp::Create(p) | SimOp::Symlink(p, _) | SimOp::Link(_, p), false) = (&call, self.succeeds(&call)) {
            self.make(SimOp::Unlink(*p));
        }
        if let (SimOp::RemoveXattr(p, which), false) = (&call, self.succeeds(&call)) {
            self.make(SimOp::SetXattr(*p, *which, 40));
        }
        self.does(call)
    }

    /// What may be made durable after the last call: what the calls of the sequence used, siblings and directories.
    fn persists(&self, calls: &[&SimOp]) -> Vec<SimOp> {
        let mut out = vec![SimOp::Sync];
        let mut add = |op: SimOp| {
            if !out.contains(&op) && self.succeeds(&op) {
                out.push(op);
            }
        };
        for (files, dirs) in calls.iter().map(|c| used(c)) {
            for place in files {
                [SimOp::Fsync(place), SimOp::Fdatasync(place)].into_iter().for_each(&mut add);
                add(SimOp::Fsync(Place { name: 1 - place.name, ..place }));
                add(SimOp::FsyncDir(place.dir));
            }
            for dir in dirs {
                [SimOp::FsyncDir(dir), SimOp::FsyncDir(0)].into_iter().for_each(&mut add);
            }
        }
        out
    }
}

/// A sequence: all of its calls, and how many are done before those whose crashes are looked at.
#[derive(Clone, Debug)]
pub struct Sequence {
    pub calls: Vec<SimOp>,
    pub before: usize,
}

fn start(before: Before) -> Building {
    let mut b = Building { calls: Vec::new(), model: History::default() };
    before.calls().into_iter().for_each(|call| {
        b.does(call);
    });
    b
}

/// Every sequence of one call and one that makes something durable.
#[must_use]
pub fn of_one(before: Before) -> Vec<Sequence> {
    let mut out = Vec::new();
    for call in core_calls(1) {
        let mut b = start(before);
        let made = b.calls.len();
        if !b.call(call.clone()) {
            continue;
        }
        for persist in b.persists(&[&call]) {
            let calls = b.calls.iter().cloned().chain([persist]).collect();
            out.push(Sequence { calls, before: made });
        }
    }
    out
}

/// Every sequence of two calls, the first of which is number `first` of [`core_calls`].
#[must_use]
pub fn of_two(before: Before, first: usize) -> Vec<Sequence> {
    let mut out = Vec::new();
    let one = &core_calls(1)[first];
    let mut b = start(before);
    if !b.call(one.clone()) {
        return out;
    }
    let after_first = b.persists(&[one]);
    for persist in std::iter::once(None).chain(after_first.into_iter().map(Some)) {
        let mut done = Building { calls: b.calls.clone(), model: b.model.clone() };
        persist.into_iter().for_each(|p| {
            done.does(p);
        });
        let made = done.calls.len();
        for two in core_calls(2) {
            let mut b = Building { calls: done.calls.clone(), model: done.model.clone() };
            if !b.call(two.clone()) {
                continue;
            }
            for persist in b.persists(&[one, &two]) {
                let calls = b.calls.iter().cloned().chain([persist]).collect();
                out.push(Sequence { calls, before: made });
            }
        }
    }
    out
}

/// Sequences on one configuration.
pub struct Enumeration<'a> {
    config: &'a Config,
    base: &'a Image,
    log: LogArea,
    effort: Effort,
    seen: Seen,
    known: Known,
    pub report: Report,
}

impl<'a> Enumeration<'a> {
    /// # Errors
    /// The image has no log.
    pub fn new(config: &'a Config, base: &'a Image, effort: Effort) -> Result<Self, String> {
        let (log, seen, known) = (LogArea::of(base)?, Seen::default(), Known::default());
        Ok(Enumeration { config, base, log, effort, seen, known, report: Report::default() })
    }

    /// Explores one sequence. `seed` chooses how writes complete, and what is not enumerated.
    ///
    /// # Errors
    /// The promise that was broken, with the calls.
    pub fn explore(&mut self, sequence: &Sequence, seed: u64) -> Result<(), String> {
        let (config, base, log, effort) = (self.config, self.base, &self.log, self.effort);
        let mut explorer = Explorer { config, base, log, effort, seen: &mut self.seen, known: &mut self.known };
        let ops = sequence.calls.as_slice();
        let from = if sequence.before == 0 { From::Mount } else { From::Call(sequence.before) };
        let unmount = ops.last() == Some(&SimOp::Sync);
        let report = explorer.explore(&Calls { ops, seed, from, unmount, edges: true });
        self.report.add(&report.map_err(|(crash, why): Broken| {
            let at = crash.map_or(String::new(), |(n, o)| format!(", power cut after {n} steps, outcome {o}"));
            let calls: Vec<String> = ops.iter().enumerate().map(|(i, op)| format!("  {i}: {op:?}")).collect();
            format!("configuration {}{at}\n{why}\n{}", config.name, calls.join("\n"))
        })?);
        Ok(())
    }
}
