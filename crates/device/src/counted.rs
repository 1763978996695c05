//! Counts what goes to a device, by region.
//!
//! Operations are counted when they are submitted, their time when they have been waited for: the time of a batch is
//! what its caller saw from submit to the return of wait, and counts for each of its operations.

use crate::clock::{Clock, SystemClock};
use crate::histogram::{Histogram, Latencies};
use crate::io::{BlockDevice, DeviceError, DeviceInfo, Done, Io, ReadDone, Region, Ticket, fill_now};
use crate::read_buf::ReadBuf;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::tickets::Tickets;
use crate::waits::{WaitFor, waited};
use std::time::Duration;

/// How much of one kind of operation there was.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OpStats {
    pub count: u64,
    pub bytes: u64,
    /// Sum of the time from submit to completion.
    pub time: Duration,
}

impl OpStats {
    fn since(self, earlier: OpStats) -> OpStats {
        OpStats {
            count: self.count - earlier.count,
            bytes: self.bytes - earlier.bytes,
            time: self.time.saturating_sub(earlier.time),
        }
    }
}

/// Operations of one region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RegionStats {
    pub reads: OpStats,
    /// Writes, those with FUA included.
    pub writes: OpStats,
    /// Writes with FUA.
    pub fua: OpStats,
    pub zeroes: OpStats,
}

/// Everything that was counted up to a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct DeviceStats {
    regions: [RegionStats; Region::ALL.len()],
    pub flushes: OpStats,
    pub discards: OpStats,
    /// Batches that failed.
    pub errors: u64,
}

impl DeviceStats {
    #[must_use]
    pub fn region(&self, region: Region) -> RegionStats {
        self.regions[place(region)]
    }

    /// What has happened since an earlier snapshot of the same device.
    #[must_use]
    pub fn since(&self, earlier: &DeviceStats) -> DeviceStats {
        let mut regions = self.regions;
        for (now, then) in regions.iter_mut().zip(&earlier.regions) {
            *now = RegionStats {
                reads: now.reads.since(then.reads),
                writes: now.writes.since(then.writes),
                fua: now.fua.since(then.fua),
                zeroes: now.zeroes.since(then.zeroes),
            };
        }
        DeviceStats {
            regions,
            flushes: self.flushes.since(earlier.flushes),
            discards: self.discards.since(earlier.discards),
            errors: self.errors - earlier.errors,
        }
    }

    /// Sum over the regions of what `which` picks, e.g. `stats.total(|r| r.writes)`.
    #[must_use]
    pub fn total(&self, which: impl Fn(&RegionStats) -> OpStats) -> OpStats {
        self.regions.iter().map(which).fold(OpStats::default(), |sum, one| OpStats {
            count: sum.count + one.count,
            bytes: sum.bytes + one.bytes,
            time: sum.time + one.time,
        })
    }
}

fn place(region: Region) -> usize {
    Region::ALL.iter().position(|r| *r == region).expect("ALL has every region")
}

#[derive(Default)]
struct Counter {
    count: AtomicU64,
    bytes: AtomicU64,
    nanos: AtomicU64,
}

impl Counter {
    fn count(&self, bytes: u64) {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn read(&self) -> OpStats {
        OpStats {
            count: self.count.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            time: Duration::from_nanos(self.nanos.load(Ordering::Relaxed)),
        }
    }
}

#[derive(Default)]
struct RegionCounters {
    reads: Counter,
    writes: Counter,
    fua: Counter,
    zeroes: Counter,
}

#[derive(Default)]
struct Counters {
    regions: [RegionCounters; Region::ALL.len()],
    flushes: Counter,
    discards: Counter,
    errors: AtomicU64,
    /// Of batches and transfers that only read, that write, and of flushes.
    latencies: [Histogram; 3],
}

/// How long callers waited for a device: a batch, or a transfer, counts once.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct DeviceLatencies {
    pub reads: Latencies,
    /// Of writes, zeroes and discards.
    pub writes: Latencies,
    pub flushes: Latencies,
}

/// What the time of an operation is added to.
#[derive(Clone, Copy)]
enum Class {
    Read(Region),
    Write(Region, bool),
    Zero(Region),
    Flush,
    Discard,
}

impl Class {
    fn of(io: &Io) -> Class {
        match io {
            Io::Read { region, .. } => Class::Read(*region),
            Io::Write { region, fua, .. } => Class::Write(*region, *fua),
            Io::Zero { region, .. } => Class::Zero(*region),
            Io::Flush => Class::Flush,
            Io::Discard { .. } => Class::Discard,
        }
    }

    fn waits_for(self) -> WaitFor {
        match self {
            Class::Read(_) => WaitFor::Read,
            Class::Write(..) | Class::Zero(_) | Class::Discard => WaitFor::Write,
            Class::Flush => WaitFor::Flush,
        }
    }
}

/// What decides how long a batch takes: a flush, or else a write.
fn slowest(classes: &[Class]) -> Option<WaitFor> {
    let reasons = || classes.iter().map(|c| c.waits_for());
    [WaitFor::Flush, WaitFor::Write, WaitFor::Read].into_iter().find(|r| reasons().any(|c| c == *r))
}

impl Counters {
    /// The counters of a class; a FUA write has two.
    fn of(&self, class: Class) -> (&Counter, Option<&Counter>) {
        let region = |r| &self.regions[place(r)];
        match class {
            Class::Read(r) => (&region(r).reads, None),
            Class::Write(r, fua) => (&region(r).writes, fua.then_some(&region(r).fua)),
            Class::Zero(r) => (&region(r).zeroes, None),
            Class::Flush => (&self.flushes, None),
            Class::Discard => (&self.discards, None),
        }
    }

