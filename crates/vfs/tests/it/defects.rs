//! A defect of the storage under the VFS is an error of the call, and not the end of the program.

use quire_vfs::{OpenHow, Result, Storage, StoredFile};
use rusqlite::{Connection, ErrorCode, OpenFlags, ffi};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

struct Broken;

impl Storage for Broken {
    fn full_name(&self, name: &[u8], _: &dyn Fn(&CStr) -> Option<Vec<u8>>) -> Result<Vec<u8>> {
        Ok(name.to_vec())
    }

    fn open(&self, _: &[u8], _: OpenHow) -> Result<Box<dyn StoredFile>> {
        panic!("a defect");
    }

    fn delete(&self, _: &[u8], _: bool) -> Result<()> {
        panic!("a defect");
    }

    fn access(&self, _: &[u8], _: bool) -> Result<bool> {
        Ok(false)
    }
}

/// The functions of the bundled SQLite.
fn routines() -> *const c_void {
    static FOUND: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    unsafe extern "C" fn find(
        _: *mut ffi::sqlite3,
        _: *mut *mut c_char,
        routines: *const ffi::sqlite3_api_routines,
    ) -> c_int {
        FOUND.store(routines.cast_mut().cast(), Ordering::Release);
        ffi::SQLITE_OK
    }
    // SAFETY: the entry point stays valid while it is registered.
    unsafe { ffi::sqlite3_auto_extension(Some(find)) };
    Connection::open_in_memory().unwrap();
    // SAFETY: as above.
    unsafe { ffi::sqlite3_cancel_auto_extension(Some(find)) };
    FOUND.load(Ordering::Acquire)
}

#[test]
fn a_storage_that_panics_cannot_be_opened() {
    let name = c"broken";
    // SAFETY: the routines are those of the SQLite in this program; the connection ends before the registration.
    let registered = unsafe { quire_vfs::register(routines(), name, Box::new(Broken)) }.unwrap();
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let opened = Connection::open_with_flags_and_vfs("a.db", flags, name);
    let made = opened.and_then(|db| db.execute_batch("create table t(x)"));
    assert_eq!(made.unwrap_err().sqlite_error_code(), Some(ErrorCode::CannotOpen));
    drop(registered);
}
