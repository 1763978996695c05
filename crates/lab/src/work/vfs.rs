//! SQLite on a volume: the files of its root, by the VFS of `quire-vfs`. So a database runs on a file system without a
//! kernel between them, and on devices in virtual time ([`crate::rig`]), where the processor's time is charged as it is
//! used: what passes is what the devices take, and what the calling thread computes.
//!
//! What the product promises SQLite about its files is left out, so that SQLite works as on the papers' file systems.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use quire_device::Clock;
use quire_device::sync::{Arc, Mutex, lock};
use quire_fs::{Attr, Cred, Error, New, NewKind, Volume, WriteFlags};
use quire_layout::Ino;
use quire_vfs::{Node, Nodes, OpenHow, Promises, Registration, Storage, StoredFile, Surroundings};
use rusqlite::ffi;
use rusqlite::{Connection, OpenFlags};

use super::pages::Pages;

/// The VFS, while it is registered.
pub struct Vfs {
    name: CString,
    // Before what it uses.
    _registration: Registration,
    shared: Arc<Shared>,
}

/// What all files share.
struct Shared {
    volume: Volume,
    /// As on a mount.
    pages: Option<Mutex<Pages>>,
    charge: Charge,
    nodes: Nodes,
    /// Blocks of files as they are touched, if somebody wants to know.
    trace: Mutex<Option<Vec<(Ino, u64)>>>,
    /// Calls of fsync and fdatasync.
    syncs: AtomicU64,
}

/// What the names of logs end with. When one is new, SQLite on a mount syncs the directory after the file.
const LOGS: [&[u8]; 2] = [b"-journal", b"-wal"];

/// Bytes of a block of a trace.
const BLOCK: u64 = 4096;

impl Shared {
    fn read(&self, ino: Ino, at: u64, to: &mut [u8]) -> Result<usize, Error> {
        match &self.pages {
            Some(pages) => lock(pages).read(&self.volume, ino, at, to),
            None => self.volume.read(ino, at, to),
        }
    }

    fn write(&self, ino: Ino, at: u64, from: &[u8]) -> Result<(), Error> {
        match &self.pages {
            Some(pages) => lock(pages).write(&self.volume, ino, at, from),
            None => self.volume.write(ino, at, from, WriteFlags::default()).map(drop),
        }
    }

    fn truncate(&self, ino: Ino, size: u64) -> Result<(), Error> {
        if let Some(pages) = &self.pages {
            lock(pages).truncate(ino, size);
        }
        self.volume.truncate(ino, size)
    }

    fn sync(&self, ino: Ino) -> Result<(), Error> {
        self.syncs.fetch_add(1, Ordering::Relaxed);
        if let Some(pages) = &self.pages {
            lock(pages).write_back(&self.volume, ino)?;
        }
        self.volume.fsync(ino, self.pages.is_some())
    }

    fn size(&self, ino: Ino) -> Result<u64, Error> {
        let size = self.volume.getattr(ino)?.size;
        Ok(self.pages.as_ref().and_then(|pages| lock(pages).size(ino)).unwrap_or(size))
    }

    fn touched(&self, ino: Ino, at: u64, len: usize) {
        if let Some(trace) = &mut *lock(&self.trace) {
            trace.extend((at / BLOCK..(at + len as u64).div_ceil(BLOCK)).map(|b| (ino, b)));
        }
    }
}

/// A call costs [`FIXED_COST`] instead of what was computed since the last one.
static IS_FIXED: AtomicBool = AtomicBool::new(false);
/// About what SQLite and the file system compute between two calls.
const FIXED_COST: Duration = Duration::from_micros(10);

/// From now on computing costs each run in this process the same, and SQLite's random numbers are the same, so that two
/// runs find the same to the byte. Databases must run one at a time then.
pub fn fix_computing() {
    IS_FIXED.store(true, Ordering::Relaxed);
}

/// SQLite's random numbers, of which logs have salts, begin anew.
fn repeat_random_numbers() {
    const SEED: c_int = 1;
    let no_database: *mut ffi::sqlite3 = ptr::null_mut();
    // SAFETY: this control takes a number and a database, which may be none.
    unsafe { ffi::sqlite3_test_control(ffi::SQLITE_TESTCTRL_PRNG_SEED, SEED, no_database) };
}

/// Whether computing costs the same in each run.
#[must_use]
pub fn computing_is_fixed() -> bool {
    IS_FIXED.load(Ordering::Relaxed)
}

/// Lets the clock go on by what the calling thread has computed.
pub struct Charge {
    clock: Arc<dyn Clock>,
    /// Of the thread that runs the database.
    computed: Mutex<Duration>,
}

