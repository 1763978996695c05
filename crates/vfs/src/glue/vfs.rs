//! The methods of `sqlite3_vfs`.

use super::file::METHODS;
use super::handle::{OpenFile, copy_text, fill, registered};
use crate::abi::{ACCESS_READWRITE, FileHead, Symbol, Vfs, code, open as flag};
use crate::failure::last;
use crate::locks::Level;
use crate::shm::ShmHandle;
use crate::storage::{Kind, OpenHow, Promises};
use quire::{Error, ErrorKind};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::time::Duration;

/// A parameter of a database's URI: with `off`, SQLite keeps its rollback journal.
const ATOMIC_WRITES: &CStr = c"atomic_writes";

/// A Julian day as SQLite counts it in milliseconds: 1970-01-01.
const EPOCH_MILLIS: i64 = 210_866_760_000_000;
const DAY_MILLIS: f64 = 86_400_000.0;

pub(super) unsafe extern "C" fn open(
    vfs: *mut Vfs,
    name: *const c_char,
    to: *mut FileHead,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: SQLite's promises: `vfs` is ours, `name` is null or ends with a zero, `to` has room for the larger of our
    // slot and the parent's, `out` is null or valid.
    unsafe {
        let r = registered(vfs);
        (*to).methods = std::ptr::null();
        r.answer(code::CANTOPEN, || {
            let file = if name.is_null() {
                match r.storage.open_unnamed() {
                    Some(file) => file?,
                    // The parent puts its own methods in, and this VFS hears no more of the file.
                    None => {
                        let open = r.parent.as_ref().open;
                        return Ok(open.map_or(code::CANTOPEN, |f| f(r.parent.as_ptr(), name, to, flags, out)));
                    }
                }
            } else {
                r.storage.open(CStr::from_ptr(name).to_bytes(), how(flags))?
            };
            if !out.is_null() {
                let read_only = (flags & !(flag::READWRITE | flag::CREATE)) | flag::READONLY;
                *out = if flags & flag::READWRITE != 0 && !file.may_write() { read_only } else { flags };
            }
            let mut promises = file.promises();
            if flags & flag::MAIN_DB != 0 && r.api.uri_parameter(name, ATOMIC_WRITES).is_some_and(|v| *v == *c"off") {
                promises = Promises { whole_write_bytes: 0, updates: false, ..promises };
            }
            let (level, shm) = (Level::None, ShmHandle::default());
            fill(to, &METHODS, OpenFile { registered: r, file, promises, level, shm, keeps_wal: false, last_errno: 0 });
            Ok(code::OK)
        })
    }
}

fn how(flags: c_int) -> OpenHow {
    let has = |bit| flags & bit != 0;
    OpenHow {
        write: has(flag::READWRITE),
        create: has(flag::CREATE),
        exclusive: has(flag::EXCLUSIVE),
        delete_on_close: has(flag::DELETE_ON_CLOSE),
        kind: match () {
            () if has(flag::MAIN_DB) => Kind::Database,
            () if has(flag::MAIN_JOURNAL | flag::WAL) => Kind::Journal,
            () => Kind::Other,
        },
    }
}

pub(super) unsafe extern "C" fn delete(vfs: *mut Vfs, name: *const c_char, sync_dir: c_int) -> c_int {
    // SAFETY: SQLite's promises, as for `open`.
    let (r, name) = unsafe { (registered(vfs), CStr::from_ptr(name)) };
    let call = if sync_dir == 0 { code::IOERR_DELETE } else { code::IOERR_DIR_FSYNC };
    r.answer(call, || match r.storage.delete(name.to_bytes(), sync_dir != 0) {
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(code::IOERR_DELETE_NOENT),
        other => other.map(|()| code::OK),
    })
}

pub(super) unsafe extern "C" fn access(vfs: *mut Vfs, name: *const c_char, what: c_int, out: *mut c_int) -> c_int {
    // SAFETY: SQLite's promises, as for `open`; `out` is valid.
    let (r, name, out) = unsafe { (registered(vfs), CStr::from_ptr(name), &mut *out) };
    *out = 0;
    r.answer(code::IOERR_ACCESS, || {
        *out = c_int::from(r.storage.access(name.to_bytes(), what == ACCESS_READWRITE)?);
        Ok(code::OK)
    })
}

