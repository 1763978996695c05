//! The functions of the SQLite that has loaded this library, out of `sqlite3_api_routines`:
//! <https://sqlite.org/loadext.html>.

use crate::abi::{Vfs, code};
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::transmute;

/// Places in `sqlite3_api_routines` (sqlite3ext.h), which only ever grows at its end.
mod place {
    pub(super) const LIBVERSION_NUMBER: usize = 67;
    pub(super) const MALLOC: usize = 68;
    pub(super) const VFS_FIND: usize = 141;
    pub(super) const VFS_REGISTER: usize = 142;
    pub(super) const VFS_UNREGISTER: usize = 143;
    pub(super) const LOG: usize = 167;
    pub(super) const URI_PARAMETER: usize = 189;
}

/// The first SQLite whose table has all of these places, 3.8.7, as `sqlite3_libversion_number` tells versions.
const OLDEST_VERSION: c_int = 3_008_007;

type Version = unsafe extern "C" fn() -> c_int;
type Malloc = unsafe extern "C" fn(c_int) -> *mut c_void;
type Find = unsafe extern "C" fn(*const c_char) -> *mut Vfs;
type Register = unsafe extern "C" fn(*mut Vfs, c_int) -> c_int;
type Unregister = unsafe extern "C" fn(*mut Vfs) -> c_int;
type Log = unsafe extern "C" fn(c_int, *const c_char, ...);
type UriParameter = unsafe extern "C" fn(*const c_char, *const c_char) -> *const c_char;

/// Functions of a SQLite.
#[derive(Clone, Copy)]
pub(crate) struct Api {
    malloc: Malloc,
    find: Find,
    register: Register,
    unregister: Unregister,
    log: Log,
    uri_parameter: UriParameter,
}

impl Api {
    /// Takes the functions out of a table. `None`: there is no table, or its SQLite is older than 3.8.7.
    ///
    /// # Safety
    /// `routines` is null or SQLite's table.
    pub(crate) unsafe fn new(routines: *const c_void) -> Option<Api> {
        if routines.is_null() {
            return None;
        }
        let table = routines.cast::<*const c_void>();
        // SAFETY: the table is one of function pointers; every SQLite has this place, and the others since
        // `OLDEST_VERSION`, with these types.
        unsafe {
            let version = transmute::<*const c_void, Version>(*table.add(place::LIBVERSION_NUMBER));
            if version() < OLDEST_VERSION {
                return None;
            }
            Some(Api {
                malloc: transmute::<*const c_void, Malloc>(*table.add(place::MALLOC)),
                find: transmute::<*const c_void, Find>(*table.add(place::VFS_FIND)),
                register: transmute::<*const c_void, Register>(*table.add(place::VFS_REGISTER)),
                unregister: transmute::<*const c_void, Unregister>(*table.add(place::VFS_UNREGISTER)),
                log: transmute::<*const c_void, Log>(*table.add(place::LOG)),
                uri_parameter: transmute::<*const c_void, UriParameter>(*table.add(place::URI_PARAMETER)),
            })
        }
    }

    /// A VFS by name; null for the default. `None`: there is none.
    pub(crate) fn find(&self, name: Option<&CStr>) -> Option<std::ptr::NonNull<Vfs>> {
        // SAFETY: the name is null or ends with a zero.
        std::ptr::NonNull::new(unsafe { (self.find)(name.map_or(std::ptr::null(), CStr::as_ptr)) })
    }

    /// # Safety
    /// `vfs` is valid until it is unregistered, or for ever.
    pub(crate) unsafe fn register(&self, vfs: *mut Vfs) -> c_int {
        // SAFETY: the caller's.
        unsafe { (self.register)(vfs, 0) }
    }

    /// # Safety
    /// `vfs` was registered, and no connection uses it.
    pub(crate) unsafe fn unregister(&self, vfs: *mut Vfs) {
        // SAFETY: the caller's. SQLite returns no error of it.
        unsafe { (self.unregister)(vfs) };
    }

    /// Writes to SQLite's log (`SQLITE_CONFIG_LOG`).
    pub(crate) fn log(&self, code: c_int, message: &str) {
        let bytes: Vec<u8> = message.bytes().filter(|b| *b != 0).collect();
        let message = CString::new(bytes).unwrap_or_default();
        // SAFETY: the format takes one text, which ends with a zero.
        unsafe { (self.log)(code, c"quire: %s".as_ptr(), message.as_ptr()) };
    }

    /// The value of a parameter of a database's URI.
    ///
    /// # Safety
    /// `name` is a database's, as SQLite has made it.
    pub(crate) unsafe fn uri_parameter(&self, name: *const c_char, parameter: &CStr) -> Option<CString> {
        // SAFETY: the caller's; what is found ends with a zero and lives as long as `name`.
        unsafe {
            let value = (self.uri_parameter)(name, parameter.as_ptr());
            (!value.is_null()).then(|| CStr::from_ptr(value).to_owned())
        }
    }

    /// A copy of a text that SQLite will free; null: no memory.
    pub(crate) fn text(&self, text: &CStr) -> *mut c_char {
        let bytes = text.to_bytes_with_nul();
        let Ok(len) = c_int::try_from(bytes.len()) else { return std::ptr::null_mut() };
        // SAFETY: `malloc` returns null or room for `len` bytes.
        unsafe {
            let to = (self.malloc)(len).cast::<u8>();
            if !to.is_null() {
                to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            }
            to.cast()
        }
    }

    /// What an entry point says when it fails.
    ///
    /// # Safety
    /// `to` is null or valid.
    pub(crate) unsafe fn fail(&self, to: *mut *mut c_char, message: &CStr) -> c_int {
        if !to.is_null() {
            // SAFETY: the caller's.
            unsafe { *to = self.text(message) };
        }
        code::ERROR
    }
}
