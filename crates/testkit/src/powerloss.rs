//! A simulated device with a volatile write cache, whose power can go at any step.
//!
//! Guarantees: what a flush covered, and what was written with FUA, survives. Of everything else any set of
//! sectors may survive ([`crate::crash`], M7). A flush covers what had *completed* when it was submitted; with
//! [`Completion::AtWait`] a write that nobody has waited for has not. Outcomes follow from the operations and a seed.
//!
//! ```text
//! submit ──> in flight ──complete──> cache (in order) ──flush──> durable
//!                └────────────────────┴── power cut: any sectors of these on top of durable
//! ```

use crate::crash::{CachedWrite, Content, Crash, CrashPoint};
use crate::image::Image;
use quire_device::io::{BlockDevice, DeviceError, DeviceInfo, Done, ErrorKind, Io, IoOp, Ticket};
use quire_device::sync::atomic::{AtomicBool, Ordering};
use quire_device::sync::{Arc, Mutex, lock};
use std::collections::BTreeMap;

/// When an operation is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Completion {
    /// As soon as it is submitted.
    #[default]
    AtSubmit,
    /// When it is waited for: as late as a caller allows.
    AtWait,
}

/// What a discarded range reads as.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DiscardAs {
    /// Bytes that make no sense, so that nobody relies on them.
    #[default]
    Garbage,
    Zeros,
    /// What was there before.
    Kept,
}

/// How the device behaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PowerLossOptions {
    pub completion: Completion,
    pub discard: DiscardAs,
    /// Bytes that are written whole or not at all: 512, or the physical sector if larger.
    pub unit: u32,
    /// Remembers every operation: see [`PowerLossDevice::recording`].
    pub record: bool,
}

impl Default for PowerLossOptions {
    fn default() -> Self {
        PowerLossOptions { completion: Completion::AtSubmit, discard: DiscardAs::Garbage, unit: 512, record: false }
    }
}

const GARBAGE: u8 = 0xD5;

/// A simulated device whose power can go.
pub struct PowerLossDevice {
    options: PowerLossOptions,
    /// True when the power is cut: of this device, and of those on the same supply.
    cut: Arc<AtomicBool>,
    state: Mutex<State>,
}

struct State {
    durable: Image,
    /// What reads see: `durable` with all of `cache`.
    live: Image,
    /// Completed writes after `durable`, in order.
    cache: Vec<CachedWrite>,
    /// Writes that have left `cache` for `durable`.
    folded: u64,
    open: BTreeMap<u64, Batch>,
    next_ticket: u64,
    steps: u64,
    completed: u64,
    writes: u64,
    flushes: u64,
    cut_at: Option<u64>,
    recording: Option<Recording>,
}

/// A batch that was submitted and not yet waited for.
enum Batch {
    Complete(Result<Done, DeviceError>),
    InFlight(Vec<Flying>, Result<(), DeviceError>),
}

enum Flying {
    Read(Io),
    Write(CachedWrite),
    /// Makes durable this many writes since the start.
    Flush {
        covers: u64,
    },
}

/// All operations since the device was made.
#[derive(Clone, Debug)]
pub struct Recording {
    start: Image,
    unit: u64,
    events: Vec<Event>,
}

#[derive(Clone, Debug)]
enum Event {
    Write(CachedWrite),
    /// How many writes since the start are durable.
    Flush(u64),
}

impl PowerLossDevice {
    #[must_use]
    pub fn from_image(image: Image, options: PowerLossOptions) -> Self {
        Self::on_power(Arc::default(), image, options)
    }

    /// A second device on the power supply of this one, with the same options: whichever is cut, both are.
    #[must_use]
    pub fn beside(&self, image: Image) -> Self {
        Self::on_power(self.cut.clone(), image, self.options)
    }

    fn on_power(cut: Arc<AtomicBool>, image: Image, options: PowerLossOptions) -> Self {
        assert!(options.unit >= 512 && options.unit.is_power_of_two(), "a unit is 512 bytes or a larger power of two");
        let start = || Recording { start: image.clone(), unit: u64::from(options.unit), events: Vec::new() };
        let state = State {
            recording: options.record.then(start),
            durable: image.clone(),
            live: image,
            cache: Vec::new(),
            folded: 0,
            open: BTreeMap::new(),
            next_ticket: 0,
            steps: 0,
            completed: 0,
            writes: 0,
            flushes: 0,
            cut_at: None,
        };
        PowerLossDevice { options, cut, state: Mutex::new(state) }
    }