    fn count(&self, batch: &[Io]) {
        for io in batch {
            let (first, second) = self.of(Class::of(io));
            let bytes = io.range().1;
            first.count(bytes);
            if let Some(second) = second {
                second.count(bytes);
            }
        }
    }

    fn finish(&self, classes: &[Class], time: Duration, failed: bool) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        for class in classes {
            let (first, second) = self.of(*class);
            first.nanos.fetch_add(nanos, Ordering::Relaxed);
            if let Some(second) = second {
                second.nanos.fetch_add(nanos, Ordering::Relaxed);
            }
        }
        if failed {
            self.errors.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(reason) = slowest(classes) {
            self.latency_of(reason).record(time);
        }
    }

    fn latency_of(&self, reason: WaitFor) -> &Histogram {
        let [reads, writes, flushes] = &self.latencies;
        match reason {
            WaitFor::Read => reads,
            WaitFor::Flush => flushes,
            _ => writes,
        }
    }
}

/// A device whose operations are counted.
pub struct Counted<D> {
    inner: D,
    clock: Arc<dyn Clock>,
    counters: Arc<Counters>,
    open: Tickets<(Ticket, Duration, Vec<Class>)>,
}

impl<D: BlockDevice> Counted<D> {
    #[must_use]
    pub fn new(inner: D) -> Self {
        Self::with_clock(inner, Arc::new(SystemClock))
    }

    #[must_use]
    pub fn with_clock(inner: D, clock: Arc<dyn Clock>) -> Self {
        Counted { inner, clock, counters: Arc::default(), open: Tickets::default() }
    }

    #[must_use]
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Counts one transfer of `bytes`.
    fn timed(
        &self,
        class: Class,
        bytes: u64,
        transfer: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        self.counters.of(class).0.count(bytes);
        let start = self.clock.monotonic();
        let result = transfer();
        self.finish(&[class], start, start, result.is_err());
        result
    }

    /// Operations that began at `start` are complete; the calling thread has waited for them since `waits_from`.
    fn finish(&self, classes: &[Class], start: Duration, waits_from: Duration, failed: bool) {
        let now = self.clock.monotonic();
        self.counters.finish(classes, now.saturating_sub(start), failed);
        if let Some(reason) = slowest(classes) {
            waited(reason, now.saturating_sub(waits_from));
        }
    }

    /// How long callers waited so far.
    #[must_use]
    pub fn latencies(&self) -> DeviceLatencies {
        let [reads, writes, flushes] = &self.counters.latencies;
        DeviceLatencies { reads: reads.snapshot(), writes: writes.snapshot(), flushes: flushes.snapshot() }
    }

    /// What was counted so far.
    #[must_use]
    pub fn snapshot(&self) -> DeviceStats {
        let c = &self.counters;
        let mut regions = [RegionStats::default(); Region::ALL.len()];
        for (to, from) in regions.iter_mut().zip(&c.regions) {
            *to = RegionStats {
                reads: from.reads.read(),
                writes: from.writes.read(),
                fua: from.fua.read(),
                zeroes: from.zeroes.read(),
            };
        }
        DeviceStats {
            regions,
            flushes: c.flushes.read(),
            discards: c.discards.read(),
            errors: c.errors.load(Ordering::Relaxed),
        }
    }
}

impl<D: BlockDevice> BlockDevice for Counted<D> {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn submit(&self, batch: Vec<Io>) -> Ticket {
        self.counters.count(&batch);
        let classes = batch.iter().map(Class::of).collect();
        let start = self.clock.monotonic();
        self.open.put((self.inner.submit(batch), start, classes))
    }

    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        let (inner, start, classes) = self.open.take(&ticket);
        let waits_from = self.clock.monotonic();
        let result = self.inner.wait(inner);
        self.finish(&classes, start, waits_from, result.is_err());
        result
    }

    fn run(&self, batch: Vec<Io>) -> Result<Done, DeviceError> {
        self.counters.count(&batch);
        let start = self.clock.monotonic();
        if let [only] = batch.as_slice() {
            let class = Class::of(only);
            let result = self.inner.run(batch);
            self.finish(&[class], start, start, result.is_err());
            return result;
        }
        let classes: Vec<Class> = batch.iter().map(Class::of).collect();
        let result = self.inner.run(batch);
        self.finish(&classes, start, start, result.is_err());
        result
    }

    fn read_into(&self, at: u64, into: &mut [u8], region: Region) -> Result<(), DeviceError> {
        let len = into.len() as u64;
        self.timed(Class::Read(region), len, || self.inner.read_into(at, into, region))
    }

    fn can_suspend_reads(&self) -> bool {
        self.inner.can_suspend_reads()
    }

    fn read_then(&self, at: u64, buf: ReadBuf, region: Region, then: ReadDone) {
        if !self.inner.can_suspend_reads() {
            return then(fill_now(self, at, buf, region));
        }
        let class = Class::Read(region);
        self.counters.of(class).0.count(buf.len() as u64);
        let (counters, clock, start) = (self.counters.clone(), self.clock.clone(), self.clock.monotonic());
        let ended = move |outcome: Result<ReadBuf, DeviceError>| {
            counters.finish(&[class], clock.monotonic().saturating_sub(start), outcome.is_err());
            then(outcome);
        };
        self.inner.read_then(at, buf, region, Box::new(ended));
    }

    fn write_from(&self, at: u64, data: &[u8], region: Region) -> Result<(), DeviceError> {
        let len = data.len() as u64;
        self.timed(Class::Write(region, false), len, || self.inner.write_from(at, data, region))
    }

    fn preallocate(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        self.inner.preallocate(at, len)
    }

    fn grow(&self, size: u64) -> Result<(), DeviceError> {
        self.inner.grow(size)
    }

    fn unlock(&self) {
        self.inner.unlock();
    }
}
