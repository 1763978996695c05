//! The block device trait, its operations and its errors.

use crate::buf::Buf;
use crate::read_buf::ReadBuf;
use crate::sync::Arc;
use std::fmt;

/// What a write is for; counted apart in the statistics.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Region {
    /// The file system's superblock and its state.
    Superblock,
    /// Log blocks: descriptors, records, revokes, commits.
    Log,
    /// The journal's superblock: head and tail.
    LogSuperblock,
    /// Metadata blocks at home.
    Metadata,
    /// File data at home.
    Data,
}

impl Region {
    pub const ALL: [Region; 5] =
        [Region::Superblock, Region::Log, Region::LogSuperblock, Region::Metadata, Region::Data];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Region::Superblock => "superblock",
            Region::Log => "log",
            Region::LogSuperblock => "log superblock",
            Region::Metadata => "metadata",
            Region::Data => "data",
        }
    }
}

/// One operation of a batch. Offsets and lengths are in bytes and multiples of the logical sector.
#[derive(Debug, Clone)]
pub enum Io {
    /// Fills the buffer from `at`. The buffer comes back in [`Done::reads`].
    Read { at: u64, buf: Buf, region: Region },
    /// Writes the pieces one after the other from `at`. With `fua` the write is durable when complete.
    Write { at: u64, data: Vec<Arc<Buf>>, region: Region, fua: bool },
    /// Makes durable every write that completed before this was submitted. Alone in its batch.
    Flush,
    /// Gives space back to the device; what reads afterwards return is undefined.
    Discard { at: u64, len: u64 },
    /// Zeroes a range.
    Zero { at: u64, len: u64, region: Region },
}

/// The kind of an operation, for errors, counters and faults.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IoOp {
    Read,
    Write,
    Flush,
    Discard,
    Zero,
}

impl Io {
    #[must_use]
    pub fn op(&self) -> IoOp {
        match self {
            Io::Read { .. } => IoOp::Read,
            Io::Write { .. } => IoOp::Write,
            Io::Flush => IoOp::Flush,
            Io::Discard { .. } => IoOp::Discard,
            Io::Zero { .. } => IoOp::Zero,
        }
    }

    /// Byte range that the operation touches: start and length. A flush touches none.
    #[must_use]
    pub fn range(&self) -> (u64, u64) {
        match self {
            Io::Read { at, buf, .. } => (*at, buf.len() as u64),
            Io::Write { at, data, .. } => (*at, data.iter().map(|b| b.len() as u64).sum()),
            Io::Flush => (0, 0),
            Io::Discard { at, len } | Io::Zero { at, len, .. } => (*at, *len),
        }
    }
}

/// Names a batch that was submitted. Wait for each ticket exactly once.
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "a batch that nobody waits for has no outcome"]
pub struct Ticket(pub u64);

/// A completed batch.
#[derive(Debug, Default)]
pub struct Done {
    /// The buffers of the batch's reads, in order.
    pub reads: Vec<Buf>,
}

/// What a device is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeviceInfo {
    /// Size in bytes.
    pub size: u64,
    /// Smallest unit of I/O, in bytes.
    pub logical_sector: u32,
    /// Unit that is written atomically, in bytes.
    pub physical_sector: u32,
    pub read_only: bool,
    /// Discard does something.
    pub discards: bool,
}

/// Why an operation failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorKind {
    /// A read, write or flush error (EIO).
    Io,
    /// The host has no space for a sparse image (ENOSPC).
    NoSpace,
    /// The range lies outside the device: the image is truncated.
    OutOfRange,
    /// The device is read-only (EROFS).
    ReadOnly,
    /// The device has gone (ENODEV).
    Gone,
}

/// A failed operation, with where it was.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeviceError {
    pub op: IoOp,
    /// Byte offset and length; (0, 0) for a flush.
    pub at: u64,
    pub len: u64,
    pub kind: ErrorKind,
    /// The system's error number, or 0.
    pub errno: i32,
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            ErrorKind::Io => "I/O error",
            ErrorKind::NoSpace => "no space on the host",
            ErrorKind::OutOfRange => "outside the device (is the image truncated?)",
            ErrorKind::ReadOnly => "device is read-only",
            ErrorKind::Gone => "device is gone",
        };
        match self.op {
            IoOp::Flush => write!(f, "flush: {kind}")?,
            op => write!(f, "{} of {} bytes at byte {}: {kind}", format!("{op:?}").to_lowercase(), self.len, self.at)?,
        }
        if self.errno != 0 {
            write!(f, " (errno {})", self.errno)?;
        }
        Ok(())
    }
}

impl std::error::Error for DeviceError {}

/// What is done with the outcome of a read that no caller waits for.
pub type ReadDone = Box<dyn FnOnce(Result<ReadBuf, DeviceError>) + Send>;

/// Fills `buf` from `at`; the calling thread waits.
pub(crate) fn fill<D: BlockDevice + ?Sized>(d: &D, at: u64, buf: Buf, region: Region) -> Result<Buf, DeviceError> {
    let mut done = d.run(vec![Io::Read { at, buf, region }])?;
    Ok(done.reads.pop().expect("one read was submitted"))
}

