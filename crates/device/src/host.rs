//! An open file or block device of the host: the calls that move bytes, one after the other.
//!
//! Every call is carried to its end here: interrupted and short calls go on where they stopped, calls that the host
//! does not know are replaced by what comes closest.

use crate::buf::{Buf, SECTOR};
use crate::io::{DeviceError, ErrorKind, IoOp, Region};
use crate::policy::PIECE_BYTES;
use crate::segment::{MAX_PIECES, Payload, Segment};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Mutex, before_blocking, lock};
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, ReadWriteFlags};
use std::io::{IoSlice, IoSliceMut};
use std::time::Duration;

/// An open file or block device; the part of it from `base` on is the device.
pub(crate) struct Host {
    pub(crate) fd: OwnedFd,
    pub(crate) base: u64,
    pub(crate) block_device: bool,
    /// Smallest unit of a transfer, in bytes.
    pub(crate) sector: usize,
    pub(crate) discards: AtomicBool,
    /// Writes that are no multiple of the sector are read, changed and written under this lock.
    narrow: Mutex<()>,
    /// The host knows RWF_DSYNC.
    dsync: AtomicBool,
    /// It lies on FUSE, where even to begin a read may wait: the kernel sends so many at once, and no more.
    pub(crate) begins_late: bool,
    /// Of a loop device: the locked file behind it.
    pub(crate) backing: Option<OwnedFd>,
}

/// `FUSE_SUPER_MAGIC` of statfs(2).
const FUSE_MAGIC: u64 = 0x6573_5546;

/// Says what failed where.
pub(crate) fn device_error(op: IoOp, at: u64, len: u64, e: Errno) -> DeviceError {
    let kind = match e {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => ErrorKind::NoSpace,
        Errno::NODEV | Errno::NXIO | Errno::NOMEDIUM => ErrorKind::Gone,
        Errno::ROFS => ErrorKind::ReadOnly,
        _ => ErrorKind::Io,
    };
    DeviceError { op, at, len, kind, errno: e.raw_os_error() }
}

/// Repeats a call that was interrupted, and for a while one that the host could not take now.
fn persist<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let mut busy = 0;
    loop {
        match call() {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if busy < 1000 => {
                busy += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            other => return other,
        }
    }
}

impl Host {
    pub(crate) fn new(fd: OwnedFd, base: u64, block_device: bool, sector: usize, discards: bool) -> Host {
        // A server may not tell.
        let begins_late = rustix::fs::fstatfs(&fd).map_or(true, |fs| u64::try_from(fs.f_type) == Ok(FUSE_MAGIC));
        Host {
            fd,
            base,
            block_device,
            sector,
            discards: AtomicBool::new(discards),
            narrow: Mutex::new(()),
            dsync: AtomicBool::new(true),
            begins_late,
            backing: None,
        }
    }

    /// Moves what is left of a segment after its first `done` bytes. On a read error the buffers are read one by
    /// one, so that the error names the place.
    pub(crate) fn transfer(&self, seg: &mut Segment, done: usize) -> Result<(), DeviceError> {
        match self.transfer_whole(seg, done) {
            Err(e) if seg.pieces() > 1 && matches!(seg.payload, Payload::Read(_)) => {
                let payload = std::mem::replace(&mut seg.payload, Payload::Read(Vec::new()));
                let mut parts = Segment { at: seg.at, len: seg.len, payload }.split();
                let result = parts.iter_mut().try_for_each(|part| self.transfer_whole(part, 0));
                let Payload::Read(back) = &mut seg.payload else { unreachable!("replaced above") };
                for part in parts {
                    if let Payload::Read(pieces) = part.payload {
                        back.extend(pieces);
                    }
                }
                tracing::debug!(error = %e, "a read of several buffers failed; read one by one");
                result
            }
            result => result,
        }
    }

    fn transfer_whole(&self, seg: &mut Segment, done: usize) -> Result<(), DeviceError> {
        before_blocking();
        let (at, len) = (seg.at, seg.len as u64);
        match &mut seg.payload {
            Payload::Read(pieces) => {
                let mut slices: Vec<IoSliceMut<'_>> = pieces.iter_mut().map(|(_, b)| IoSliceMut::new(b)).collect();
                self.read_all(at, done, &mut slices).map_err(|e| e.at(IoOp::Read, at, len))
            }
            Payload::Write { pieces, fua } => {
                let mut slices: Vec<IoSlice<'_>> = pieces.iter().map(|b| IoSlice::new(b)).collect();
                self.write_all(at, done, &mut slices, *fua).map_err(|e| e.at(IoOp::Write, at, len))
            }
        }
    }

