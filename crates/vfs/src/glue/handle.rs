//! What SQLite holds of this VFS: the description that is registered, and the head of an open file.

use crate::abi::{FileHead, IoMethods, Vfs, code};
use crate::api::Api;
use crate::failure::{code_of, remember};
use crate::locks::Level;
use crate::shm::ShmHandle;
use crate::storage::{Promises, Storage, StoredFile};
use quire::{Error, ErrorKind};
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

/// A registered VFS: what its `pAppData` points to.
pub(super) struct Registered {
    pub(super) api: Api,
    /// The VFS that was the default: temporary files, time, chance and libraries are its.
    pub(super) parent: NonNull<Vfs>,
    pub(super) storage: Box<dyn Storage>,
    pub(super) name: CString,
}

/// An open file, in the memory that SQLite has allocated for it.
#[repr(C)]
pub(super) struct FileSlot {
    pub(super) head: FileHead,
    pub(super) open: *mut OpenFile,
}

pub(super) struct OpenFile {
    pub(super) registered: &'static Registered,
    pub(super) file: Box<dyn StoredFile>,
    pub(super) promises: Promises,
    pub(super) level: Level,
    pub(super) shm: ShmHandle,
    /// `SQLITE_FCNTL_PERSIST_WAL`.
    pub(super) keeps_wal: bool,
    pub(super) last_errno: c_int,
}

/// The VFS behind a pointer of SQLite's.
///
/// # Safety
/// `vfs` is one that this library has registered.
pub(super) unsafe fn registered(vfs: *mut Vfs) -> &'static Registered {
    // SAFETY: the caller's. It lives until it is unregistered, when no connection uses it any more.
    unsafe { &*(*vfs).app_data.cast::<Registered>() }
}

/// The file behind a pointer of SQLite's.
///
/// # Safety
/// `file` was opened by this VFS. SQLite calls the methods of one file by one thread at a time.
pub(super) unsafe fn opened<'a>(file: *mut FileHead) -> &'a mut OpenFile {
    // SAFETY: the caller's.
    unsafe { &mut *(*file.cast::<FileSlot>()).open }
}

/// Puts an open file where SQLite wants it.
///
/// # Safety
/// `to` has room for a [`FileSlot`].
pub(super) unsafe fn fill(to: *mut FileHead, methods: &'static IoMethods, open: OpenFile) {
    // SAFETY: the caller's.
    unsafe {
        to.cast::<FileSlot>().write(FileSlot { head: FileHead { methods }, open: Box::into_raw(Box::new(open)) })
    };
}

/// Takes an open file back.
///
/// # Safety
/// As [`opened`]; SQLite calls no more methods of it.
pub(super) unsafe fn take(file: *mut FileHead) -> Box<OpenFile> {
    // SAFETY: the caller's; the box was made by `fill`.
    unsafe {
        (*file).methods = std::ptr::null();
        Box::from_raw((*file.cast::<FileSlot>()).open)
    }
}

impl Registered {
    /// Tells an error: to the log, and as this thread's last. Returns its code.
    pub(super) fn tell(&self, e: &Error, call: c_int) -> c_int {
        remember(e);
        let code = code_of(e, call);
        self.api.log(code, &e.to_string());
        code
    }

    /// A call of SQLite's: its errors become `call` or a code of their own, and a panic an error of the call.
    pub(super) fn answer(&self, call: c_int, body: impl FnOnce() -> Result<c_int, Error>) -> c_int {
        match catch_unwind(AssertUnwindSafe(body)) {
            Ok(Ok(code)) => code,
            Ok(Err(e)) => self.tell(&e, call),
            Err(_) => self.tell(&Error::new(ErrorKind::Io, "a defect of quire (it has panicked)"), call),
        }
    }
}

impl OpenFile {
    /// [`Registered::answer`] for a method of the file.
    pub(super) fn answer(&mut self, call: c_int, body: impl FnOnce(&mut Self) -> Result<c_int, Error>) -> c_int {
        let registered = self.registered;
        registered.answer(call, || body(self).inspect_err(|e| self.last_errno = e.errno()))
    }

    /// [`OpenFile::answer`] for a method that returns nothing.
    pub(super) fn answer0(&mut self, call: c_int, body: impl FnOnce(&mut Self) -> Result<(), Error>) -> c_int {
        self.answer(call, |f| body(f).map(|()| code::OK))
    }
}

/// Copies a text to a buffer of SQLite's, cut off at its end.
///
/// # Safety
/// `to` has room for `len` bytes.
pub(super) unsafe fn copy_text(text: &[u8], len: c_int, to: *mut c_char) {
    let Some(room) = usize::try_from(len).ok().filter(|room| *room > 0 && !to.is_null()) else { return };
    let n = text.len().min(room - 1);
    // SAFETY: the caller's; `n` bytes and a zero are at most `len`.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), n);
        *to.add(n) = 0;
    }
}
