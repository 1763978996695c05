//! SQLite on the library: a VFS whose files are those of a volume's root. So a database runs on a file system without a
//! kernel between them, and on devices in virtual time ([`crate::rig`]), where the processor's time is charged as it is
//! used: what passes is what the devices take, and what the calling thread computes.
//!
//! For one connection: there are no locks, and no shared memory, so a write-ahead log needs `locking_mode=exclusive`.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{self, NonNull};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use quire_device::Clock;
use quire_device::sync::{Arc, Mutex, lock};
use quire_fs::{Cred, Error, New, NewKind, Volume, WriteFlags};
use quire_layout::Ino;
use rusqlite::ffi;
use rusqlite::{Connection, OpenFlags};

use super::pages::Pages;

/// The VFS, while it is registered.
pub struct Vfs {
    name: CString,
    /// Boxes, given to SQLite; owned here.
    vfs: NonNull<ffi::sqlite3_vfs>,
    shared: NonNull<Shared>,
}

// SAFETY: SQLite reaches both from any thread; `Shared` is `Sync`, and the description is not changed after it was
// registered.
unsafe impl Send for Vfs {}
// SAFETY: as above.
unsafe impl Sync for Vfs {}

/// What all files share.
struct Shared {
    volume: Volume,
    /// As on a mount.
    pages: Option<Mutex<Pages>>,
    charge: Charge,
    /// Of files that have no name.
    unnamed: Mutex<u64>,
    /// Blocks of files as they are touched, if somebody wants to know.
    trace: Mutex<Option<Vec<(Ino, u64)>>>,
}

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
        self.clock.sleep(Self::now().saturating_sub(before));
        self.start();
    }
}

/// An open file; SQLite allocates it.
#[repr(C)]
struct File {
    base: ffi::sqlite3_file,
    shared: *const Shared,
    ino: Ino,
}

static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(no_lock),
    xUnlock: Some(no_lock),
    xCheckReservedLock: Some(nobody_locks),
    xFileControl: Some(no_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

impl Vfs {
    /// Registers a volume under this name. `clock` is the volume's. Every write is the file system's at once, and what
    /// SQLite asks to be durable is made so by fsync, as SQLite itself does if it is not told to use fdatasync.
    ///
    /// # Errors
    /// SQLite refuses.
    pub fn new(name: &str, volume: Volume, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::make(name, volume, clock, false)
    }

    /// As [`Vfs::new`], with a page cache above the volume as a mount has, and fdatasync.
    ///
    /// # Errors
    /// SQLite refuses.
    pub fn like_a_mount(name: &str, volume: Volume, clock: Arc<dyn Clock>) -> Result<Self> {
        Self::make(name, volume, clock, true)
    }

    fn make(name: &str, volume: Volume, clock: Arc<dyn Clock>, mounted: bool) -> Result<Self> {
        let name = CString::new(name)?;
        let charge = Charge { clock, computed: Mutex::new(Duration::ZERO) };
        let shared = NonNull::from(Box::leak(Box::new(Shared {
            volume,
            pages: mounted.then(Mutex::default),
            charge,
            unnamed: Mutex::new(0),
            trace: Mutex::new(None),
        })));
        let vfs = NonNull::from(Box::leak(Box::new(ffi::sqlite3_vfs {
            iVersion: 1,
            szOsFile: c_int::try_from(size_of::<File>())?,
            mxPathname: 255,
            pNext: ptr::null_mut(),
            zName: name.as_ptr(),
            pAppData: shared.as_ptr().cast(),
            xOpen: Some(open),
            xDelete: Some(delete),
            xAccess: Some(access),
            xFullPathname: Some(full_path),
            xDlOpen: None,
            xDlError: None,
            xDlSym: None,
            xDlClose: None,
            xRandomness: Some(randomness),
            xSleep: Some(sleep),
            xCurrentTime: Some(current_time),
            xGetLastError: None,
            xCurrentTimeInt64: None,
            xSetSystemCall: None,
            xGetSystemCall: None,
            xNextSystemCall: None,
        })));
        let this = Vfs { name, vfs, shared };
        // SAFETY: the description lives until it is unregistered, in `drop`.
        let code = unsafe { ffi::sqlite3_vfs_register(this.vfs.as_ptr(), 0) };
        ensure!(code == ffi::SQLITE_OK, "SQLite does not take the VFS: {code}");
        Ok(this)
    }

    /// Opens a database. It must be closed before this is dropped.
    ///
    /// # Errors
    /// SQLite's.
    pub fn open(&self, db: &str) -> Result<Connection> {
        let connection = Connection::open_with_flags_and_vfs(db, OpenFlags::default(), self.name.as_c_str());
        let connection = connection.with_context(|| format!("cannot open {db}"))?;
        connection.pragma_update(None, "locking_mode", "exclusive")?;
        Ok(connection)
    }

    /// Begins a trace of the blocks that are touched; returns the one before.
    pub fn trace(&self) -> Vec<(Ino, u64)> {
        // SAFETY: it lives as long as `self`.
        let shared = unsafe { self.shared.as_ref() };
        lock(&shared.trace).replace(Vec::new()).unwrap_or_default()
    }

    /// What the database's thread has computed.
    #[must_use]
    pub fn charge(&self) -> &Charge {
        // SAFETY: it lives as long as `self`.
        unsafe { &self.shared.as_ref().charge }
    }
}

impl Drop for Vfs {
    fn drop(&mut self) {
        // SAFETY: both were leaked by `new` and are given to nobody else; no connection is open any more.
        unsafe {
            ffi::sqlite3_vfs_unregister(self.vfs.as_ptr());
            drop(Box::from_raw(self.vfs.as_ptr()));
            drop(Box::from_raw(self.shared.as_ptr()));
        }
    }
}

/// # Safety
/// `vfs` is one of [`Vfs::new`]'s.
unsafe fn shared<'a>(vfs: *mut ffi::sqlite3_vfs) -> &'a Shared {
    // SAFETY: the caller's; `Vfs` outlives its connections.
    unsafe { &*(*vfs).pAppData.cast::<Shared>() }
}

/// # Safety
/// `file` was opened by [`open`].
unsafe fn file<'a>(file: *mut ffi::sqlite3_file) -> (&'a Shared, Ino) {
    // SAFETY: the caller's; `Vfs` outlives its connections.
    unsafe {
        let file = &*file.cast::<File>();
        (&*file.shared, file.ino)
    }
}