    /// Fills memory that the host takes as it is.
    pub(crate) fn read_slice(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        before_blocking();
        let len = into.len() as u64;
        self.read_all(at, 0, &mut [IoSliceMut::new(into)]).map_err(|e| e.at(IoOp::Read, at, len))
    }

    /// Writes memory that the host takes as it is.
    pub(crate) fn write_slice(&self, at: u64, data: &[u8]) -> Result<(), DeviceError> {
        before_blocking();
        self.write_all(at, 0, &mut [IoSlice::new(data)], false).map_err(|e| e.at(IoOp::Write, at, data.len() as u64))
    }

    fn read_all(&self, at: u64, done: usize, mut left: &mut [IoSliceMut<'_>]) -> Result<(), Stop> {
        let mut pos = self.base + at + done as u64;
        IoSliceMut::advance_slices(&mut left, done);
        while !left.is_empty() {
            let count = left.len().min(MAX_PIECES);
            let n = persist(|| rustix::io::preadv2(&self.fd, &mut left[..count], pos, ReadWriteFlags::empty()))?;
            if n == 0 {
                return Err(Stop::End);
            }
            pos += n as u64;
            IoSliceMut::advance_slices(&mut left, n);
        }
        Ok(())
    }

    fn write_all(&self, at: u64, done: usize, mut left: &mut [IoSlice<'_>], fua: bool) -> Result<(), Stop> {
        let mut pos = self.base + at + done as u64;
        IoSlice::advance_slices(&mut left, done);
        while !left.is_empty() {
            let dsync = fua && self.dsync.load(Ordering::Relaxed);
            let flags = if dsync { ReadWriteFlags::DSYNC } else { ReadWriteFlags::empty() };
            let now = &left[..left.len().min(MAX_PIECES)];
            let n = match persist(|| rustix::io::pwritev2(&self.fd, now, pos, flags)) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) if dsync => {
                    self.dsync.store(false, Ordering::Relaxed);
                    continue;
                }
                other => other?,
            };
            if n == 0 {
                return Err(Stop::End);
            }
            pos += n as u64;
            IoSlice::advance_slices(&mut left, n);
        }
        if fua && !self.dsync.load(Ordering::Relaxed) {
            persist(|| rustix::fs::fdatasync(&self.fd))?;
        }
        Ok(())
    }

    /// Makes a file at least `end` bytes long, durably. False: it is a block device that is shorter.
    pub(crate) fn lengthen(&self, end: u64) -> Result<bool, Errno> {
        before_blocking();
        if rustix::fs::seek(&self.fd, rustix::fs::SeekFrom::End(0))? >= end {
            return Ok(true);
        }
        if self.block_device {
            return Ok(false);
        }
        rustix::fs::ftruncate(&self.fd, end)?;
        rustix::fs::fsync(&self.fd)?;
        Ok(true)
    }

    /// Makes completed writes durable.
    pub(crate) fn flush(&self) -> Result<(), DeviceError> {
        before_blocking();
        // Not repeated on error: after a failed flush the host may have dropped what it could not write.
        loop {
            match rustix::fs::fdatasync(&self.fd) {
                Err(Errno::INTR) => {}
                Err(e) => return Err(device_error(IoOp::Flush, 0, 0, e)),
                Ok(()) => return Ok(()),
            }
        }
    }

