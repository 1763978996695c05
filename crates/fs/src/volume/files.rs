//! The calls on file data.

use super::handle::{Entry, Inner, Volume};
use crate::data::{self, Falloc, FileExtent, FilePlace, Intent, Seek, WriteFlags};
use crate::error::{Error, Result};
use crate::names::evict;
use quire_device::sync::Arc;
use quire_device::{HugeBuf, Region, read_all_then};
use quire_journal::{Lead, Need, SyncError};
use quire_layout::{Ino, Tid};
use std::fmt;
use std::time::Duration;

impl Volume {
    /// Reads from a file at `offset`. It returns less than the buffer holds only at the end of the file.
    ///
    /// # Errors
    /// Not a regular file; corrupt block map; I/O.
    pub fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
        data::read(&self.inner.data, ino, offset, buf, Intent::Read)
    }

    /// Writes to a file; returns the bytes written, which are all unless an error came after some.
    ///
    /// # Errors
    /// Not a regular file; too large; no space; not permitted (immutable, append-only); read-only; corrupt; I/O.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8], flags: WriteFlags) -> Result<usize> {
        let _pass = self.inner.enter()?;
        data::write(&self.inner.data, self.pool, ino, offset, data, flags)
    }

    /// Makes a file's data and metadata durable; with `datasync`, only the metadata that is needed to read the data. A
    /// directory's entries count as its metadata.
    ///
    /// # Errors
    /// Something could not be written, now or earlier.
    pub fn fsync(&self, ino: Ino, datasync: bool) -> Result<()> {
        match self.inner.enter_unless_frozen()? {
            Some(_pass) => {
                let took = Took::begin(&self.inner);
                let outcome = data::fsync(&self.inner.data, ino, datasync);
                took.end(&self.inner);
                outcome
            }
            None => data::check_file_error(&self.inner.data, ino),
        }
    }

    /// Makes everything durable that was written and done so far.
    ///
    /// # Errors
    /// Something could not be written, now or earlier.
    pub fn sync(&self) -> Result<()> {
        match self.inner.enter_unless_frozen()? {
            Some(_pass) => {
                // Those that a batch has left.
                evict::free_pending(&self.inner.engine);
                data::sync(&self.inner.data)
            }
            None => data::check_any_error(&self.inner.data),
        }
    }

    /// Sets the size of a file. What it grows over reads as zeros; what it loses is freed.
    ///
    /// # Errors
    /// Too large; not permitted (immutable, append-only); not a regular file; read-only; corrupt; I/O.
    pub fn truncate(&self, ino: Ino, size: u64) -> Result<()> {
        let _pass = self.inner.enter()?;
        let sync = data::truncate(&self.inner.data, ino, size)?;
        sync_if(&self.inner, sync, ino)
    }

    /// Allocates, zeroes, punches, collapses or inserts a range of a file.
    ///
    /// # Errors
    /// Invalid range; not supported; no space; too large; not permitted; not a regular file; read-only; corrupt; I/O.
    pub fn fallocate(&self, ino: Ino, how: Falloc, offset: u64, len: u64) -> Result<()> {
        let _pass = self.inner.enter()?;
        let sync = data::fallocate(&self.inner.data, self.pool, ino, how, offset, len)?;
        sync_if(&self.inner, sync, ino)
    }

    /// Copies a range from one file to another, or within one. Returns the bytes copied, fewer at the end of the
    /// source.
    ///
    /// # Errors
    /// As [`Volume::read`] and [`Volume::write`]; invalid: the ranges overlap.
    pub fn copy_range(&self, from: FilePlace, to: FilePlace, len: u64) -> Result<u64> {
        let _pass = self.inner.enter()?;
        data::copy_range(&self.inner.data, self.pool, from, to, len)
    }

    /// The first byte from `offset` on that is data, or that is a hole. The end of the file counts as a hole.
    ///
    /// # Errors
    /// No such range: `offset` is at or behind the end of the file, or no data follows. Corrupt; I/O.
    pub fn seek(&self, ino: Ino, offset: u64, what: Seek) -> Result<u64> {
        data::seek(&self.inner.data, ino, offset, what)
    }

    /// Extents of a file between `offset` and `offset + len`, at most `limit`, with data that has no blocks yet.
    ///
    /// # Errors
    /// Not a regular file; corrupt; I/O.
    pub fn extents(&self, ino: Ino, offset: u64, len: u64, limit: usize) -> Result<Vec<FileExtent>> {
        data::extents(&self.inner.data, ino, offset, len, limit)
    }
}