/// A name as SQLite gives it, without the slash that `full_path` has put there.
///
/// # Safety
/// `name` ends with a zero.
unsafe fn name_of<'a>(name: *const c_char) -> &'a [u8] {
    // SAFETY: the caller's.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    name.strip_prefix(b"/").unwrap_or(name)
}

/// SQLite's code for an error of the file system.
fn code(e: &Error, otherwise: c_int) -> c_int {
    match e {
        Error::NoSpace => ffi::SQLITE_FULL,
        _ => otherwise,
    }
}

fn done<T>(result: Result<T, Error>, otherwise: c_int) -> c_int {
    result.map_or_else(|e| code(&e, otherwise), |_| ffi::SQLITE_OK)
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    to: *mut ffi::sqlite3_file,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite's promises: `vfs` is ours, `name` is null or ends with a zero, `to` has room for a `File`, `out`
    // is null or valid.
    unsafe {
        let s = shared(vfs);
        (*to).pMethods = ptr::null();
        let new = New { kind: NewKind::File, mode: 0o600, umask: 0, cred: Cred::default() };
        let found = if name.is_null() {
            let mut unnamed = lock(&s.unnamed);
            *unnamed += 1;
            s.volume.create_unnamed(Ino::ROOT, &new)
        } else {
            match s.volume.lookup(Ino::ROOT, name_of(name)) {
                Err(Error::NotFound) if flags & ffi::SQLITE_OPEN_CREATE != 0 => {
                    s.volume.create(Ino::ROOT, name_of(name), &new)
                }
                other => other,
            }
        };
        match found {
            Ok(attr) => {
                let to = to.cast::<File>();
                (*to).shared = s;
                (*to).ino = attr.ino;
                (*to).base.pMethods = &raw const METHODS;
                if !out.is_null() {
                    *out = flags;
                }
                ffi::SQLITE_OK
            }
            Err(e) => code(&e, ffi::SQLITE_CANTOPEN),
        }
    }
}

unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync_dir: c_int) -> c_int {
    // SAFETY: SQLite's promises, as for `open`.
    let (s, name) = unsafe { (shared(vfs), name_of(name)) };
    match s.volume.unlink(Ino::ROOT, name) {
        Ok(()) if sync_dir != 0 => done(s.volume.fsync(Ino::ROOT, false), ffi::SQLITE_IOERR_DIR_FSYNC),
        Err(Error::NotFound) => ffi::SQLITE_IOERR_DELETE_NOENT,
        other => done(other, ffi::SQLITE_IOERR_DELETE),
    }
}

unsafe extern "C" fn access(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, _: c_int, out: *mut c_int) -> c_int {
    // SAFETY: SQLite's promises, as for `open`.
    unsafe {
        let s = shared(vfs);
        let found = s.volume.lookup(Ino::ROOT, name_of(name));
        *out = c_int::from(found.is_ok());
        found.map_or(ffi::SQLITE_OK, |attr| {
            s.volume.forget(attr.ino, 1);
            ffi::SQLITE_OK
        })
    }
}

unsafe extern "C" fn full_path(_: *mut ffi::sqlite3_vfs, name: *const c_char, len: c_int, out: *mut c_char) -> c_int {
    // SAFETY: SQLite's promises: `name` ends with a zero, `out` has room for `len` bytes.
    unsafe {
        let name = name_of(name);
        if usize::try_from(len).is_ok_and(|len| name.len() + 2 > len) {
            return ffi::SQLITE_CANTOPEN;
        }
        *out.cast::<u8>() = b'/';
        ptr::copy_nonoverlapping(name.as_ptr(), out.cast::<u8>().add(1), name.len());
        *out.add(name.len() + 1) = 0;
    }
    ffi::SQLITE_OK
}

