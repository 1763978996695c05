//! Registering a VFS with a SQLite.

use super::handle::{FileSlot, Registered};
use super::vfs;
use crate::abi::{Vfs, code};
use crate::api::Api;
use crate::storage::Storage;
use std::ffi::{CString, c_int};
use std::ptr::{self, NonNull};

/// Bytes of a full name, at most. SQLite reads the name of a super-journal into a buffer of one page, whatever the VFS
/// says, and a page may have 512 bytes (`pager_playback`); its own VFS has this limit for the same reason.
const MAX_PATH: c_int = 512;

/// A registered VFS. Dropping it ends it: no connection may use it any more.
pub struct Registration {
    api: Api,
    vfs: NonNull<Vfs>,
    registered: NonNull<Registered>,
}

// SAFETY: SQLite reaches both from any thread. `Registered` is not changed, and its storage is `Sync`.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

/// Registers a VFS, not as the default. `None`: SQLite has no default VFS, or refuses.
pub(crate) fn register(api: Api, name: CString, storage: Box<dyn Storage>) -> Option<Registration> {
    let parent = api.find(None)?;
    // SAFETY: a registered VFS stays valid.
    let theirs = unsafe { parent.as_ref() };
    let own = c_int::try_from(size_of::<FileSlot>()).expect("a few words");
    let file_size = own.max(theirs.file_size);
    let registered = NonNull::from(Box::leak(Box::new(Registered { api, parent, storage, name })));
    let vfs = Vfs {
        version: if theirs.version >= 2 { 2 } else { 1 },
        file_size,
        max_path: MAX_PATH,
        next: ptr::null_mut(),
        // SAFETY: just made, and not changed later.
        name: unsafe { registered.as_ref() }.name.as_ptr(),
        app_data: registered.as_ptr().cast(),
        open: Some(vfs::open),
        delete: Some(vfs::delete),
        access: Some(vfs::access),
        full_pathname: Some(vfs::full_pathname),
        dl_open: theirs.dl_open.map(|_| vfs::dl_open as _),
        dl_error: theirs.dl_error.map(|_| vfs::dl_error as _),
        dl_sym: theirs.dl_sym.map(|_| vfs::dl_sym as _),
        dl_close: theirs.dl_close.map(|_| vfs::dl_close as _),
        randomness: Some(vfs::randomness),
        sleep: Some(vfs::sleep),
        current_time: Some(vfs::current_time),
        last_error: Some(vfs::last_error),
        current_time_int64: Some(vfs::current_time_int64),
    };
    let vfs = NonNull::from(Box::leak(Box::new(vfs)));
    let registration = Registration { api, vfs, registered };
    // SAFETY: it lives until `Registration` is dropped.
    let result = unsafe { api.register(vfs.as_ptr()) };
    (result == code::OK).then_some(registration)
}

impl Drop for Registration {
    fn drop(&mut self) {
        // SAFETY: both were leaked by `register` and belong to `self`; by the caller's promise no connection uses them.
        unsafe {
            self.api.unregister(self.vfs.as_ptr());
            drop(Box::from_raw(self.vfs.as_ptr()));
            drop(Box::from_raw(self.registered.as_ptr()));
        }
    }
}
