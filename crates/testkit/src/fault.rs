//! A device that fails on demand, always in the same way for the same demands.

use quire_device::buf::Buf;
use quire_device::io::{BlockDevice, DeviceError, DeviceInfo, Done, ErrorKind, Io, IoOp, Region, Ticket};
use quire_device::sync::{Arc, Mutex, lock};
use quire_device::tickets::Tickets;
use std::ops::Range;

/// What goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The operation fails and does nothing. [`ErrorKind::Gone`] lasts: every later operation fails, too.
    Error(ErrorKind),
    /// A write, zeroing, discard or flush that reports success and does nothing.
    Lost,
    /// One bit of what is read or written changes: bit `n` of the bytes of the operation, modulo their number.
    FlipBit(u64),
    /// A write of which only the first sectors arrive; it fails.
    Torn { sectors: usize },
}

/// Which operations a fault hits: all that match, after the first `skip` of them, `times` times.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    pub op: Option<IoOp>,
    pub region: Option<Region>,
    /// Operations that touch this byte range. Flushes touch none.
    pub range: Option<Range<u64>>,
    pub skip: u64,
    /// None: for ever.
    pub times: Option<u64>,
    pub kind: FaultKind,
}

impl Fault {
    /// Hits the next operation of this kind.
    #[must_use]
    pub fn once(op: IoOp, kind: FaultKind) -> Fault {
        Fault { op: Some(op), region: None, range: None, skip: 0, times: Some(1), kind }
    }

    /// Hits every operation of this kind.
    #[must_use]
    pub fn always(op: IoOp, kind: FaultKind) -> Fault {
        Fault { times: None, ..Fault::once(op, kind) }
    }

    /// Only within this range of bytes.
    #[must_use]
    pub fn within(self, range: Range<u64>) -> Fault {
        Fault { range: Some(range), ..self }
    }

    /// Only in this region.
    #[must_use]
    pub fn in_region(self, region: Region) -> Fault {
        Fault { region: Some(region), ..self }
    }

    /// Lets the first `n` that match pass.
    #[must_use]
    pub fn after(self, n: u64) -> Fault {
        Fault { skip: n, ..self }
    }

    fn matches(&self, io: &Io) -> bool {
        let (at, len) = io.range();
        let region = match io {
            Io::Read { region, .. } | Io::Write { region, .. } | Io::Zero { region, .. } => Some(*region),
            Io::Flush | Io::Discard { .. } => None,
        };
        self.op.is_none_or(|op| op == io.op())
            && self.region.is_none_or(|r| region == Some(r))
            && self.range.as_ref().is_none_or(|r| at < r.end && r.start < at.saturating_add(len))
    }
}

#[derive(Default)]
struct State {
    faults: Vec<Fault>,
    hits: u64,
    gone: bool,
}

impl State {
    /// What the operation meets: the first fault that matches and is due.
    fn meet(&mut self, io: &Io) -> Option<FaultKind> {
        if self.gone {
            return Some(FaultKind::Error(ErrorKind::Gone));
        }
        for fault in &mut self.faults {
            if fault.times == Some(0) || !fault.matches(io) {
                continue;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                continue;
            }
            fault.times = fault.times.map(|n| n - 1);
            self.hits += 1;
            self.gone |= fault.kind == FaultKind::Error(ErrorKind::Gone);
            return Some(fault.kind);
        }
        None
    }
}

/// A batch under way: the inner ticket, the failure that was decided, and bits to flip by index of the read.
struct Open {
    inner: Ticket,
    failure: Option<DeviceError>,
    flips: Vec<(usize, u64)>,
}

/// A device that fails on demand.
pub struct Faulty<D> {
    inner: D,
    state: Mutex<State>,
    open: Tickets<Open>,
}

impl<D: BlockDevice> Faulty<D> {
    #[must_use]
    pub fn new(inner: D) -> Self {
        Faulty { inner, state: Mutex::default(), open: Tickets::default() }
    }

    #[must_use]
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Adds a fault. Earlier ones come first.
    pub fn inject(&self, fault: Fault) {
        lock(&self.state).faults.push(fault);
    }

    /// Everything works again, a device that had gone, too.
    pub fn heal(&self) {
        let mut s = lock(&self.state);
        s.faults.clear();
        s.gone = false;
    }

    /// How often a fault has hit.
    #[must_use]
    pub fn hits(&self) -> u64 {
        lock(&self.state).hits
    }
}

fn error(io: &Io, kind: ErrorKind) -> DeviceError {
    let (at, len) = io.range();
    let errno = match kind {
        ErrorKind::Io => 5,
        ErrorKind::NoSpace => 28,
        ErrorKind::ReadOnly => 30,
        ErrorKind::Gone => 19,
        ErrorKind::OutOfRange => 0,
    };
    DeviceError { op: io.op(), at, len, kind, errno }
}

fn flip(bytes: &mut [u8], bit: u64) {
    let bits = bytes.len() as u64 * 8;
    if bits > 0 {
        let bit = bit % bits;
        bytes[usize::try_from(bit / 8).expect("within the bytes")] ^= 1 << (bit % 8);
    }
}

/// The bytes of a write as one buffer.
fn joined(data: &[Arc<Buf>]) -> Buf {
    Buf::copy_of(&data.iter().flat_map(|b| b.iter().copied()).collect::<Vec<u8>>())
}

impl<D: BlockDevice> BlockDevice for Faulty<D> {
    fn info(&self) -> DeviceInfo {
        self.inner.info()
    }