/// The end of a call that has changed a file's size or space: an inode with the flag `sync` asks for that to be durable
/// (N10), the zeros in blocks that the range covers in part included.
fn sync_if(inner: &Inner, sync: bool, ino: Ino) -> Result<()> {
    if sync { data::fsync(&inner.data, ino, false) } else { Ok(()) }
}

/// Says that a program has closed a file that it had open to write: what replaces a content that was cut off is written
/// back (F30). An error of that is told by the next fsync.
pub fn closed(volume: &Volume, ino: Ino) {
    // On a volume that is frozen, or is being, all is written back.
    if let Ok(_pass) = volume.inner.try_enter() {
        data::closed(&volume.inner.data, ino);
    }
}

/// Measures one call of fsync.
struct Took(Duration);

impl Took {
    fn begin(inner: &Inner) -> Self {
        Took(inner.engine.clock.monotonic())
    }

    fn end(&self, inner: &Inner) {
        inner.data.fsync.record(inner.engine.clock.monotonic().saturating_sub(self.0));
    }
}

/// As [`Volume::read`], for a caller that may soon write what it reads, changed in part: the bytes stay in memory where
/// the journal would log the difference.
///
/// # Errors
/// As [`Volume::read`].
pub fn read_to_change(volume: &Volume, ino: Ino, offset: u64, buf: &mut [u8]) -> Result<usize> {
    data::read(&volume.inner.data, ino, offset, buf, Intent::Change)
}

/// As [`Volume::write`], at the end of the file; returns how many bytes and where the last of them ends. `data` must
/// not be empty.
///
/// # Errors
/// As [`Volume::write`].
pub fn append(volume: &Volume, ino: Ino, data: &[u8], flags: WriteFlags) -> Result<(usize, u64)> {
    let _pass = volume.inner.enter()?;
    data::append(&volume.inner.data, volume.pool, ino, data, flags)
}

/// What a read that need not wait came to.
pub enum ReadBegun {
    /// So many bytes are in the buffer.
    Done(usize),
    /// They are on the device.
    OnDevice(DeviceRead),
}

/// A read that waits for nothing but the device. The file's blocks stay its own meanwhile.
#[must_use = "a file whose reader never ends cannot be truncated"]
pub struct DeviceRead {
    inner: Arc<Inner>,
    ino: Ino,
    runs: data::DeviceRuns,
}

/// As [`Volume::read`], for a caller that can do something else while the device reads; where the device lets no caller
/// do that, the read is done. `changes`: as [`read_to_change`].
///
/// # Errors
/// As [`Volume::read`]; a miss, through a handle [`without_waiting`](super::without_waiting).
pub fn begin_read(volume: &Volume, ino: Ino, offset: u64, buf: &mut [u8], changes: bool) -> Result<ReadBegun> {
    let intent = if changes { Intent::Change } else { Intent::Read };
    Ok(match data::begin_read(&volume.inner.data, ino, offset, buf, intent, volume.misses)? {
        data::Begun::Done(n) => ReadBegun::Done(n),
        data::Begun::OnDevice(runs) => ReadBegun::OnDevice(DeviceRead { inner: volume.inner.clone(), ino, runs }),
    })
}

impl fmt::Debug for DeviceRead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes of inode {}", self.runs.len(), self.ino.0)
    }
}

impl DeviceRead {
    /// How many bytes there will be, unless the device cannot read.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.runs.len()
    }

    /// Reads; `then` is called with the bytes, once, on a thread that ends other reads, too: it must not wait.
    pub fn then(self, then: impl FnOnce(Result<&[u8]>) + Send + 'static) {
        let DeviceRead { inner, ino, runs } = self;
        let device = inner.engine.journal.gate().device().clone();
        let reads = runs.reads(inner.engine.context.block_size());
        read_all_then(&device, reads, Region::Data, move |read| {
            data::end_read(&inner.data, ino, runs, read.map_err(Error::from), then);
        });
    }

    /// As [`DeviceRead::then`], into `memory` from the byte `at` on, where there is room for them: one run of blocks is
    /// read straight into it. `then` gets the memory back, and how many bytes are the file's.
    ///
    /// # Panics
    /// If there is no room.
    pub fn then_in(self, memory: HugeBuf, at: usize, then: impl FnOnce(Result<(HugeBuf, usize)>) + Send + 'static) {
        assert!(self.bytes() <= memory.len() - at, "room for what was asked for");
        let DeviceRead { inner, ino, runs } = self;
        let device = inner.engine.journal.gate().device().clone();
        let (reads, memory) = runs.reads_into(inner.engine.context.block_size(), memory, at);
        read_all_then(&device, reads, Region::Data, move |read| {
            then(data::end_read_into(&inner.data, ino, runs, read.map_err(Error::from), memory, at));
        });
    }
}

