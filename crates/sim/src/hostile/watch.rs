//! A device in memory that watches what is written to it.

use quire_device::sync::{Mutex, lock};
use quire_device::tickets::Tickets;
use quire_device::{BlockDevice, DeviceError, DeviceInfo, Done, ErrorKind, Io, Region, Ticket};
use quire_testkit::Image;

pub(super) struct WatchedDevice {
    state: Mutex<State>,
    tickets: Tickets<Result<Done, DeviceError>>,
    /// Byte ranges, sorted, that never hold file data.
    zones: Vec<(u64, u64)>,
}

struct State {
    image: Image,
    operations: u64,
    writes: u64,
    trespass: Option<(u64, u64)>,
}

impl WatchedDevice {
    pub(super) fn new(image: Image, zones: Vec<(u64, u64)>) -> Self {
        let state = State { image, operations: 0, writes: 0, trespass: None };
        WatchedDevice { state: Mutex::new(state), tickets: Tickets::default(), zones }
    }

    pub(super) fn image(&self) -> Image {
        lock(&self.state).image.clone()
    }

    /// Writes, zeroings and discards so far.
    pub(super) fn writes(&self) -> u64 {
        lock(&self.state).writes
    }

    /// All operations so far.
    pub(super) fn operations(&self) -> u64 {
        lock(&self.state).operations
    }

    /// A write of file data over the file system's own structures: start and length.
    pub(super) fn trespass(&self) -> Option<(u64, u64)> {
        lock(&self.state).trespass
    }
}

impl State {
    fn apply(&mut self, zones: &[(u64, u64)], io: Io, done: &mut Done) -> Result<(), DeviceError> {
        self.operations += 1;
        let (at, len) = io.range();
        if at.checked_add(len).is_none_or(|end| end > self.image.size()) {
            return Err(DeviceError { op: io.op(), at, len, kind: ErrorKind::OutOfRange, errno: 0 });
        }
        let data = matches!(
            io,
            Io::Write { region: Region::Data, .. } | Io::Zero { region: Region::Data, .. } | Io::Discard { .. }
        );
        self.writes += u64::from(!matches!(io, Io::Read { .. } | Io::Flush));
        if data && zones.iter().any(|(start, end)| at < *end && *start < at + len) {
            self.trespass.get_or_insert((at, len));
        }
        match io {
            Io::Read { mut buf, .. } => {
                self.image.read(at, &mut buf);
                done.reads.push(buf);
            }
            Io::Write { data, .. } => {
                let mut pos = at;
                for piece in &data {
                    self.image.write(pos, piece);
                    pos += piece.len() as u64;
                }
            }
            Io::Zero { .. } | Io::Discard { .. } => {
                let zeros = [0; 4096];
                let mut pos = at;
                while pos < at + len {
                    let n = usize::try_from(at + len - pos).map_or(zeros.len(), |n| n.min(zeros.len()));
                    self.image.write(pos, &zeros[..n]);
                    pos += n as u64;
                }
            }
            Io::Flush => {}
        }
        Ok(())
    }
}

impl BlockDevice for WatchedDevice {
    fn info(&self) -> DeviceInfo {
        let size = lock(&self.state).image.size();
        DeviceInfo { size, logical_sector: 512, physical_sector: 512, read_only: false, discards: true }
    }

    fn submit(&self, batch: Vec<Io>) -> Ticket {
        let mut s = lock(&self.state);
        let mut done = Done::default();
        let result = batch.into_iter().try_for_each(|io| s.apply(&self.zones, io, &mut done));
        self.tickets.put(result.map(|()| done))
    }

    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        self.tickets.take(&ticket)
    }
}
