//! A device with modelled costs, on a real or a virtual clock.
//!
//! One bus carries one thing at a time: the bytes of reads and writes, flushes, and the movements of a disk's head. The
//! latency of a write is its own: many writes wait for theirs together. A flush waits for the bus, not for writes that
//! are under way. The same model as a modelled disk under the kernel's file systems, so that both are comparable.
//!
//! ```text
//! write A: [seek][bytes on the bus]........latency........]
//! write B:                         [bytes]........latency........]
//! flush:                                  [flush + dirty bytes]
//! ```

use quire_device::Clock;
use quire_device::io::{BlockDevice, DeviceError, DeviceInfo, Done, Io, Ticket};
use quire_device::sync::atomic::{AtomicBool, Ordering};
use quire_device::sync::{Arc, Mutex, lock};
use quire_device::tickets::Tickets;
use std::time::Duration;

/// What operations cost. The default costs nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Model {
    /// Latency of a write, a discard or a zeroing, beside the bus.
    pub write: Duration,
    /// Bus time per KiB written, in nanoseconds.
    pub write_ns_per_kib: u64,
    /// Bus time of a write that does not start where the last one ended, beside its bytes': an erase block is put
    /// together anew. A [`Head`] knows its own way there.
    pub scattered: Duration,
    /// Latency of a read, beside the bus.
    pub read: Duration,
    /// Bus time per KiB read, in nanoseconds.
    pub read_ns_per_kib: u64,
    /// Bus time of a flush.
    pub flush: Duration,
    /// Bus time of a flush per KiB written since the last one, in nanoseconds.
    pub flush_ns_per_dirty_kib: u64,
    /// Bus time of a write with FUA, beside that of the write; without it: a flush.
    pub fua: Option<Duration>,
    /// Moving parts, if any.
    pub head: Option<Head>,
    /// Reads cost nothing at all: a page cache above the device has everything.
    pub cached: bool,
}

/// A disk's head over a turning platter, which sets the speed of transfers. A transfer that does not start where the
/// last one ended moves the head; each waits until its place comes by. A move takes `near`, and more with the root of
/// the distance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    /// Time to move to the next track.
    pub near: Duration,
    /// Time to move over a third of the device, which is the mean of random moves.
    pub seek: Duration,
    /// Time of one turn.
    pub turn: Duration,
    /// Bytes on a track.
    pub track: u64,
}

impl Model {
    /// 40 us a write, 500 MB/s, 1.5 ms a flush.
    #[must_use]
    pub fn consumer_ssd() -> Model {
        Model {
            write: Duration::from_micros(40),
            write_ns_per_kib: 2000,
            flush: Duration::from_micros(1500),
            ..Model::default()
        }
    }

    /// An early TLC drive (Samsung 840, 120 GB, as in DJFS): 50 us a write, 130 MB/s, 2 ms a flush and 1 us for each
    /// dirty KiB.
    #[must_use]
    pub fn samsung_840() -> Model {
        Model {
            write: Duration::from_micros(50),
            write_ns_per_kib: 7_700,
            flush: Duration::from_millis(2),
            flush_ns_per_dirty_kib: 1000,
            ..Model::default()
        }
    }

    /// A small SLC drive (Intel 311, 20 GB, as in JoJ): 105 MB/s by its data sheet. The rest is assumed: 60 us a write;
    /// 80 us more elsewhere, where data journaling's worst case is the paper's (1.58 times; the data sheet has 264 us
    /// over the whole drive); 20 us a flush, for a drive that keeps no data in a volatile cache.
    #[must_use]
    pub fn intel_311() -> Model {
        Model {
            write: Duration::from_micros(60),
            write_ns_per_kib: 9_750,
            scattered: Duration::from_micros(80),
            flush: Duration::from_micros(20),
            ..Model::default()
        }
    }

    /// The memory of a tablet (JoJ's Nexus 7), assumed: 15 MB/s, 300 us a write, 100 us more elsewhere. A flush costs
    /// nothing: the driver of JoJ's kernel (Linux 3.1, drivers/mmc/card/block.c) answers it without a command to the
    /// card.
    #[must_use]
    pub fn emmc() -> Model {
        Model {
            write: Duration::from_micros(300),
            write_ns_per_kib: 68_000,
            scattered: Duration::from_micros(100),
            ..Model::default()
        }
    }

    /// A disk of 7,200 turns a minute with its write cache off: 1 ms to the next track, 8 ms a random seek, 100 MB/s; a
    /// flush costs nothing.
    #[must_use]
    pub fn hdd_7200() -> Model {
        let (near, seek) = (Duration::from_millis(1), Duration::from_millis(8));
        Model::disk(Head { near, seek, turn: Duration::from_nanos(8_333_333), track: 816 << 10 })
    }