impl Charge {
    fn now() -> Duration {
        let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        Duration::new(t.tv_sec.try_into().unwrap_or(0), t.tv_nsec.try_into().unwrap_or(0))
    }

    /// Nothing is owed.
    pub fn start(&self) {
        *lock(&self.computed) = Self::now();
    }

    /// Lets what was computed since the last time pass.
    pub fn pass(&self) {
        let before = *lock(&self.computed);
        let computed = if computing_is_fixed() { FIXED_COST } else { Self::now().saturating_sub(before) };
        self.clock.sleep(computed);
        self.start();
    }
}

/// A name as SQLite gives it, without the slash that `full_name` has put there.
fn name_of(name: &[u8]) -> &[u8] {
    name.strip_prefix(b"/").unwrap_or(name)
}

const NEW: New<'static> = New { kind: NewKind::File, mode: 0o600, umask: 0, cred: Cred { uid: 0, gid: 0 } };

struct Root(Arc<Shared>);

impl Root {
    fn opened(&self, attr: &Attr, is_new_log: bool) -> Box<dyn StoredFile> {
        let node = self.0.nodes.of(attr.ino.0);
        Box::new(File { shared: self.0.clone(), ino: attr.ino, node, is_new_log: AtomicBool::new(is_new_log) })
    }
}

impl Storage for Root {
    fn full_name(&self, name: &[u8], _: &dyn Fn(&CStr) -> Option<Vec<u8>>) -> quire_vfs::Result<Vec<u8>> {
        Ok([b"/", name_of(name)].concat())
    }

    fn open(&self, name: &[u8], how: OpenHow) -> quire_vfs::Result<Box<dyn StoredFile>> {
        let (volume, name) = (&self.0.volume, name_of(name));
        match volume.lookup(Ino::ROOT, name) {
            Err(Error::NotFound) if how.create => {
                let is_log = LOGS.iter().any(|suffix| name.ends_with(suffix));
                Ok(self.opened(&volume.create(Ino::ROOT, name, &NEW)?, is_log))
            }
            found => Ok(self.opened(&found?, false)),
        }
    }

    fn open_unnamed(&self) -> Option<quire_vfs::Result<Box<dyn StoredFile>>> {
        let made = self.0.volume.create_unnamed(Ino::ROOT, &NEW);
        Some(made.map(|attr| self.opened(&attr, false)).map_err(Into::into))
    }

    fn delete(&self, name: &[u8], sync: bool) -> quire_vfs::Result<()> {
        self.0.volume.unlink(Ino::ROOT, name_of(name))?;
        if sync {
            self.0.volume.fsync(Ino::ROOT, false)?;
        }
        Ok(())
    }

    fn access(&self, name: &[u8], _: bool) -> quire_vfs::Result<bool> {
        let found = self.0.volume.lookup(Ino::ROOT, name_of(name));
        Ok(found.map(|attr| self.0.volume.forget(attr.ino, 1)).is_ok())
    }

    fn surroundings(&self) -> Option<&dyn Surroundings> {
        Some(&self.0.charge)
    }
}

impl Surroundings for Charge {
    fn sleep(&self, time: Duration) {
        self.clock.sleep(time);
    }

    fn realtime(&self) -> Duration {
        self.clock.realtime()
    }

    /// The same in every run.
    fn fill_random(&self, bytes: &mut [u8]) {
        bytes.iter_mut().enumerate().for_each(|(n, b)| *b = u8::try_from(n * 37 % 251).unwrap_or(0));
    }
}

struct File {
    shared: Arc<Shared>,
    ino: Ino,
    node: Arc<Node>,
    /// A log that was made here, whose name the first sync makes durable.
    is_new_log: AtomicBool,
}

impl StoredFile for File {
    fn node(&self) -> &Arc<Node> {
        &self.node
    }

    /// As on any other file system: no more than that what was not written stays.
    fn promises(&self) -> Promises {
        Promises::default()
    }

    fn may_write(&self) -> bool {
        true
    }

    fn read(&self, buf: &mut [u8], at: u64) -> quire_vfs::Result<usize> {
        self.shared.touched(self.ino, at, buf.len());
        Ok(self.shared.read(self.ino, at, buf)?)
    }

    fn write(&mut self, bytes: &[u8], at: u64) -> quire_vfs::Result<()> {
        self.shared.touched(self.ino, at, bytes.len());
        Ok(self.shared.write(self.ino, at, bytes)?)
    }

    fn truncate(&mut self, size: u64) -> quire_vfs::Result<()> {
        Ok(self.shared.truncate(self.ino, size)?)
    }

