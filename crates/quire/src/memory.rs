//! An image in memory, as a device. Every write is durable at once.

use quire_device::{BlockDevice, DeviceError, DeviceInfo, Done, ErrorKind, Io, Ticket};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Bytes that tests and tools have in memory.
pub(crate) struct Memory {
    state: Mutex<State>,
}

struct State {
    bytes: Vec<u8>,
    done: HashMap<u64, Result<Done, DeviceError>>,
    next: u64,
}

impl Memory {
    pub(crate) fn new(bytes: Vec<u8>) -> Self {
        Memory { state: Mutex::new(State { bytes, done: HashMap::new(), next: 0 }) }
    }

    /// A copy of all bytes.
    pub(crate) fn snapshot(&self) -> Vec<u8> {
        self.lock().bytes.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        // A panic of another thread leaves whole operations.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn apply(&mut self, io: Io, done: &mut Done) -> Result<(), DeviceError> {
        let (at, len) = io.range();
        let range = at.checked_add(len).and_then(|end| {
            let (start, end) = (usize::try_from(at).ok()?, usize::try_from(end).ok()?);
            (end <= self.bytes.len()).then_some(start..end)
        });
        let Some(range) = range else {
            return Err(DeviceError { op: io.op(), at, len, kind: ErrorKind::OutOfRange, errno: 0 });
        };
        match io {
            Io::Read { mut buf, .. } => {
                buf.copy_from_slice(&self.bytes[range]);
                done.reads.push(buf);
            }
            Io::Write { data, .. } => {
                let mut at = range.start;
                for piece in &data {
                    self.bytes[at..at + piece.len()].copy_from_slice(piece);
                    at += piece.len();
                }
            }
            Io::Discard { .. } | Io::Zero { .. } => self.bytes[range].fill(0),
            Io::Flush => {}
        }
        Ok(())
    }
}

impl BlockDevice for Memory {
    fn info(&self) -> DeviceInfo {
        let size = self.lock().bytes.len() as u64;
        DeviceInfo { size, logical_sector: 512, physical_sector: 512, read_only: false, discards: true }
    }

    fn submit(&self, batch: Vec<Io>) -> Ticket {
        let mut s = self.lock();
        let mut done = Done::default();
        let result = batch.into_iter().try_for_each(|io| s.apply(io, &mut done));
        s.next += 1;
        let id = s.next;
        s.done.insert(id, result.map(|()| done));
        Ticket(id)
    }

    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        self.lock().done.remove(&ticket.0).expect("a ticket is waited for once")
    }
}