    /// A disk of 15,000 turns a minute with its write cache off (Okeanos' SAS disks): 0.3 ms to the next track, 3.5 ms
    /// a random seek, 102 MB/s; a flush costs nothing.
    #[must_use]
    pub fn hdd_15k() -> Model {
        let (near, seek) = (Duration::from_micros(300), Duration::from_micros(3500));
        Model::disk(Head { near, seek, turn: Duration::from_millis(4), track: 400 << 10 })
    }

    fn disk(head: Head) -> Model {
        Model { fua: Some(Duration::ZERO), head: Some(head), ..Model::default() }
    }

    /// The models by their names.
    pub const NAMES: [&str; 7] = ["free", "ssd", "samsung840", "intel311", "emmc", "hdd7200", "hdd15k"];

    /// The model of that name; with `,flush=`, `,scattered=` or `,write=` and microseconds, or `,kib=` and nanoseconds
    /// behind it, that one with another flush, scattered write, latency of a write, or KiB on the bus.
    #[must_use]
    pub fn named(name: &str) -> Option<Model> {
        let (name, changes) = name.split_once(',').unwrap_or((name, ""));
        changes.split(',').filter(|change| !change.is_empty()).try_fold(Model::of_name(name)?, |model, change| {
            let (key, value) = change.split_once('=')?;
            let number: u64 = value.parse().ok()?;
            let time = Duration::from_micros(number);
            match key {
                "flush" => Some(Model { flush: time, ..model }),
                "scattered" => Some(Model { scattered: time, ..model }),
                "write" => Some(Model { write: time, ..model }),
                "kib" => Some(Model { write_ns_per_kib: number, ..model }),
                _ => None,
            }
        })
    }

    fn of_name(name: &str) -> Option<Model> {
        match name {
            "free" => Some(Model::default()),
            "ssd" => Some(Model::consumer_ssd()),
            "samsung840" => Some(Model::samsung_840()),
            "intel311" => Some(Model::intel_311()),
            "emmc" => Some(Model::emmc()),
            "hdd7200" => Some(Model::hdd_7200()),
            "hdd15k" => Some(Model::hdd_15k()),
            _ => None,
        }
    }
}

#[derive(Default)]
struct Bus {
    /// When it has carried all that was given to it.
    free: Duration,
    /// Bytes written since the last flush.
    dirty: u64,
    /// Where the last transfer ended; without a [`Head`], the last write.
    head: u64,
}

/// A device with modelled costs.
pub struct Modelled<D> {
    inner: D,
    model: Model,
    clock: Arc<dyn Clock>,
    bus: Mutex<Bus>,
    /// False while operations take no time.
    timed: AtomicBool,
    /// The inner ticket, and when the batch is complete.
    open: Tickets<(Ticket, Duration)>,
}

impl<D: BlockDevice> Modelled<D> {
    #[must_use]
    pub fn new(inner: D, model: Model, clock: Arc<dyn Clock>) -> Self {
        Modelled { inner, model, clock, bus: Mutex::default(), timed: AtomicBool::new(true), open: Tickets::default() }
    }

    /// Whether operations take the time of the model, as they do at first, or none: for what a measurement does not
    /// count, as a format. What was written until then is flushed.
    pub fn set_timed(&self, timed: bool) {
        let mut bus = lock(&self.bus);
        bus.dirty = 0;
        self.timed.store(timed, Ordering::Relaxed);
    }

    #[must_use]
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Puts an operation on the bus at `now`; returns when it is complete.
    fn cost(&self, bus: &mut Bus, io: &Io, now: Duration) -> Duration {
        let m = &self.model;
        let (at, len) = io.range();
        let start = now.max(bus.free);
        match io {
            Io::Flush => {
                bus.free = start + m.flush + per_kib(m.flush_ns_per_dirty_kib, std::mem::take(&mut bus.dirty));
                bus.free
            }
            Io::Read { .. } if m.cached => now,
            Io::Read { .. } => {
                // A drive reads on into its own memory, so what follows is there.
                let start = if m.head.is_some() { self.reach(bus, at, len, start, true) } else { start };
                bus.free = start + self.carry(m.read_ns_per_kib, len);
                bus.free + m.read
            }
            Io::Write { fua, .. } => {
                let queued = bus.free > now;
                let start = self.reach(bus, at, len, start, queued);
                bus.free = start + self.carry(m.write_ns_per_kib, len);
                bus.dirty += len;
                let complete = bus.free + m.write;
                match (fua, m.fua) {
                    (false, _) => complete,
                    (true, Some(fua)) => {
                        bus.free += fua;
                        complete + fua
                    }
                    (true, None) => self.cost(bus, &Io::Flush, complete),
                }
            }
            Io::Discard { .. } | Io::Zero { .. } => start + m.write,
        }
    }