    /// A device with these contents, all durable.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self::from_image(Image::from_bytes(bytes), PowerLossOptions::default())
    }

    /// Steps so far: writes, zeroings, discards and flushes that were submitted. The first is step 1.
    #[must_use]
    pub fn steps(&self) -> u64 {
        lock(&self.state).steps
    }

    /// Steps that have completed so far: the measure by which [`Recording::crash_points`] tells its moments.
    #[must_use]
    pub fn completed(&self) -> u64 {
        lock(&self.state).completed
    }

    /// Writes so far (with zeroings and discards), and flushes.
    #[must_use]
    pub fn writes_and_flushes(&self) -> (u64, u64) {
        let s = lock(&self.state);
        (s.writes, s.flushes)
    }

    /// Cuts the power at step `n`: that one is in flight when the power goes (a flush has made nothing durable
    /// yet), and every operation from then on fails with [`ErrorKind::Gone`].
    pub fn cut_at(&self, n: u64) {
        lock(&self.state).cut_at = Some(n);
    }

    /// Cuts the power now.
    pub fn cut(&self) {
        self.cut.store(true, Ordering::SeqCst);
    }

    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst)
    }

    /// What the device holds now. It can go on running.
    #[must_use]
    pub fn crash_point(&self) -> CrashPoint {
        let s = lock(&self.state);
        let mut pending = s.cache.clone();
        for batch in s.open.values() {
            let Batch::InFlight(flying, _) = batch else { continue };
            pending.extend(flying.iter().filter_map(|f| match f {
                Flying::Write(w) => Some(CachedWrite { forced: false, ..w.clone() }),
                Flying::Read(_) | Flying::Flush { .. } => None,
            }));
        }
        CrashPoint { durable: s.durable.clone(), pending, unit: u64::from(self.options.unit) }
    }

    /// What a power cut now leaves, chosen by a seed: see [`CrashPoint::crash`].
    #[must_use]
    pub fn crash(&self, seed: u64) -> Crash {
        self.crash_point().crash(seed)
    }

    /// What reads see now.
    #[must_use]
    pub fn live(&self) -> Image {
        lock(&self.state).live.clone()
    }

    /// What is durable for certain.
    #[must_use]
    pub fn durable(&self) -> Image {
        lock(&self.state).durable.clone()
    }

    /// Everything that has completed so far, if the device was told to record.
    #[must_use]
    pub fn recording(&self) -> Option<Recording> {
        lock(&self.state).recording.clone()
    }

    /// Looks an operation over.
    fn check(&self, s: &State, io: &Io) -> Result<(), DeviceError> {
        let (at, len) = io.range();
        let error = |kind, errno| Err(DeviceError { op: io.op(), at, len, kind, errno });
        if self.is_cut() {
            return error(ErrorKind::Gone, 19);
        }
        if at.checked_add(len).is_none_or(|end| end > s.durable.size()) {
            return error(ErrorKind::OutOfRange, 0);
        }
        // No sector, no service: a real disk would not take it either.
        if at % 512 != 0 || len % 512 != 0 { error(ErrorKind::Io, 22) } else { Ok(()) }
    }

    /// Puts a batch in flight, up to the first operation that fails or the step at which the power goes.
    fn launch(&self, s: &mut State, batch: Vec<Io>) -> (Vec<Flying>, Result<(), DeviceError>) {
        let mut flying = Vec::with_capacity(batch.len());
        for io in batch {
            if let Err(e) = self.check(s, &io) {
                return (flying, Err(e));
            }
            let (at, len) = io.range();
            let op = io.op();
            if op != IoOp::Read {
                s.steps += 1;
                if s.cut_at.is_some_and(|n| s.steps >= n) {
                    self.cut();
                }
            }
            let step = s.steps;
            let write = |content, forced| Flying::Write(CachedWrite { step, at, len, forced, content });
            s.writes += u64::from(!matches!(op, IoOp::Read | IoOp::Flush));
            flying.push(match io {
                io @ Io::Read { .. } => Flying::Read(io),
                Io::Write { data, fua, .. } => write(Content::Data(data), fua),
                Io::Zero { .. } => write(Content::Fill(0), false),
                Io::Discard { .. } => match self.options.discard {
                    DiscardAs::Garbage => write(Content::Fill(GARBAGE), false),
                    DiscardAs::Zeros => write(Content::Fill(0), false),
                    DiscardAs::Kept => continue,
                },
                Io::Flush => {
                    s.flushes += 1;
                    Flying::Flush { covers: s.folded + s.cache.len() as u64 }
                }
            });
            if self.is_cut() {
                return (flying, Err(DeviceError { op, at, len, kind: ErrorKind::Gone, errno: 19 }));
            }
        }
        (flying, Ok(()))
    }
}

impl State {
    /// Completes what was in flight, in order.
    fn complete(&mut self, flying: Vec<Flying>) -> Done {
        let mut done = Done::default();
        for one in flying {
            match one {
                Flying::Read(Io::Read { at, mut buf, .. }) => {
                    self.live.read(at, &mut buf);
                    done.reads.push(buf);
                }
                Flying::Read(_) => unreachable!("only reads are kept so"),
                Flying::Write(write) => {
                    write.apply(&mut self.live);
                    self.record(Event::Write(write.clone()));
                    self.cache.push(write);
                    // A forced write with nothing before it is simply durable.
                    let forced = self.cache.iter().take_while(|w| w.forced).count() as u64;
                    self.fold(self.folded + forced);
                }
                Flying::Flush { covers } => {
                    self.record(Event::Flush(covers));
                    self.fold(covers);
                }
            }
        }
        done
    }

