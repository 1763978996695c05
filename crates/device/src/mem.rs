//! A device in memory: images of the library's callers, and tests. Every write is durable at once.

use crate::io::{BlockDevice, DeviceError, DeviceInfo, Done, ErrorKind, Io, IoOp, Ticket};
use crate::sync::{Mutex, lock};
use crate::tickets::Tickets;

/// A device in memory.
pub struct MemDevice {
    state: Mutex<State>,
    tickets: Tickets<Result<Done, DeviceError>>,
}

struct State {
    bytes: Vec<u8>,
}

impl MemDevice {
    /// A device with these contents; its size is theirs.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        MemDevice { state: Mutex::new(State { bytes }), tickets: Tickets::default() }
    }

    /// A copy of the contents.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        self.with_contents(<[u8]>::to_vec)
    }

    /// Looks at the contents in place; other callers of the device wait meanwhile.
    pub fn with_contents<T>(&self, look: impl FnOnce(&[u8]) -> T) -> T {
        look(&lock(&self.state).bytes)
    }
}

impl State {
    fn apply(&mut self, io: Io, done: &mut Done) -> Result<(), DeviceError> {
        let (at, len) = io.range();
        let out_of_range = DeviceError { op: io.op(), at, len, kind: ErrorKind::OutOfRange, errno: 0 };
        let range = at.checked_add(len).and_then(|end| {
            let (start, end) = (usize::try_from(at).ok()?, usize::try_from(end).ok()?);
            (end <= self.bytes.len()).then_some(start..end)
        });
        let Some(range) = range else { return Err(out_of_range) };
        match io {
            Io::Read { mut buf, .. } => {
                buf.copy_from_slice(&self.bytes[range]);
                done.reads.push(buf);
            }
            Io::Write { data, .. } => {
                let mut pos = range.start;
                for piece in &data {
                    self.bytes[pos..pos + piece.len()].copy_from_slice(piece);
                    pos += piece.len();
                }
            }
            Io::Discard { .. } | Io::Zero { .. } => self.bytes[range].fill(0),
            Io::Flush => {}
        }
        Ok(())
    }
}

impl BlockDevice for MemDevice {
    fn info(&self) -> DeviceInfo {
        let size = lock(&self.state).bytes.len() as u64;
        DeviceInfo { size, logical_sector: 512, physical_sector: 512, read_only: false, discards: true }
    }

    fn grow(&self, size: u64) -> Result<(), DeviceError> {
        let mut s = lock(&self.state);
        let len = size.saturating_sub(s.bytes.len() as u64);
        let too_long = |_| DeviceError { op: IoOp::Write, at: size - len, len, kind: ErrorKind::NoSpace, errno: 0 };
        let size = usize::try_from(size).map_err(too_long)?;
        if len > 0 {
            s.bytes.resize(size, 0);
        }
        Ok(())
    }

    fn submit(&self, batch: Vec<Io>) -> Ticket {
        let mut s = lock(&self.state);
        let mut done = Done::default();
        let result = batch.into_iter().try_for_each(|io| s.apply(io, &mut done));
        self.tickets.put(result.map(|()| done))
    }

    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        self.tickets.take(&ticket)
    }
}