    fn submit(&self, batch: Vec<Io>) -> Ticket {
        let (mut failure, mut flips, mut passed, mut reads) = (None, Vec::new(), Vec::new(), 0);
        for io in batch {
            let Some(kind) = lock(&self.state).meet(&io) else {
                reads += usize::from(matches!(io, Io::Read { .. }));
                passed.push(io);
                continue;
            };
            match (kind, io) {
                (FaultKind::Error(kind), io) => failure = failure.or(Some(error(&io, kind))),
                (FaultKind::FlipBit(bit), Io::Write { at, data, region, fua }) => {
                    let mut bytes = joined(&data);
                    flip(&mut bytes, bit);
                    passed.push(Io::Write { at, data: vec![Arc::new(bytes)], region, fua });
                }
                (FaultKind::Torn { sectors }, io @ Io::Write { .. }) => {
                    failure = failure.or(Some(error(&io, ErrorKind::Io)));
                    let Io::Write { at, data, region, fua } = io else { unreachable!("matched above") };
                    let bytes = joined(&data);
                    let first = bytes.len().min(sectors * quire_device::buf::SECTOR);
                    passed.push(Io::Write { at, data: vec![Arc::new(Buf::copy_of(&bytes[..first]))], region, fua });
                }
                (kind, io @ Io::Read { .. }) => {
                    if let FaultKind::FlipBit(bit) = kind {
                        flips.push((reads, bit));
                    }
                    reads += 1;
                    passed.push(io);
                }
                (FaultKind::Lost, _) => {}
                (FaultKind::FlipBit(_) | FaultKind::Torn { .. }, io) => passed.push(io),
            }
        }
        self.open.put(Open { inner: self.inner.submit(passed), failure, flips })
    }

    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        let open = self.open.take(&ticket);
        let result = self.inner.wait(open.inner);
        if let Some(failure) = open.failure {
            return Err(failure);
        }
        let mut done = result?;
        for (read, bit) in open.flips {
            flip(&mut done.reads[read], bit);
        }
        Ok(done)
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
    use quire_device::MemDevice;

    fn device() -> Faulty<MemDevice> {
        Faulty::new(MemDevice::new(vec![0; 1 << 20]))
    }

    fn write(at: u64, byte: u8) -> Io {
        let mut b = Buf::zeroed(1024);
        b.fill(byte);
        Io::Write { at, data: vec![Arc::new(b)], region: Region::Data, fua: false }
    }

    #[test]
    fn a_count_down_and_a_range_select_the_victim() {
        let dev = device();
        dev.inject(Fault::once(IoOp::Write, FaultKind::Error(ErrorKind::Io)).within(4096..8192).after(1));
        dev.run(vec![write(0, 1)]).unwrap();
        dev.run(vec![write(4096, 1)]).unwrap();
        let e = dev.run(vec![write(0, 2), write(7168, 2)]).unwrap_err();
        assert_eq!((e.op, e.at, e.len, e.kind, e.errno), (IoOp::Write, 7168, 1024, ErrorKind::Io, 5));
        dev.run(vec![write(7168, 3)]).unwrap();
        assert_eq!((dev.hits(), dev.inner().snapshot()[0], dev.inner().snapshot()[7168]), (1, 2, 3));
    }

    #[test]
    fn lost_and_torn_writes_leave_what_was_there() {
        let dev = device();
        dev.inject(Fault::once(IoOp::Write, FaultKind::Lost));
        dev.inject(Fault::once(IoOp::Write, FaultKind::Torn { sectors: 1 }));
        dev.run(vec![write(0, 1)]).unwrap();
        dev.run(vec![write(4096, 1)]).unwrap_err();
        let bytes = dev.inner().snapshot();
        assert_eq!((bytes[0], bytes[4096], bytes[4607], bytes[4608]), (0, 1, 1, 0));
    }

    #[test]
    fn bits_flip_on_the_way() {
        let dev = device();
        dev.inject(Fault::once(IoOp::Write, FaultKind::FlipBit(9)));
        dev.inject(Fault::once(IoOp::Read, FaultKind::FlipBit(0)).within(4096..4097));
        dev.run(vec![write(0, 0)]).unwrap();
        assert_eq!(dev.read(0, 512, Region::Data).unwrap()[..3], [0, 2, 0]);
        let read = |at| Io::Read { at, buf: Buf::zeroed(512), region: Region::Data };
        let done = dev.run(vec![read(0), read(4096)]).unwrap();
        assert_eq!((done.reads[0][0], done.reads[1][0], done.reads[0][1]), (0, 1, 2));
    }

    #[test]
    fn a_device_that_has_gone_stays_away_until_healed() {
        let dev = device();
        dev.inject(Fault::once(IoOp::Flush, FaultKind::Error(ErrorKind::Gone)));
        dev.run(vec![write(0, 1)]).unwrap();
        assert_eq!(dev.run(vec![Io::Flush]).unwrap_err().kind, ErrorKind::Gone);
        assert_eq!(dev.read(0, 512, Region::Data).unwrap_err().kind, ErrorKind::Gone);
        dev.heal();
        assert_eq!(dev.read(0, 512, Region::Data).unwrap()[0], 1);
    }

    #[test]
    fn flushes_fail_by_region_never_and_by_kind() {
        let dev = device();
        dev.inject(Fault::always(IoOp::Flush, FaultKind::Error(ErrorKind::NoSpace)).in_region(Region::Log));
        dev.run(vec![Io::Flush]).unwrap();
        dev.inject(Fault::always(IoOp::Flush, FaultKind::Error(ErrorKind::NoSpace)));
        dev.run(vec![Io::Flush]).unwrap_err();
        assert_eq!(dev.run(vec![Io::Flush]).unwrap_err().errno, 28);
    }
}