/// Fills memory from `at` for [`BlockDevice::read_then`], where the calling thread waits.
pub(crate) fn fill_now<D: BlockDevice + ?Sized>(
    d: &D,
    at: u64,
    buf: ReadBuf,
    region: Region,
) -> Result<ReadBuf, DeviceError> {
    match buf {
        ReadBuf::Whole(buf) => fill(d, at, buf, region).map(ReadBuf::Whole),
        mut part @ ReadBuf::Part(..) => d.read_into(at, &mut part, region).map(|()| part),
    }
}

/// A device of bytes with a volatile write cache. All of them agree on what they do (M6).
pub trait BlockDevice: Send + Sync {
    fn info(&self) -> DeviceInfo;

    /// Starts a batch. Small synchronous devices may complete it at once; the outcome is always
    /// told by [`BlockDevice::wait`].
    fn submit(&self, batch: Vec<Io>) -> Ticket;

    /// Waits until the batch is complete.
    ///
    /// # Errors
    /// The first operation that failed; others of the batch may or may not have happened.
    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError>;

    /// Submits and waits.
    ///
    /// # Errors
    /// As [`BlockDevice::wait`].
    fn run(&self, batch: Vec<Io>) -> Result<Done, DeviceError> {
        let t = self.submit(batch);
        self.wait(t)
    }

    /// Reads `len` bytes from `at`.
    ///
    /// # Errors
    /// As [`BlockDevice::wait`].
    fn read(&self, at: u64, len: usize, region: Region) -> Result<Buf, DeviceError> {
        fill(self, at, Buf::zeroed(len), region)
    }

    /// Fills `into` from `at`. Devices that can do so read straight into it.
    ///
    /// # Errors
    /// As [`BlockDevice::wait`].
    fn read_into(&self, at: u64, into: &mut [u8], region: Region) -> Result<(), DeviceError> {
        into.copy_from_slice(&self.read(at, into.len(), region)?[..into.len()]);
        Ok(())
    }

    /// True if [`BlockDevice::read_then`] does not wait.
    fn can_suspend_reads(&self) -> bool {
        false
    }

    /// Fills `buf`, whole sectors, from `at`, for a caller that need not wait: `then` is called once, with the buffer
    /// or the error, on a thread of the device's that ends other reads, too; or on the calling thread, which waits,
    /// where the device cannot do better.
    fn read_then(&self, at: u64, buf: ReadBuf, region: Region, then: ReadDone) {
        then(fill_now(self, at, buf, region));
    }

    /// Writes `data`, whole sectors, at `at` and waits for completion (not durability). Devices that can do so write
    /// straight from it.
    ///
    /// # Errors
    /// As [`BlockDevice::wait`].
    fn write_from(&self, at: u64, data: &[u8], region: Region) -> Result<(), DeviceError> {
        self.write(at, Arc::new(Buf::copy_of(data)), region)
    }

    /// Writes one buffer at `at` and waits for completion (not durability).
    ///
    /// # Errors
    /// As [`BlockDevice::wait`].
    fn write(&self, at: u64, data: Arc<Buf>, region: Region) -> Result<(), DeviceError> {
        self.run(vec![Io::Write { at, data: vec![data], region, fua: false }]).map(drop)
    }

    /// Makes a range ready for fast writes: the holes of a sparse image, or of the one behind a loop device, are
    /// written out with zeros, so that later writes there cost the host no metadata commit. What the range reads as
    /// does not change. Devices without holes do nothing. Nobody may write to the range meanwhile.
    ///
    /// # Errors
    /// The host has no space, or a write failed.
    fn preallocate(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        let _ = (at, len);
        Ok(())
    }

    /// Makes the device at least `size` bytes long, durably. What it gets reads as zeros. A device that cannot be
    /// extended may be as long already.
    ///
    /// # Errors
    /// Out of range: it cannot be extended. The host has no space for it.
    fn grow(&self, size: u64) -> Result<(), DeviceError> {
        let len = size.saturating_sub(self.info().size);
        match len {
            0 => Ok(()),
            _ => Err(DeviceError { op: IoOp::Write, at: size - len, len, kind: ErrorKind::OutOfRange, errno: 0 }),
        }
    }

    /// Gives up the lock that keeps others off the device, if there is one, also where a process that was forked has
    /// the same open file. Only after the last transfer, by the process that has opened the device.
    fn unlock(&self) {}
}

impl<D: BlockDevice + ?Sized> BlockDevice for Arc<D> {
    fn info(&self) -> DeviceInfo {
        (**self).info()
    }
    fn submit(&self, batch: Vec<Io>) -> Ticket {
        (**self).submit(batch)
    }
    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        (**self).wait(ticket)
    }
    fn run(&self, batch: Vec<Io>) -> Result<Done, DeviceError> {
        (**self).run(batch)
    }
    fn read_into(&self, at: u64, into: &mut [u8], region: Region) -> Result<(), DeviceError> {
        (**self).read_into(at, into, region)
    }
    fn can_suspend_reads(&self) -> bool {
        (**self).can_suspend_reads()
    }
    fn read_then(&self, at: u64, buf: ReadBuf, region: Region, then: ReadDone) {
        (**self).read_then(at, buf, region, then);
    }
    fn write_from(&self, at: u64, data: &[u8], region: Region) -> Result<(), DeviceError> {
        (**self).write_from(at, data, region)
    }
    fn preallocate(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        (**self).preallocate(at, len)
    }
    fn grow(&self, size: u64) -> Result<(), DeviceError> {
        (**self).grow(size)
    }
    fn unlock(&self) {
        (**self).unlock();
    }
}
