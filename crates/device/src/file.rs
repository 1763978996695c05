//! A device in an image file or on a disk of the host.
//!
//! Guarantees: one writer (see [`OpenOptions::lock`]); direct I/O where the host allows it; a batch of one small
//! operation runs in the caller, without another thread; several are in flight together. Buffers of a batch
//! belong to the device until the batch is complete.
//!
//! ```text
//! batch ──Plan──> one segment  ──> pwritev2 / preadv2 in the caller
//!             └─> several ───────> io_uring (or one call after the other where the host has none)
//!             └─> flush, discard, zero, odd sizes ──> in the caller
//! read_then ──────> io_uring and thread of their own (`read_ring`)
//! ```

use crate::buf::{Buf, SECTOR};
use crate::holes::Backing;
use crate::host::{Host, device_error};
use crate::io::{BlockDevice, DeviceError, DeviceInfo, Done, ErrorKind, Io, IoOp, ReadDone, Region, Ticket, fill_now};
use crate::lease::Lease;
use crate::open::{self, OpenError, OpenOptions, Opened};
use crate::policy::{PIECE_BYTES, TRANSFERRED_BY_CALLER};
use crate::read_buf::ReadBuf;
use crate::read_ring::ReadRing;
use crate::segment::{Payload, Plan, Segment};
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, lock};
use crate::uring::{MAX_SEGMENTS, Ring};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

/// A device in an image file or on a disk.
pub struct FileDevice {
    /// Dropped before `host`: transfers in flight end while the file is open. Made when first needed.
    ring: OnceLock<Option<Ring>>,
    /// The same for reads that no caller waits for.
    read_ring: OnceLock<Option<ReadRing>>,
    host: Arc<Host>,
    /// As it was opened, but for the size.
    info: DeviceInfo,
    /// Bytes of the device.
    size: AtomicU64,
    /// Bytes that it may have at most.
    limit: Option<u64>,
    direct: bool,
    tickets: Mutex<HashMap<u64, Pending>>,
    next: AtomicU64,
}

/// A batch that was submitted and not yet waited for.
enum Pending {
    Complete(Result<Done, DeviceError>),
    /// The ring has its segments; this is what ran in the caller.
    Flying(Reads, Result<(), DeviceError>),
}

/// Buffers of completed reads with their index in the batch.
type Reads = Vec<(usize, Buf)>;

impl FileDevice {
    /// Opens an image file or a block device.
    ///
    /// # Errors
    /// It is not there, not ours to use, in use, or no device.
    pub fn open(path: impl AsRef<Path>, how: OpenOptions) -> Result<FileDevice, OpenError> {
        let Opened { host, info, direct } = open::open(path.as_ref(), how)?;
        Ok(FileDevice {
            ring: OnceLock::new(),
            read_ring: OnceLock::new(),
            host: Arc::new(host),
            info,
            size: AtomicU64::new(info.size),
            limit: how.size,
            direct,
            tickets: Mutex::default(),
            next: AtomicU64::new(0),
        })
    }

    /// True if transfers go past the host's page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// The file, for leases on it; `None` for a block device.
    ///
    /// # Errors
    /// No descriptor can be had.
    pub fn lease(&self) -> Result<Option<Lease>, Errno> {
        if self.host.block_device { Ok(None) } else { Lease::on(self.host.fd.as_fd()).map(Some) }
    }

    /// Uses no io_uring from now on, as on a host that does not permit it. Only before the first batch.
    #[must_use]
    pub fn without_ring(self) -> FileDevice {
        let _ = self.ring.set(None);
        let _ = self.read_ring.set(None);
        self
    }

    fn read_ring(&self) -> Option<&ReadRing> {
        self.read_ring.get_or_init(|| ReadRing::new(self.host.clone())).as_ref()
    }

    fn ring(&self) -> Option<&Ring> {
        self.ring.get_or_init(Ring::new).as_ref()
    }

    /// Looks a batch over before anything of it happens (M4).
    fn check(&self, batch: &[Io]) -> Result<(), DeviceError> {
        batch.iter().try_for_each(|io| {
            let (at, len) = io.range();
            self.check_range(io.op(), at, len)
        })
    }

    fn check_range(&self, op: IoOp, at: u64, len: u64) -> Result<(), DeviceError> {
        let error = |kind| Err(DeviceError { op, at, len, kind, errno: 0 });
        if at.checked_add(len).is_none_or(|end| end > self.size.load(Ordering::Acquire)) {
            return error(ErrorKind::OutOfRange);
        }
        if self.info.read_only && !matches!(op, IoOp::Read | IoOp::Flush) {
            return error(ErrorKind::ReadOnly);
        }
        Ok(())
    }