    fn record(&mut self, event: Event) {
        self.completed += 1;
        if let Some(recording) = &mut self.recording {
            recording.events.push(event);
        }
    }

    /// Makes durable the first `covers` writes since the start.
    fn fold(&mut self, covers: u64) {
        fold(&mut self.durable, &mut self.cache, &mut self.folded, covers);
    }
}

fn fold(durable: &mut Image, cache: &mut Vec<CachedWrite>, folded: &mut u64, covers: u64) {
    let n = usize::try_from(covers.saturating_sub(*folded)).expect("counted in memory").min(cache.len());
    cache.drain(..n).for_each(|w| w.apply(durable));
    *folded += n as u64;
}

impl Recording {
    /// Every state in which the device was between two steps, with [`PowerLossDevice::completed`] as it then was: what
    /// was acknowledged when that number was not larger must be found again in every outcome. The first is the start.
    pub fn crash_points(&self) -> impl Iterator<Item = (u64, CrashPoint)> + '_ {
        self.crash_points_at(|_, _| true)
    }

    /// Those of the states for which `wanted` says so, given [`PowerLossDevice::completed`] and whether the next step
    /// is a flush or a forced write: the moments at which most is in doubt.
    pub fn crash_points_at<'a>(
        &'a self,
        mut wanted: impl FnMut(u64, bool) -> bool + 'a,
    ) -> impl Iterator<Item = (u64, CrashPoint)> + 'a {
        let settles = |e: &Event| match e {
            Event::Write(w) => w.forced,
            Event::Flush(_) => true,
        };
        let start = CrashPoint { durable: self.start.clone(), pending: Vec::new(), unit: self.unit };
        let (mut point, mut folded, mut completed) = (start.clone(), 0, 0);
        let first = wanted(0, false).then_some((0, start));
        let later = self.events.iter().enumerate().flat_map(move |(i, event)| {
            let mut points = Vec::new();
            match event {
                Event::Write(write) => {
                    if write.forced && wanted(completed, true) {
                        let mut in_flight = point.clone();
                        in_flight.pending.push(CachedWrite { forced: false, ..write.clone() });
                        points.push((completed, in_flight));
                    }
                    point.pending.push(write.clone());
                    completed += 1;
                    let forced = point.pending.iter().take_while(|w| w.forced).count() as u64;
                    let covers = folded + forced;
                    fold(&mut point.durable, &mut point.pending, &mut folded, covers);
                }
                Event::Flush(covers) => {
                    completed += 1;
                    fold(&mut point.durable, &mut point.pending, &mut folded, *covers);
                }
            }
            if wanted(completed, self.events.get(i + 1).is_some_and(settles)) {
                points.push((completed, point.clone()));
            }
            points
        });
        first.into_iter().chain(later)
    }

    /// Writes and flushes recorded.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }
}

impl BlockDevice for PowerLossDevice {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            size: lock(&self.state).durable.size(),
            logical_sector: 512,
            physical_sector: self.options.unit,
            read_only: false,
            discards: true,
        }
    }

    fn submit(&self, batch: Vec<Io>) -> Ticket {
        let mut s = lock(&self.state);
        let (flying, result) = self.launch(&mut s, batch);
        // What was in flight when the power went stays so for ever.
        let batch = if self.options.completion == Completion::AtWait || self.is_cut() {
            Batch::InFlight(flying, result)
        } else {
            let done = s.complete(flying);
            Batch::Complete(result.map(|()| done))
        };
        s.next_ticket += 1;
        let id = s.next_ticket;
        s.open.insert(id, batch);
        Ticket(id)
    }

    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        let mut s = lock(&self.state);
        if self.is_cut() && matches!(s.open.get(&ticket.0), Some(Batch::InFlight(..))) {
            let Some(Batch::InFlight(flying, result)) = s.open.get(&ticket.0) else { unreachable!("looked at above") };
            let gone = |op, at, len| DeviceError { op, at, len, kind: ErrorKind::Gone, errno: 19 };
            let first = match flying.first() {
                Some(Flying::Write(w)) => gone(IoOp::Write, w.at, w.len),
                Some(Flying::Read(io)) => gone(IoOp::Read, io.range().0, io.range().1),
                Some(Flying::Flush { .. }) | None => gone(IoOp::Flush, 0, 0),
            };
            return Err(result.clone().err().unwrap_or(first));
        }
        match s.open.remove(&ticket.0).expect("a ticket is waited for once") {
            Batch::Complete(result) => result,
            Batch::InFlight(flying, result) => {
                let done = s.complete(flying);
                result.map(|()| done)
            }
        }
    }
}