    /// Bus time of a transfer: as fast as the platter turns, if there is one.
    fn carry(&self, ns_per_kib: u64, len: u64) -> Duration {
        match self.model.head {
            None => per_kib(ns_per_kib, len),
            Some(head) => nanos(u128::from(len) * head.turn.as_nanos() / u128::from(head.track)),
        }
    }

    /// When the transfer can start: the head has moved, if there is one; else a write elsewhere has been made room for.
    /// What goes on where the last transfer ended needs no turn if it was `queued` by then. A write that comes later
    /// has missed its place, however soon it comes: the platter turns on while the drive tells of the one and takes the
    /// other.
    fn reach(&self, bus: &mut Bus, at: u64, len: u64, start: Duration, queued: bool) -> Duration {
        let last = std::mem::replace(&mut bus.head, at + len);
        let Some(head) = self.model.head else {
            return if at == last { start } else { start + self.model.scattered };
        };
        let tracks = (at / head.track).abs_diff(last / head.track);
        let moved = if tracks == 0 || at == last { Duration::ZERO } else { self.moves(&head, tracks) };
        let arrived = start + moved;
        // Angles as time since the start of a track came by.
        let turn = head.turn.as_nanos();
        let now = arrived.as_nanos() % turn;
        let place = u128::from(at % head.track) * turn / u128::from(head.track);
        let turned = (place + turn - now) % turn;
        // A transfer that goes on where the last one ended is there already but for rounding.
        let there = turned < 1000 || turned + 1000 > turn;
        let turned = match (there, queued || at != last) {
            (true, true) => 0,
            (true, false) => turn,
            (false, _) => turned,
        };
        arrived + nanos(turned)
    }
}

impl<D: BlockDevice> Modelled<D> {
    /// Time to move over so many tracks.
    fn moves(&self, head: &Head, tracks: u64) -> Duration {
        let third = (self.inner.info().size / head.track / 3).max(1);
        // The root of tracks / third, in 1/4096.
        let root = (u128::from(tracks - 1) * (1 << 24) / u128::from(third)).isqrt();
        head.near + nanos((head.seek.saturating_sub(head.near).as_nanos() * root) >> 12)
    }
}

fn per_kib(ns: u64, bytes: u64) -> Duration {
    nanos(u128::from(ns) * u128::from(bytes) / 1024)
}

fn nanos(ns: u128) -> Duration {
    Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
}