    /// True if the host takes this memory for this place as it is.
    fn is_aligned(&self, at: u64, bytes: &[u8]) -> bool {
        let unit = self.host.sector.max(SECTOR);
        at.is_multiple_of(unit as u64) && bytes.len().is_multiple_of(unit) && bytes.as_ptr().align_offset(unit) == 0
    }

    /// Runs what is not a plain transfer.
    fn run_rest(&self, rest: Vec<(usize, Io)>, reads: &mut Reads) -> Result<(), DeviceError> {
        for (index, io) in rest {
            match io {
                Io::Read { at, mut buf, .. } => {
                    self.host.read_narrow(at, &mut buf)?;
                    reads.push((index, buf));
                }
                Io::Write { at, data, fua, .. } => {
                    let bytes: Vec<u8> = data.iter().flat_map(|b| b.iter().copied()).collect();
                    self.host.write_narrow(at, &bytes, fua)?;
                }
                Io::Flush if self.info.read_only => {}
                Io::Flush => self.host.flush()?,
                Io::Discard { at, len } => self.host.discard(at, len)?,
                Io::Zero { at, len, region } => self.host.zero(at, len, region)?,
            }
        }
        Ok(())
    }

    /// Runs a whole plan in the caller.
    fn run_here(&self, plan: Plan) -> Result<Done, DeviceError> {
        let mut reads = Reads::new();
        let mut result = Ok(());
        for mut segment in plan.segments {
            result = result.and(self.host.transfer(&mut segment, 0));
            collect(segment, &mut reads);
        }
        result.and(self.run_rest(plan.rest, &mut reads))?;
        Ok(done(reads))
    }

    /// Carries to its end what the ring has completed, whole, in part or not at all.
    fn land(&self, landed: Vec<(Segment, i32)>, reads: &mut Reads) -> Result<(), DeviceError> {
        let mut first = Ok(());
        for (mut segment, result) in landed {
            let moved = usize::try_from(result).unwrap_or(0);
            // An error is told by the call that repeats it.
            if moved < segment.len {
                first = first.and(self.host.transfer(&mut segment, moved));
            }
            collect(segment, reads);
        }
        first
    }

    fn is_short(plan: &Plan, limit: usize) -> bool {
        match plan.segments.as_slice() {
            [] => true,
            [one] => one.len <= limit,
            many => many.len() >= MAX_SEGMENTS,
        }
    }

    /// Writes zeros into the holes of a range. The caller must keep writers away meanwhile.
    fn fill_holes(&self, holes: &Backing<'_>, at: u64, len: u64) -> Result<(), DeviceError> {
        let failed = |e| device_error(IoOp::Write, at, len, e);
        let (mut rest, mut any) = (at..at + len, false);
        while let Some(hole) = holes.hole(rest.clone()).map_err(failed)? {
            rest.start = hole.end;
            // The file of a loop device was found by its name, which may be another file's by now.
            if !holes.is_certain() && !self.reads_zeros(&hole)? {
                break;
            }
            self.host.write_zeros(hole.start, hole.end - hole.start)?;
            any = true;
        }
        if any { self.host.flush() } else { Ok(()) }
    }

    fn reads_zeros(&self, range: &Range<u64>) -> Result<bool, DeviceError> {
        let mut at = range.start;
        while at < range.end {
            let len = usize::try_from(range.end - at).map_or(PIECE_BYTES, |n| n.min(PIECE_BYTES));
            if self.read(at, len, Region::Log)?.iter().any(|b| *b != 0) {
                return Ok(false);
            }
            at += len as u64;
        }
        Ok(true)
    }
}

fn collect(segment: Segment, reads: &mut Reads) {
    if let Payload::Read(pieces) = segment.payload {
        reads.extend(pieces);
    }
}

fn done(mut reads: Reads) -> Done {
    reads.sort_by_key(|(index, _)| *index);
    Done { reads: reads.into_iter().map(|(_, buf)| buf).collect() }
}

impl BlockDevice for FileDevice {
    fn info(&self) -> DeviceInfo {
        let discards = self.host.discards.load(crate::sync::atomic::Ordering::Relaxed);
        DeviceInfo { discards, size: self.size.load(Ordering::Acquire), ..self.info }
    }

