//! SQLite databases inside ext4 images, without mounting them: a VFS of the name `quire`.
//!
//! ```text
//! $ sqlite3
//! sqlite> .load ./libquire_vfs
//! sqlite> .open file:disk.img/app.db?vfs=quire
//! ```
//! A Rust program that is linked with a SQLite registers [`auto_extension`] with it, and brings its own file systems by
//! [`adopt`].
//!
//! *Guarantees* (docs/invariants.md): S1 to S4. *Relies on* the library `quire`, which has the image for itself.

mod abi;
mod api;
mod failure;
mod glue;
mod images;
mod locks;
mod node;
mod shm;
mod storage;

pub use glue::Registration;
pub use images::{Adopted, Images, adopt};
pub use node::{Node, Nodes};
pub use quire::{Error, ErrorKind, FileSystem, Result};
pub use storage::{Kind, OpenHow, Promises, Storage, StoredFile, Surroundings};

use abi::code;
use api::Api;
use std::collections::HashSet;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::sync::{Mutex, PoisonError};

/// The VFS's name.
pub const NAME: &CStr = c"quire";

/// Registers the VFS with the SQLite whose functions these are, once.
///
/// # Safety
/// `routines` is null or a `sqlite3_api_routines`.
unsafe fn register_once(routines: *const c_void) -> Option<()> {
    static KNOWN: Mutex<Option<HashSet<usize>>> = Mutex::new(None);
    // SAFETY: the caller's.
    let api = unsafe { Api::new(routines) }?;
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    if !known.contains(&routines.addr()) {
        // It stays registered as long as the process lives.
        std::mem::forget(glue::register(api, NAME.to_owned(), Box::new(Images))?);
        known.insert(routines.addr());
    }
    Some(())
}

/// The entry point by which SQLite loads `libquire_vfs.so`: <https://sqlite.org/loadext.html>.
///
/// # Safety
/// SQLite calls it, or a program that does as SQLite does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_quirevfs_init(
    _: *mut c_void,
    error: *mut *mut c_char,
    routines: *const c_void,
) -> c_int {
    // SAFETY: SQLite's promises: `routines` is its table, `error` is null or valid.
    unsafe {
        if register_once(routines).is_some() {
            return code::OK_LOAD_PERMANENTLY;
        }
        match Api::new(routines) {
            Some(api) => api.fail(error, c"quire: SQLite does not take the VFS"),
            None => code::ERROR,
        }
    }
}

/// What [`sqlite3_quirevfs_init`] does, for `sqlite3_auto_extension`: after the first connection that is opened, the
/// VFS is there.
///
/// # Safety
/// SQLite calls it, or a program that does as SQLite does.
pub unsafe extern "C" fn auto_extension(_: *mut c_void, _: *mut *mut c_char, routines: *const c_void) -> c_int {
    // SAFETY: SQLite's promise: `routines` is its table.
    if unsafe { register_once(routines) }.is_some() { code::OK } else { code::ERROR }
}

/// Registers a VFS of another name, over another storage.
///
/// # Errors
/// Unsupported: `routines` is null or of a SQLite before 3.8.7, or SQLite refuses.
///
/// # Safety
/// `routines` is null or the `sqlite3_api_routines` of a SQLite that stays in memory. When the registration is dropped,
/// no connection uses the VFS.
pub unsafe fn register(routines: *const c_void, name: &CStr, storage: Box<dyn Storage>) -> Result<Registration> {
    // SAFETY: the caller's.
    let api = unsafe { Api::new(routines) };
    let registered = api.and_then(|api| glue::register(api, CString::from(name), storage));
    registered.ok_or_else(|| Error::new(ErrorKind::Unsupported, "SQLite does not take the VFS"))
}