pub(super) unsafe extern "C" fn full_pathname(
    vfs: *mut Vfs,
    name: *const c_char,
    len: c_int,
    to: *mut c_char,
) -> c_int {
    // SAFETY: SQLite's promises: `name` is a database's name, `to` has room for `len` bytes.
    let (r, bytes) = unsafe { (registered(vfs), CStr::from_ptr(name).to_bytes()) };
    r.answer(code::CANTOPEN, || {
        // SAFETY: as above.
        let parameter = |p: &CStr| unsafe { r.api.uri_parameter(name, p) }.map(|v| v.into_bytes());
        let full = r.storage.full_name(bytes, &parameter)?;
        if usize::try_from(len).is_ok_and(|room| full.len() >= room) {
            return Err(Error::new(ErrorKind::NameTooLong, "the path of image and database is too long"));
        }
        // SAFETY: as above.
        unsafe { copy_text(&full, len, to) };
        Ok(code::OK)
    })
}

pub(super) unsafe extern "C" fn randomness(vfs: *mut Vfs, len: c_int, to: *mut c_char) -> c_int {
    // SAFETY: SQLite's promises: `vfs` is ours, `to` has room for `len` bytes.
    unsafe {
        let r = registered(vfs);
        match (r.storage.surroundings(), usize::try_from(len)) {
            (Some(s), Ok(n)) => {
                s.fill_random(std::slice::from_raw_parts_mut(to.cast(), n));
                len
            }
            _ => r.parent.as_ref().randomness.map_or(0, |f| f(r.parent.as_ptr(), len, to)),
        }
    }
}

pub(super) unsafe extern "C" fn sleep(vfs: *mut Vfs, micros: c_int) -> c_int {
    // SAFETY: `vfs` is ours.
    unsafe {
        let r = registered(vfs);
        match r.storage.surroundings() {
            Some(s) => {
                s.sleep(Duration::from_micros(micros.try_into().unwrap_or(0)));
                micros
            }
            None => r.parent.as_ref().sleep.map_or(0, |f| f(r.parent.as_ptr(), micros)),
        }
    }
}

fn julian_millis(since_1970: Duration) -> i64 {
    EPOCH_MILLIS.saturating_add(i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX))
}

pub(super) unsafe extern "C" fn current_time(vfs: *mut Vfs, out: *mut f64) -> c_int {
    // SAFETY: `vfs` is ours, `out` is valid.
    unsafe {
        let r = registered(vfs);
        match r.storage.surroundings() {
            Some(s) => {
                #[allow(clippy::cast_precision_loss, reason = "SQLite's type for a time")]
                let millis = julian_millis(s.realtime()) as f64;
                *out = millis / DAY_MILLIS;
                code::OK
            }
            None => r.parent.as_ref().current_time.map_or(code::ERROR, |f| f(r.parent.as_ptr(), out)),
        }
    }
}

pub(super) unsafe extern "C" fn current_time_int64(vfs: *mut Vfs, out: *mut i64) -> c_int {
    // SAFETY: `vfs` is ours, `out` is valid. It is called only if the parent has it, too.
    unsafe {
        let r = registered(vfs);
        match r.storage.surroundings() {
            Some(s) => {
                *out = julian_millis(s.realtime());
                code::OK
            }
            None => r.parent.as_ref().current_time_int64.map_or(code::ERROR, |f| f(r.parent.as_ptr(), out)),
        }
    }
}

pub(super) unsafe extern "C" fn last_error(_: *mut Vfs, len: c_int, to: *mut c_char) -> c_int {
    let (errno, words) = last();
    // SAFETY: SQLite's promise: `to` has room for `len` bytes, or is null.
    unsafe { copy_text(words.as_bytes(), len, to) };
    errno
}

pub(super) unsafe extern "C" fn dl_open(vfs: *mut Vfs, name: *const c_char) -> *mut c_void {
    // SAFETY: `vfs` is ours; the rest is for the parent, which has the method (see `register`).
    unsafe {
        let r = registered(vfs);
        r.parent.as_ref().dl_open.map_or(std::ptr::null_mut(), |f| f(r.parent.as_ptr(), name))
    }
}

pub(super) unsafe extern "C" fn dl_error(vfs: *mut Vfs, len: c_int, to: *mut c_char) {
    // SAFETY: as `dl_open`.
    unsafe {
        let r = registered(vfs);
        if let Some(f) = r.parent.as_ref().dl_error {
            f(r.parent.as_ptr(), len, to);
        }
    }
}

pub(super) unsafe extern "C" fn dl_sym(vfs: *mut Vfs, library: *mut c_void, name: *const c_char) -> Symbol {
    // SAFETY: as `dl_open`.
    unsafe {
        let r = registered(vfs);
        r.parent.as_ref().dl_sym.and_then(|f| f(r.parent.as_ptr(), library, name))
    }
}

pub(super) unsafe extern "C" fn dl_close(vfs: *mut Vfs, library: *mut c_void) {
    // SAFETY: as `dl_open`.
    unsafe {
        let r = registered(vfs);
        if let Some(f) = r.parent.as_ref().dl_close {
            f(r.parent.as_ptr(), library);
        }
    }
}