impl<D: BlockDevice> BlockDevice for Modelled<D> {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn submit(&self, batch: Vec<Io>) -> Ticket {
        let now = self.clock.monotonic();
        let complete = {
            let mut bus = lock(&self.bus);
            let timed = self.timed.load(Ordering::Relaxed);
            let costs = batch.iter().filter(|_| timed).map(|io| self.cost(&mut bus, io, now));
            costs.max().unwrap_or(now)
        };
        self.open.put((self.inner.submit(batch), complete))
    }

    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        let (inner, complete) = self.open.take(&ticket);
        let result = self.inner.wait(inner);
        self.clock.sleep_until(complete);
        result
    }

    fn preallocate(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        self.inner.preallocate(at, len)
    }

    fn grow(&self, size: u64) -> Result<(), DeviceError> {
        self.inner.grow(size)
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;
    use crate::clock::VirtualClock;
    use quire_device::MemDevice;
    use quire_device::buf::Buf;
    use quire_device::io::Region;

    const US: fn(u64) -> Duration = Duration::from_micros;

    fn device(model: Model) -> (Arc<VirtualClock>, Modelled<MemDevice>) {
        let clock = Arc::new(VirtualClock::default());
        (clock.clone(), Modelled::new(MemDevice::new(vec![0; 16 << 20]), model, clock))
    }

    fn write(at: u64, kib: usize, fua: bool) -> Io {
        Io::Write { at, data: vec![Arc::new(Buf::zeroed(kib << 10))], region: Region::Data, fua }
    }

    fn took(clock: &VirtualClock, f: impl FnOnce()) -> Duration {
        let start = clock.monotonic();
        f();
        clock.monotonic() - start
    }

    #[test]
    fn writes_share_the_bus_but_not_their_latency() {
        let (clock, dev) = device(Model { write: US(40), write_ns_per_kib: 2000, ..Model::default() });
        assert_eq!(took(&clock, || drop(dev.run(vec![write(0, 4, false)]))), US(48));
        let batch = || (0..10).map(|i| write(i << 20, 4, false)).collect();
        assert_eq!(took(&clock, || drop(dev.run(batch()))), US(120));
        let both = took(&clock, || {
            let (a, b) = (dev.submit(batch()), dev.submit(batch()));
            dev.wait(b).unwrap();
            dev.wait(a).unwrap();
        });
        assert_eq!(both, US(200));
    }

    #[test]
    fn a_flush_costs_by_what_is_dirty_once() {
        let (clock, dev) = device(Model { flush: US(1500), flush_ns_per_dirty_kib: 1000, ..Model::default() });
        dev.run(vec![write(0, 100, false)]).unwrap();
        assert_eq!(took(&clock, || drop(dev.run(vec![Io::Flush]))), US(1600));
        assert_eq!(took(&clock, || drop(dev.run(vec![Io::Flush]))), US(1500));
        assert_eq!(took(&clock, || drop(dev.run(vec![write(0, 4, true)]))), US(1504));
    }

    #[test]
    fn a_write_elsewhere_costs_the_bus_more() {
        let (clock, dev) = device(Model { scattered: US(100), write_ns_per_kib: 1000, ..Model::default() });
        assert_eq!(took(&clock, || drop(dev.run(vec![write(0, 4, false), write(4 << 10, 4, false)]))), US(8));
        assert_eq!(took(&clock, || drop(dev.run(vec![write(0, 4, false), write(12 << 10, 4, false)]))), US(208));
        // What was read in between does not matter.
        dev.run(vec![Io::Read { at: 1 << 20, buf: Buf::zeroed(4096), region: Region::Data }]).unwrap();
        assert_eq!(took(&clock, || drop(dev.run(vec![write(16 << 10, 4, false)]))), US(4));
    }

    #[test]
    fn what_is_not_timed_takes_no_time_and_leaves_nothing_to_flush() {
        let (clock, dev) = device(Model { flush: US(10), flush_ns_per_dirty_kib: 1000, ..Model::hdd_7200() });
        dev.run(vec![write(8 << 20, 100, false)]).unwrap();
        dev.set_timed(false);
        let batch = vec![write(0, 100, true), write(1 << 20, 4, false), Io::Flush];
        assert_eq!(took(&clock, || drop(dev.run(batch))), US(0));
        dev.set_timed(true);
        assert_eq!(took(&clock, || drop(dev.run(vec![Io::Flush]))), US(10));
        assert!(took(&clock, || drop(dev.run(vec![write(0, 4, false)]))) > US(100));
    }

    #[test]
    fn every_name_is_a_model() {
        assert!(Model::NAMES.iter().all(|name| Model::named(name).is_some()));
        assert_eq!(Model::named("floppy"), None);
        let flush = Duration::from_millis(4);
        assert_eq!(Model::named("ssd,flush=4000"), Some(Model { flush, ..Model::consumer_ssd() }));
        assert_eq!(Model::named("ssd,flush=soon"), None);
        let ssd = Model { write_ns_per_kib: 7, scattered: Duration::from_micros(3), ..Model::consumer_ssd() };
        assert_eq!(Model::named("ssd,kib=7,scattered=3"), Some(ssd));
        assert_eq!(Model::named("ssd,seek=3"), None);
    }

    #[test]
    fn a_disk_streams_but_pays_for_places() {
        let (clock, dev) = device(Model::hdd_7200());
        let stream = took(&clock, || drop(dev.run((1..100).map(|i| write(i * 4096, 4, false)).collect())));
        assert!(stream < Duration::from_millis(5), "{stream:?}");
        // What comes when the last one has ended has missed its place.
        let late = took(&clock, || drop(dev.run(vec![write(100 * 4096, 4, false)])));
        assert!(late > Duration::from_millis(8) && late < Duration::from_millis(9), "{late:?}");
        // The same place again comes by after one turn; another track takes a seek.
        let again = took(&clock, || drop(dev.run(vec![write(100 * 4096, 4, false)])));
        assert!(again > Duration::from_millis(8) && again < Duration::from_millis(9), "{again:?}");
        // A third of the 16 MiB away, and the next track; each waits for its place, at most a turn.
        let turn = Duration::from_nanos(8_333_333 + 100_000);
        let far = took(&clock, || drop(dev.run(vec![write(6 << 20, 4, false)])));
        assert!(far >= Duration::from_millis(8) && far < Duration::from_millis(8) + turn, "{far:?}");
        let near = took(&clock, || drop(dev.run(vec![write((6 << 20) + (816 << 10), 4, false)])));
        assert!(near >= Duration::from_millis(1) && near < Duration::from_millis(1) + turn, "{near:?}");
    }
}