/// The same in every run.
unsafe extern "C" fn randomness(_: *mut ffi::sqlite3_vfs, len: c_int, out: *mut c_char) -> c_int {
    for n in 0..usize::try_from(len).unwrap_or(0) {
        // SAFETY: `out` has room for `len` bytes.
        unsafe { *out.cast::<u8>().add(n) = u8::try_from(n * 37 % 251).unwrap_or(0) };
    }
    len
}

unsafe extern "C" fn sleep(vfs: *mut ffi::sqlite3_vfs, us: c_int) -> c_int {
    // SAFETY: `vfs` is ours.
    unsafe { shared(vfs) }.charge.clock.sleep(Duration::from_micros(us.try_into().unwrap_or(0)));
    us
}

unsafe extern "C" fn current_time(vfs: *mut ffi::sqlite3_vfs, out: *mut f64) -> c_int {
    const JULIAN_DAY_OF_1970: f64 = 2_440_587.5;
    // SAFETY: `vfs` is ours, `out` is valid.
    unsafe { *out = JULIAN_DAY_OF_1970 + shared(vfs).charge.clock.realtime().as_secs_f64() / 86_400.0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn close(f: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: opened by `open`.
    let (s, ino) = unsafe { file(f) };
    let written = s.pages.as_ref().map_or(Ok(()), |pages| lock(pages).close(&s.volume, ino));
    s.volume.forget(ino, 1);
    done(written, ffi::SQLITE_IOERR_CLOSE)
}

unsafe extern "C" fn read(f: *mut ffi::sqlite3_file, to: *mut c_void, len: c_int, at: ffi::sqlite3_int64) -> c_int {
    // SAFETY: opened by `open`; `to` has room for `len` bytes.
    let ((s, ino), to) =
        unsafe { (file(f), std::slice::from_raw_parts_mut(to.cast::<u8>(), len.try_into().unwrap_or(0))) };
    s.touched(ino, at.unsigned_abs(), to.len());
    match s.read(ino, at.unsigned_abs(), to) {
        Ok(n) if n == to.len() => ffi::SQLITE_OK,
        Ok(n) => {
            to[n..].fill(0);
            ffi::SQLITE_IOERR_SHORT_READ
        }
        Err(e) => code(&e, ffi::SQLITE_IOERR_READ),
    }
}

unsafe extern "C" fn write(
    f: *mut ffi::sqlite3_file,
    from: *const c_void,
    len: c_int,
    at: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: opened by `open`; `from` has `len` bytes.
    let ((s, ino), from) =
        unsafe { (file(f), std::slice::from_raw_parts(from.cast::<u8>(), len.try_into().unwrap_or(0))) };
    s.touched(ino, at.unsigned_abs(), from.len());
    done(s.write(ino, at.unsigned_abs(), from), ffi::SQLITE_IOERR_WRITE)
}

unsafe extern "C" fn truncate(f: *mut ffi::sqlite3_file, size: ffi::sqlite3_int64) -> c_int {
    // SAFETY: opened by `open`.
    let (s, ino) = unsafe { file(f) };
    done(s.truncate(ino, size.unsigned_abs()), ffi::SQLITE_IOERR_TRUNCATE)
}

/// As SQLite's own: one kind, whatever it would be content with.
unsafe extern "C" fn sync(f: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    // SAFETY: opened by `open`.
    let (s, ino) = unsafe { file(f) };
    s.charge.pass();
    done(s.sync(ino), ffi::SQLITE_IOERR_FSYNC)
}

unsafe extern "C" fn file_size(f: *mut ffi::sqlite3_file, out: *mut ffi::sqlite3_int64) -> c_int {
    // SAFETY: opened by `open`; `out` is valid.
    unsafe {
        let (s, ino) = file(f);
        match s.size(ino) {
            Ok(size) => {
                *out = size.cast_signed();
                ffi::SQLITE_OK
            }
            Err(e) => code(&e, ffi::SQLITE_IOERR_FSTAT),
        }
    }
}

unsafe extern "C" fn no_lock(_: *mut ffi::sqlite3_file, _: c_int) -> c_int {
    ffi::SQLITE_OK
}

unsafe extern "C" fn nobody_locks(_: *mut ffi::sqlite3_file, out: *mut c_int) -> c_int {
    // SAFETY: `out` is valid.
    unsafe { *out = 0 };
    ffi::SQLITE_OK
}

unsafe extern "C" fn no_control(_: *mut ffi::sqlite3_file, _: c_int, _: *mut c_void) -> c_int {
    ffi::SQLITE_NOTFOUND
}

unsafe extern "C" fn sector_size(_: *mut ffi::sqlite3_file) -> c_int {
    4096
}

/// As on any other file system: what was not written stays.
unsafe extern "C" fn characteristics(_: *mut ffi::sqlite3_file) -> c_int {
    ffi::SQLITE_IOCAP_POWERSAFE_OVERWRITE
}