    fn sync(&self) -> quire_vfs::Result<()> {
        self.shared.charge.pass();
        self.shared.sync(self.ino)?;
        if self.shared.pages.is_some() && self.is_new_log.swap(false, Ordering::Relaxed) {
            self.shared.sync(Ino::ROOT)?;
        }
        Ok(())
    }

    fn size(&self) -> quire_vfs::Result<u64> {
        Ok(self.shared.size(self.ino)?)
    }

    fn has_moved(&self) -> quire_vfs::Result<bool> {
        Ok(false)
    }

    fn begin_update(&mut self) -> quire_vfs::Result<()> {
        Err(Error::NotSupported("atomic updates in the laboratory").into())
    }

    fn commit_update(&mut self) -> quire_vfs::Result<()> {
        Ok(())
    }

    fn abort_update(&mut self) {}

    fn close(self: Box<Self>) -> quire_vfs::Result<()> {
        let written = self.shared.pages.as_ref().map_or(Ok(()), |p| lock(p).close(&self.shared.volume, self.ino));
        Ok(written?)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        self.shared.volume.forget(self.ino, 1);
    }
}

/// The functions of the SQLite that this program is linked with, as SQLite hands them to an extension.
pub(crate) fn routines() -> *const c_void {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    static ONCE: OnceLock<()> = OnceLock::new();
    unsafe extern "C" fn find(
        _: *mut ffi::sqlite3,
        _: *mut *mut c_char,
        routines: *const ffi::sqlite3_api_routines,
    ) -> c_int {
        FOUND.store(routines.cast_mut().cast(), Ordering::Release);
        ffi::SQLITE_OK
    }
    ONCE.get_or_init(|| {
        // SAFETY: the entry point stays valid while it is registered.
        unsafe { ffi::sqlite3_auto_extension(Some(find)) };
        Connection::open_in_memory().ok();
        // SAFETY: as above.
        unsafe { ffi::sqlite3_cancel_auto_extension(Some(find)) };
    });
    FOUND.load(Ordering::Acquire)
}

impl Vfs {
    /// Registers a volume under a name of its own that begins so. `clock` is the volume's. Every write is the file
    /// system's at once, and what SQLite asks to be durable is made so by fsync, as SQLite itself does if it is not
    /// told to use fdatasync.
    ///
    /// # Errors
    /// SQLite refuses.
    pub fn new(name: &str, volume: Volume, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::make(name, volume, clock, false)
    }

    /// As [`Vfs::new`], with a page cache above the volume as a mount has, and fdatasync; the first sync
    /// of a new log is one of its directory, too.
    ///
    /// # Errors
    /// SQLite refuses.
    pub fn like_a_mount(name: &str, volume: Volume, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::make(name, volume, clock, true)
    }

    fn make(name: &str, volume: Volume, clock: Arc<dyn Clock>, mounted: bool) -> Result<Self> {
        // SQLite's list of VFSs is the process's, and several studies run in one at a time.
        static REGISTERED: AtomicU64 = AtomicU64::new(0);
        let name = CString::new(format!("{name}-{}", REGISTERED.fetch_add(1, Ordering::Relaxed)))?;
        if computing_is_fixed() {
            repeat_random_numbers();
        }
        let shared = Arc::new(Shared {
            volume,
            pages: mounted.then(Mutex::default),
            charge: Charge { clock, computed: Mutex::new(Duration::ZERO) },
            nodes: Nodes::default(),
            trace: Mutex::new(None),
            syncs: AtomicU64::new(0),
        });
        // SAFETY: SQLite is linked into this program; connections end before `Vfs` does ([`Vfs::open`]).
        let registered = unsafe { quire_vfs::register(routines(), &name, Box::new(Root(shared.clone()))) };
        let registration = registered.map_err(|e| anyhow!("{e}"))?;
        Ok(Vfs { name, _registration: registration, shared })
    }

    /// Opens a database, with SQLite's own locks (`locking_mode=normal`): a commit with a rollback journal writes the
    /// database's first page then, because its change counter is there. It must be closed before this is dropped.
    ///
    /// # Errors
    /// SQLite's.
    pub fn open(&self, db: &str) -> Result<Connection> {
        let connection = Connection::open_with_flags_and_vfs(db, OpenFlags::default(), self.name.as_c_str());
        connection.with_context(|| format!("cannot open {db}"))
    }

    /// Begins a trace of the blocks that are touched; returns the one before.
    pub fn trace(&self) -> Vec<(Ino, u64)> {
        lock(&self.shared.trace).replace(Vec::new()).unwrap_or_default()
    }

    /// How often SQLite has called fsync and fdatasync.
    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.shared.syncs.load(Ordering::Relaxed)
    }

    /// What the database's thread has computed.
    #[must_use]
    pub fn charge(&self) -> &Charge {
        &self.shared.charge
    }
}