    /// Gives space back. A host that cannot is asked only once.
    pub(crate) fn discard(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        if len == 0 || !self.discards.load(Ordering::Relaxed) {
            return Ok(());
        }
        let start = self.base + at;
        let result = if self.block_device {
            persist(|| blk_discard(&self.fd, start, len))
        } else {
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            persist(|| rustix::fs::fallocate(&self.fd, punch, start, len))
        };
        match result {
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY) => {
                self.discards.store(false, Ordering::Relaxed);
                Ok(())
            }
            other => other.map_err(|e| device_error(IoOp::Discard, at, len, e)),
        }
    }

    /// Zeroes a range. The log is zeroed by writing: an unwritten extent in an image would make each later
    /// log write cost the host a metadata commit.
    pub(crate) fn zero(&self, at: u64, len: u64, region: Region) -> Result<(), DeviceError> {
        if len == 0 {
            return Ok(());
        }
        let log = matches!(region, Region::Log | Region::LogSuperblock);
        if !log || self.block_device {
            let how = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
            match persist(|| rustix::fs::fallocate(&self.fd, how, self.base + at, len)) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
                other => return other.map_err(|e| device_error(IoOp::Zero, at, len, e)),
            }
        }
        self.write_zeros(at, len).map_err(|e| DeviceError { op: IoOp::Zero, ..e })
    }

    /// Writes zeros, a mebibyte at a time.
    pub(crate) fn write_zeros(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        let zeros = Arc::new(Buf::zeroed(PIECE_BYTES));
        let end = at + len;
        let mut pos = at;
        while pos < end {
            let n = usize::try_from(end - pos).map_or(PIECE_BYTES, |n| n.min(PIECE_BYTES));
            if n == PIECE_BYTES && pos.is_multiple_of(self.sector as u64) {
                let payload = Payload::Write { pieces: vec![Arc::clone(&zeros)], fua: false };
                self.transfer(&mut Segment { at: pos, len: n, payload }, 0)?;
            } else {
                self.write_narrow(pos, &zeros[..n], false)?;
            }
            pos += n as u64;
        }
        Ok(())
    }

    /// Reads what is no multiple of the sector, by way of the sectors around it.
    pub(crate) fn read_narrow(&self, at: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let (start, around) = self.around(at, into.len())?;
        let skip = usize::try_from(at - start).expect("less than a sector");
        into.copy_from_slice(&around[skip..skip + into.len()]);
        Ok(())
    }

    /// Writes what is no multiple of the sector: reads the sectors around it, changes them and writes them back.
    /// Neighbours in the same sector must not be written at the same time by other means.
    pub(crate) fn write_narrow(&self, at: u64, bytes: &[u8], fua: bool) -> Result<(), DeviceError> {
        let _one_at_a_time = lock(&self.narrow);
        let (start, mut around) = self.around(at, bytes.len())?;
        let skip = usize::try_from(at - start).expect("less than a sector");
        around[skip..skip + bytes.len()].copy_from_slice(bytes);
        let len = around.len();
        let payload = Payload::Write { pieces: vec![Arc::new(around)], fua };
        self.transfer(&mut Segment { at: start, len, payload }, 0)
    }

    /// The sectors that hold `len` bytes at `at`: where they start, and their contents.
    fn around(&self, at: u64, len: usize) -> Result<(u64, Buf), DeviceError> {
        let unit = self.sector.max(SECTOR) as u64;
        let start = at - at % unit;
        let end = (at + len as u64).next_multiple_of(unit);
        let len = usize::try_from(end - start).map_err(|_| device_error(IoOp::Read, at, end - start, Errno::NOMEM))?;
        let payload = Payload::Read(vec![(0, Buf::zeroed(len))]);
        let mut seg = Segment { at: start, len, payload };
        self.transfer(&mut seg, 0)?;
        let Payload::Read(mut pieces) = seg.payload else { unreachable!("made above") };
        Ok((start, pieces.pop().expect("one buffer").1))
    }
}

/// Why a transfer stopped.
enum Stop {
    /// The host moved nothing: the end of the file.
    End,
    Failed(Errno),
}

impl From<Errno> for Stop {
    fn from(e: Errno) -> Stop {
        Stop::Failed(e)
    }
}

impl Stop {
    fn at(self, op: IoOp, at: u64, len: u64) -> DeviceError {
        match self {
            Stop::End => DeviceError { op, at, len, kind: ErrorKind::OutOfRange, errno: 0 },
            Stop::Failed(e) => device_error(op, at, len, e),
        }
    }
}

/// `ioctl(BLKDISCARD)`: `_IO(0x12, 119)`.
fn blk_discard(fd: impl AsFd, at: u64, len: u64) -> Result<(), Errno> {
    const BLKDISCARD: rustix::ioctl::Opcode = 0x1277;
    // SAFETY: BLKDISCARD reads two u64 (start and length) through its argument and stores nothing.
    let call = unsafe { rustix::ioctl::Setter::<BLKDISCARD, [u64; 2]>::new([at, len]) };
    // SAFETY: the opcode and its argument belong together, see above; `fd` is open.
    unsafe { rustix::ioctl::ioctl(fd, call) }
}
