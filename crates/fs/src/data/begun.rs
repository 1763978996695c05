//! Reads whose callers do not wait for the device.
//!
//! ```text
//! begin_read ─┬─> done: memory has all of it
//!             └─> runs on the device ──the device reads──> end_read, end_read_into: the bytes
//! ```
//! *Guarantees*: F11, as [`super::read`].
//!
//! *Relies on*: each that was begun ends, whether the device could read or not. The file's blocks stay its own until
//! then (F2).

use super::context::Data;
use super::file::Reader;
use super::read::{Found, Intent, find, read};
use crate::engine::Misses;
use crate::error::Result;
use crate::policy::READ_BYTES_AT_ONCE;
use quire_device::{BlockDevice, Buf, HugeBuf, ReadBuf};
use quire_layout::{BlockSize, Ino};

/// What a read that need not wait came to.
pub(crate) enum Begun {
    /// So many bytes are in the buffer.
    Done(usize),
    /// Some lie on the device, whose reads have not begun.
    OnDevice(DeviceRuns),
}

/// Runs of a file's blocks on the device, which stay the file's own until the read ends.
pub(crate) struct DeviceRuns {
    reader: Reader,
    found: Found,
}

/// As [`read`], of one part, for a caller that can go on before the device has read.
///
/// # Errors
/// As [`read`]; a miss, if it is to be told.
pub(crate) fn begin_read(
    d: &Data,
    ino: Ino,
    offset: u64,
    buf: &mut [u8],
    intent: Intent,
    misses: Misses,
) -> Result<Begun> {
    if !d.engine.journal.gate().device().can_suspend_reads() || buf.len() > READ_BYTES_AT_ONCE {
        return read(d, ino, offset, buf, intent).map(Begun::Done);
    }
    let file = d.files.get(ino);
    let (reader, found) = find(d, &file, (offset, buf.len()), intent, misses)?;
    if found.is_on_device() {
        return Ok(Begun::OnDevice(DeviceRuns { reader, found }));
    }
    found.read(d, buf).map(Begun::Done)
}

impl DeviceRuns {
    /// Bytes that were asked for and are there.
    pub(crate) fn len(&self) -> usize {
        self.found.len
    }

    /// Each run's byte offset on the device, and memory for it.
    pub(crate) fn reads(&self, bs: BlockSize) -> Vec<(u64, ReadBuf)> {
        self.found.places(bs).map(|(at, bytes)| (at, Buf::zeroed(bytes).into())).collect()
    }

    /// As [`DeviceRuns::reads`]. One run that has all bytes goes straight into the memory, from the byte `at` on; else
    /// the memory comes back, for [`end_read_into`].
    pub(crate) fn reads_into(
        &self,
        bs: BlockSize,
        memory: HugeBuf,
        at: usize,
    ) -> (Vec<(u64, ReadBuf)>, Option<HugeBuf>) {
        match self.found.only_run(bs) {
            Some((phys, bytes)) if bytes <= memory.len() - at => {
                (vec![(bs.offset(phys), ReadBuf::Part(memory, at..at + bytes))], None)
            }
            _ => (self.reads(bs), Some(memory)),
        }
    }

    /// The device is done: the file's blocks need not stay its own any longer.
    fn end(self, d: &Data, ino: Ino) -> Found {
        let DeviceRuns { reader, found } = self;
        drop(reader);
        // The file leaves the table with its last user.
        drop(d.files.find(ino));
        found
    }
}

/// The runs have been read, each as a buffer, or could not be; `then` gets the bytes that were asked for.
pub(crate) fn end_read(
    d: &Data,
    ino: Ino,
    runs: DeviceRuns,
    read: Result<Vec<ReadBuf>>,
    then: impl FnOnce(Result<&[u8]>),
) {
    let (found, bs) = (runs.end(d, ino), d.block_size());
    match read {
        Err(e) => then(Err(e)),
        // The common case, without a copy.
        Ok(read) if found.only_run(bs).is_some() => then(Ok(&read[0][..found.len])),
        Ok(read) => {
            let mut bytes = vec![0; found.len];
            found.put_together(bs, &read, &mut bytes);
            then(Ok(&bytes));
        }
    }
}

/// As [`end_read`], after [`DeviceRuns::reads_into`], whose `memory` and `at` these are; returns the memory and how
/// many bytes of it are the file's.
///
/// # Errors
/// The device's.
pub(crate) fn end_read_into(
    d: &Data,
    ino: Ino,
    runs: DeviceRuns,
    read: Result<Vec<ReadBuf>>,
    memory: Option<HugeBuf>,
    at: usize,
) -> Result<(HugeBuf, usize)> {
    let found = runs.end(d, ino);
    let mut read = read?;
    let memory = match memory {
        Some(mut memory) => {
            found.put_together(d.block_size(), &read, &mut memory[at..at + found.len]);
            memory
        }
        None => read.pop().and_then(ReadBuf::into_huge).expect("one run was read into it"),
    };
    Ok((memory, found.len))
}