/// As [`Volume::fsync`] of each of these inodes, for a caller that does not wait: `then` is called with the outcome,
/// once, on the thread that makes them durable. That is the calling thread if no other commits; it then also serves
/// the callers that come meanwhile, as `lead` says. Writing files back may block the calling thread, waiting for a
/// commit of another, or for the end of a freeze or thaw, does not. A freeze or close waits until `then` has returned,
/// so `then` must not wait for either.
pub fn fsync_then(
    volume: &Volume,
    inos: &[Ino],
    datasync: bool,
    lead: Lead,
    then: impl FnOnce(Result<()>) + Send + 'static,
) {
    let pass = match volume.inner.enter_without_waiting() {
        Entry::Refused(e) => return then(Err(e)),
        Entry::NothingToDo => {
            return then(inos.iter().try_for_each(|ino| data::check_file_error(&volume.inner.data, *ino)));
        }
        Entry::AfterPhase => {
            let (again, inos) = (volume.clone(), inos.to_vec());
            let again = move || fsync_then(&again, &inos, datasync, Lead::Once, then);
            return volume.inner.engine.lifecycle.after_phase(Box::new(again));
        }
        Entry::Admitted(pass) => pass,
    };
    let inner = volume.inner.clone();
    let took = Took::begin(&inner);
    let begin = |ino: &Ino| Ok((*ino, data::begin_fsync(&inner.data, *ino, datasync)?));
    let needs: Vec<(Ino, Need)> = match inos.iter().map(begin).collect::<Result<_>>() {
        Ok(needs) => needs,
        Err(e) => return then(Err(e)),
    };
    let all = needs.iter().fold(Need::default(), |all, (_, need)| all.and(*need));
    if all == Need::default() {
        took.end(&inner);
        return then(Ok(()));
    }
    let end = move |outcome: std::result::Result<(), SyncError>| {
        let mut told = Ok(());
        for (ino, need) in needs {
            let of_other = need.data.is_none() && matches!(outcome, Err(SyncError::Flush(_)));
            let outcome = if of_other { Ok(()) } else { outcome.clone() };
            // Each file takes note of its own.
            let ended = data::end_fsync(&inner.data, ino, need, outcome);
            told = told.and(ended);
        }
        took.end(&inner);
        then(told);
        drop(pass);
    };
    volume.inner.engine.journal.sync_then(all, lead, Box::new(end));
}

/// Makes a transaction durable, for a caller that does not wait: as [`fsync_then`], of what a call has
/// [left](super::commit_left).
pub fn commit_then(volume: &Volume, tid: Tid, lead: Lead, then: impl FnOnce(Result<()>) + Send + 'static) {
    let pass = match volume.inner.enter_without_waiting() {
        Entry::Refused(e) => return then(Err(e)),
        Entry::NothingToDo => return then(Ok(())),
        Entry::AfterPhase => {
            let again = volume.clone();
            return volume
                .inner
                .engine
                .lifecycle
                .after_phase(Box::new(move || commit_then(&again, tid, Lead::Once, then)));
        }
        Entry::Admitted(pass) => pass,
    };
    let end = move |outcome: std::result::Result<(), SyncError>| {
        then(outcome.map_err(|e| match e {
            SyncError::Commit(e) => e.into(),
            SyncError::Flush(e) => e.into(),
        }));
        drop(pass);
    };
    volume.inner.engine.journal.sync_then(Need { tid: Some(tid), data: None }, lead, Box::new(end));
}

/// As [`Volume::sync`], for a caller that does not wait: as [`fsync_then`] for all files.
pub fn sync_then(volume: &Volume, lead: Lead, then: impl FnOnce(Result<()>) + Send + 'static) {
    let pass = match volume.inner.enter_without_waiting() {
        Entry::Refused(e) => return then(Err(e)),
        Entry::NothingToDo => return then(data::check_any_error(&volume.inner.data)),
        Entry::AfterPhase => {
            let again = volume.clone();
            return volume.inner.engine.lifecycle.after_phase(Box::new(move || sync_then(&again, Lead::Once, then)));
        }
        Entry::Admitted(pass) => pass,
    };
    let inner = volume.inner.clone();
    let need = data::begin_sync(&inner.data);
    let end = move |outcome| {
        then(data::end_sync(&inner.data, outcome));
        drop(pass);
    };
    volume.inner.engine.journal.sync_then(need, lead, Box::new(end));
}
