//! The methods of `sqlite3_io_methods`.
//!
//! | characteristic | why it holds |
//! |---|---|
//! | `ATOMIC512` .. `ATOMIC64K` | a write request is whole or absent after a crash (F16) |
//! | `SAFE_APPEND` | sizes join a transaction only when the data that they uncover is complete (F8) |
//! | `POWERSAFE_OVERWRITE` | a crash changes no byte beside those that were written |
//! | `BATCH_ATOMIC` | an atomic update of a file is whole or absent after a crash (F22) |
//! | `SUBPAGE_READ` | any range can be read |
//!
//! `SEQUENTIAL` is not promised: without a sync, writes to different files may become durable in any order.

use super::control;
use super::handle::{OpenFile, opened, take};
use super::shm;
use crate::abi::{FileHead, IoMethods, code, iocap};
use crate::locks::Level;
use quire::{Error, ErrorKind};
use std::ffi::{c_int, c_void};
use std::slice;

pub(super) static METHODS: IoMethods = IoMethods {
    version: 2,
    close: Some(close),
    read: Some(read),
    write: Some(write),
    truncate: Some(truncate),
    sync: Some(sync),
    file_size: Some(file_size),
    lock: Some(lock),
    unlock: Some(unlock),
    check_reserved_lock: Some(check_reserved_lock),
    file_control: Some(control::file_control),
    sector_size: Some(sector_size),
    device_characteristics: Some(device_characteristics),
    shm_map: Some(shm::map),
    shm_lock: Some(shm::lock),
    shm_barrier: Some(shm::barrier),
    shm_unmap: Some(shm::unmap),
};

/// Bytes that SQLite takes for a sector: those of the file system's block, mostly.
const SECTOR_BYTES: c_int = 4096;

unsafe extern "C" fn close(file: *mut FileHead) -> c_int {
    // SAFETY: SQLite's promise: it is open, and this is its last call.
    let open = unsafe { take(file) };
    let OpenFile { registered, file, mut level, mut shm, .. } = *open;
    registered.answer(code::IOERR_CLOSE, || {
        file.node().shm.unmap(&mut shm);
        file.node().locks.lower(&mut level, Level::None);
        file.close().map(|()| code::OK)
    })
}

/// An offset or a size of SQLite's.
fn place(n: i64) -> Result<u64, Error> {
    u64::try_from(n).map_err(|_| Error::new(ErrorKind::InvalidInput, "a negative offset"))
}

unsafe extern "C" fn read(file: *mut FileHead, to: *mut c_void, len: c_int, at: i64) -> c_int {
    // SAFETY: SQLite's promises: it is open, `to` has room for `len` bytes.
    let (open, to) = unsafe { (opened(file), slice::from_raw_parts_mut(to.cast::<u8>(), len.try_into().unwrap_or(0))) };
    open.answer(code::IOERR_READ, |f| {
        let n = f.file.read(to, place(at)?)?;
        // SQLite takes the rest for zeros.
        to[n..].fill(0);
        Ok(if n == to.len() { code::OK } else { code::IOERR_SHORT_READ })
    })
}

unsafe extern "C" fn write(file: *mut FileHead, from: *const c_void, len: c_int, at: i64) -> c_int {
    // SAFETY: SQLite's promises: it is open, `from` has `len` bytes.
    let (open, from) = unsafe { (opened(file), slice::from_raw_parts(from.cast::<u8>(), len.try_into().unwrap_or(0))) };
    open.answer0(code::IOERR_WRITE, |f| f.file.write(from, place(at)?))
}

unsafe extern "C" fn truncate(file: *mut FileHead, size: i64) -> c_int {
    // SAFETY: SQLite's promise: it is open.
    unsafe { opened(file) }.answer0(code::IOERR_TRUNCATE, |f| f.file.truncate(place(size)?))
}

/// Data, and what is needed to read it, whatever SQLite would be content with: as its own VFS.
unsafe extern "C" fn sync(file: *mut FileHead, _: c_int) -> c_int {
    // SAFETY: SQLite's promise: it is open.
    unsafe { opened(file) }.answer0(code::IOERR_FSYNC, |f| f.file.sync())
}

unsafe extern "C" fn file_size(file: *mut FileHead, out: *mut i64) -> c_int {
    // SAFETY: SQLite's promises: it is open, `out` is valid.
    let (open, out) = unsafe { (opened(file), &mut *out) };
    open.answer0(code::IOERR_FSTAT, |f| {
        *out = i64::try_from(f.file.size()?).unwrap_or(i64::MAX);
        Ok(())
    })
}

unsafe extern "C" fn lock(file: *mut FileHead, wanted: c_int) -> c_int {
    // SAFETY: SQLite's promise: it is open.
    let open = unsafe { opened(file) };
    open.answer(code::IOERR, |f| {
        let wanted = Level::from_number(wanted).ok_or_else(|| Error::new(ErrorKind::InvalidInput, "no such lock"))?;
        let OpenFile { file, level, .. } = f;
        Ok(file.node().locks.raise(level, wanted).map_or(code::BUSY, |()| code::OK))
    })
}

unsafe extern "C" fn unlock(file: *mut FileHead, wanted: c_int) -> c_int {
    // SAFETY: SQLite's promise: it is open.
    let open = unsafe { opened(file) };
    open.answer0(code::IOERR, |f| {
        let wanted = if wanted == Level::None as c_int { Level::None } else { Level::Shared };
        let OpenFile { file, level, .. } = f;
        file.node().locks.lower(level, wanted);
        Ok(())
    })
}

unsafe extern "C" fn check_reserved_lock(file: *mut FileHead, out: *mut c_int) -> c_int {
    // SAFETY: SQLite's promises: it is open, `out` is valid.
    let (open, out) = unsafe { (opened(file), &mut *out) };
    open.answer0(code::IOERR, |f| {
        *out = f.file.node().locks.is_reserved().into();
        Ok(())
    })
}

unsafe extern "C" fn sector_size(_: *mut FileHead) -> c_int {
    SECTOR_BYTES
}

unsafe extern "C" fn device_characteristics(file: *mut FileHead) -> c_int {
    // SAFETY: SQLite's promise: it is open.
    let promises = unsafe { opened(file) }.promises;
    // The bit of twice the size is the next one.
    let whole = (0..8).filter(|n| 512 << n <= promises.whole_write_bytes).map(|n| iocap::ATOMIC512 << n).sum::<c_int>();
    let bit = |holds, bit| if holds { bit } else { 0 };
    whole
        | bit(promises.safe_append, iocap::SAFE_APPEND)
        | bit(promises.updates, iocap::BATCH_ATOMIC)
        | bit(promises.subpage_reads, iocap::SUBPAGE_READ)
        | iocap::POWERSAFE_OVERWRITE
}