    fn submit(&self, batch: Vec<Io>) -> Ticket {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let pending = match self.check(&batch) {
            Err(e) => Pending::Complete(Err(e)),
            Ok(()) => {
                let mut plan = Plan::of(batch, self.host.sector);
                match self.ring() {
                    Some(ring) if !Self::is_short(&plan, TRANSFERRED_BY_CALLER) => {
                        ring.launch(id, self.host.fd.as_fd(), self.host.base, std::mem::take(&mut plan.segments));
                        let mut reads = Reads::new();
                        let result = self.run_rest(plan.rest, &mut reads);
                        Pending::Flying(reads, result)
                    }
                    _ => Pending::Complete(self.run_here(plan)),
                }
            }
        };
        lock(&self.tickets).insert(id, pending);
        Ticket(id)
    }

    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        let pending = lock(&self.tickets).remove(&ticket.0).expect("a ticket is waited for once");
        match pending {
            Pending::Complete(result) => result,
            Pending::Flying(mut reads, rest) => {
                let ring = self.ring().expect("the batch is on the ring");
                let landed = self.land(ring.land(ticket.0), &mut reads);
                landed.and(rest)?;
                Ok(done(reads))
            }
        }
    }

    fn run(&self, batch: Vec<Io>) -> Result<Done, DeviceError> {
        self.check(&batch)?;
        let plan = Plan::of(batch, self.host.sector);
        match self.ring.get() {
            _ if Self::is_short(&plan, usize::MAX) => self.run_here(plan),
            Some(None) => self.run_here(plan),
            _ => match self.ring() {
                None => self.run_here(plan),
                Some(ring) => {
                    let id = self.next.fetch_add(1, Ordering::Relaxed);
                    ring.launch(id, self.host.fd.as_fd(), self.host.base, plan.segments);
                    let mut reads = Reads::new();
                    let rest = self.run_rest(plan.rest, &mut reads);
                    self.land(ring.land(id), &mut reads).and(rest)?;
                    Ok(done(reads))
                }
            },
        }
    }

    fn read_into(&self, at: u64, into: &mut [u8], region: Region) -> Result<(), DeviceError> {
        let len = into.len() as u64;
        if !self.is_aligned(at, into) {
            into.copy_from_slice(&self.read(at, into.len(), region)?[..into.len()]);
            return Ok(());
        }
        self.check_range(IoOp::Read, at, len)?;
        self.host.read_slice(at, into)
    }

    /// Past the host's page cache a read always waits; out of it, hardly ever.
    fn can_suspend_reads(&self) -> bool {
        self.direct && self.read_ring().is_some()
    }

    fn read_then(&self, at: u64, buf: ReadBuf, region: Region, then: ReadDone) {
        if let Err(e) = self.check_range(IoOp::Read, at, buf.len() as u64) {
            return then(Err(e));
        }
        match self.read_ring().filter(|_| self.is_aligned(at, &buf)) {
            Some(ring) => ring.start(at, buf, then),
            None => then(fill_now(self, at, buf, region)),
        }
    }

    fn write_from(&self, at: u64, data: &[u8], region: Region) -> Result<(), DeviceError> {
        if !self.is_aligned(at, data) {
            return self.write(at, Arc::new(Buf::copy_of(data)), region);
        }
        self.check_range(IoOp::Write, at, data.len() as u64)?;
        self.host.write_slice(at, data)
    }

    fn preallocate(&self, at: u64, len: u64) -> Result<(), DeviceError> {
        self.check(&[Io::Zero { at, len, region: crate::io::Region::Log }])?;
        let (fd, base) = (self.host.fd.as_fd(), self.host.base);
        let holes = if self.host.block_device { Backing::of_loop(fd, base) } else { Some(Backing::of_image(fd, base)) };
        holes.map_or(Ok(()), |holes| self.fill_holes(&holes, at, len))
    }

    fn grow(&self, size: u64) -> Result<(), DeviceError> {
        let now = self.size.load(Ordering::Acquire);
        let Some(len) = size.checked_sub(now).filter(|n| *n > 0) else { return Ok(()) };
        let error = |kind| DeviceError { op: IoOp::Write, at: now, len, kind, errno: 0 };
        if self.info.read_only {
            return Err(error(ErrorKind::ReadOnly));
        }
        let end = size.checked_add(self.host.base).filter(|_| self.limit.is_none_or(|limit| size <= limit));
        let end = end.ok_or_else(|| error(ErrorKind::OutOfRange))?;
        if !self.host.lengthen(end).map_err(|e| device_error(IoOp::Write, now, len, e))? {
            return Err(error(ErrorKind::OutOfRange));
        }
        self.size.fetch_max(size, Ordering::AcqRel);
        Ok(())
    }

    /// The claim on a block device (`O_EXCL`) cannot be given up: it ends with the last descriptor of the open file.
    fn unlock(&self) {
        open::unlock(&self.host);
    }
}
