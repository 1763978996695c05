//! Atomic updates of files, begun on an open file and ended with it (the ioctls of F2FS, [`crate::ops`]).
//!
//! An update belongs to one handle: what is written through it is staged, and what is read through it shows that. The
//! kernel's page cache is shared by all who have the file open, so only a handle that bypasses the cache can have an
//! update. Which files are opened so is decided at OPEN, by [`AtomicWrites`].
//!
//! *Guarantees*: no page of the kernel's cache is older than a commit that was answered. The kernel drops cached pages
//! before it sends a write past the cache, so what it has of the file's old bytes it has read since the update began;
//! such reads are noted, and after the commit the kernel is told to drop the pages ([`Updates::commit`] says when).

use crate::fail::Fail;
use crate::fallbacks::Fallbacks;
use crate::policy::MAX_ASKED;
use quire_device::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use quire_device::sync::{Arc, Mutex, lock};
use quire_fs::{FileUpdate, Privileges, Volume};
use quire_layout::Ino;
use quire_layout::number_map::NumberMap;
use rustix::io::Errno;

/// Which files, opened for writing, bypass the kernel's cache so that they can be updated atomically.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AtomicWrites {
    /// None, and no program is told that files can be.
    Off,
    /// Those of which a program has asked whether they can be (F2FS_IOC_GET_FEATURES), from their next open on; but no
    /// database in WAL mode, because SQLite asks then, too, begins no update and needs the cache.
    #[default]
    Asked,
    /// All.
    All,
}

/// The updates under way.
#[derive(Default)]
pub(crate) struct Updates {
    pub(crate) fallbacks: Fallbacks,
    files: AtomicWrites,
    by_handle: Mutex<NumberMap<u64, Update>>,
    /// The number of entries of `by_handle`, for those who need not look.
    under_way: AtomicUsize,
    /// Files of which a program has asked, with their generations: a number is used again.
    asked: Mutex<NumberMap<Ino, u32>>,
    last_handle: AtomicU64,
}

struct Update {
    ino: Ino,
    /// `None` while it is being committed.
    staged: Arc<Mutex<Option<FileUpdate>>>,
    /// The kernel has read pages of the file into its cache meanwhile.
    read_by_kernel: bool,
}

impl Updates {
    pub(crate) fn new(files: AtomicWrites) -> Self {
        Updates { files, ..Updates::default() }
    }

    /// True if programs are told that files can be updated.
    pub(crate) fn are_offered(&self, volume: &Volume) -> bool {
        self.files != AtomicWrites::Off && FileUpdate::is_supported(volume)
    }

    /// A program asks whether this file can be updated atomically.
    ///
    /// # Errors
    /// The inode cannot be read.
    pub(crate) fn ask(&self, volume: &Volume, ino: Ino) -> Result<(), Fail> {
        let generation = volume.inode_flags().generation(ino)?;
        let mut asked = lock(&self.asked);
        if asked.len() >= MAX_ASKED {
            asked.clear();
        }
        asked.insert(ino, generation);
        Ok(())
    }

    /// True if a file that is opened for writing now is to bypass the kernel's cache.
    ///
    /// # Errors
    /// The inode cannot be read.
    pub(crate) fn bypasses_cache(&self, volume: &Volume, ino: Ino) -> Result<bool, Fail> {
        match self.files {
            AtomicWrites::Off => Ok(false),
            AtomicWrites::Asked => {
                let Some(generation) = lock(&self.asked).get(&ino).copied() else { return Ok(false) };
                let same = volume.inode_flags().generation(ino)? == generation;
                if !same {
                    lock(&self.asked).remove(&ino);
                }
                Ok(same && !is_in_wal_mode(volume, ino)?)
            }
            AtomicWrites::All => Ok(true),
        }
    }

    /// A number that no other open file has.
    pub(crate) fn new_handle(&self) -> u64 {
        self.last_handle.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Begins an update on an open file.
    ///
    /// # Errors
    /// Busy: the file has one.
    pub(crate) fn begin(&self, volume: &Volume, handle: u64, ino: Ino) -> Result<(), Fail> {
        let staged = Arc::new(Mutex::new(Some(FileUpdate::begin(volume, ino)?)));
        self.under_way.fetch_add(1, Ordering::SeqCst);
        lock(&self.by_handle).insert(handle, Update { ino, staged, read_by_kernel: false });
        Ok(())
    }

    fn of(&self, handle: u64) -> Option<Arc<Mutex<Option<FileUpdate>>>> {
        if self.under_way.load(Ordering::SeqCst) == 0 {
            return None;
        }
        lock(&self.by_handle).get(&handle).map(|u| u.staged.clone())
    }

    fn end(&self, handle: u64) -> Option<Update> {
        let update = lock(&self.by_handle).remove(&handle)?;
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        Some(update)
    }

    /// Stages a write; `None`: the handle has no update.
    pub(crate) fn write(&self, handle: u64, at: u64, bytes: &[u8], lost: Privileges) -> Option<Result<(), Fail>> {
        let staged = self.of(handle)?;
        let mut staged = lock(&staged);
        staged.as_mut().map(|update| Ok(update.write(at, bytes, lost)?))
    }

    /// Reads what the update's own program sees; `None`: the handle has no update.
    pub(crate) fn read(&self, handle: u64, at: u64, buf: &mut [u8]) -> Option<Result<usize, Fail>> {
        let staged = self.of(handle)?;
        let staged = lock(&staged);
        staged.as_ref().map(|update| Ok(update.read(at, buf)?))
    }

    /// The kernel is about to read pages of a file into its cache.
    pub(crate) fn kernel_reads(&self, ino: Ino) {
        if self.under_way.load(Ordering::SeqCst) > 0 {
            let mut all = lock(&self.by_handle);
            all.values_mut().filter(|u| u.ino == ino).for_each(|u| u.read_by_kernel = true);
        }
    }

    /// Ends the update of a handle: its bytes are the file's now, to be made durable by the caller. Returns true if the
    /// kernel's cache may hold older pages.
    ///
    /// # Errors
    /// Invalid: the handle has none. What kept the update from being the file's; then it is undone.
    pub(crate) fn commit(&self, handle: u64) -> Result<bool, Fail> {
        let staged = self.of(handle).ok_or(Fail::of(Errno::INVAL))?;
        let update = lock(&staged).take().ok_or(Fail::of(Errno::INVAL))?;
        let committed = update.commit();
        // Asked when the commit has happened: who reads later reads what it wrote.
        let read_by_kernel = self.end(handle).is_some_and(|u| u.read_by_kernel);
        committed?;
        Ok(read_by_kernel)
    }

    /// A handle is closed.
    pub(crate) fn close(&self, handle: u64) {
        self.abort(handle);
        self.fallbacks.end(handle);
    }

    /// Undoes the update of a handle, if it has one.
    pub(crate) fn abort(&self, handle: u64) {
        if self.under_way.load(Ordering::SeqCst) > 0 {
            drop(self.end(handle));
        }
    }
}

/// True for a database of SQLite whose header names WAL (its file format, section 1.3).
fn is_in_wal_mode(volume: &Volume, ino: Ino) -> Result<bool, Fail> {
    const MAGIC: &[u8] = b"SQLite format 3\0";
    const WRITE_VERSION: usize = 18;
    const WAL: u8 = 2;
    let mut head = [0; WRITE_VERSION + 1];
    let n = volume.read(ino, 0, &mut head)?;
    Ok(n == head.len() && head.starts_with(MAGIC) && head[WRITE_VERSION] == WAL)
}
