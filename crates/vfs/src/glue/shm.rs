//! The methods of `sqlite3_io_methods` on the shared memory of a write-ahead log.

use super::handle::{OpenFile, opened};
use crate::abi::{FileHead, code, shm_flag};
use crate::shm::LOCKS;
use quire::{Error, ErrorKind};
use std::ffi::{c_int, c_void};
use std::ptr;

fn invalid() -> Error {
    Error::new(ErrorKind::InvalidInput, "no such region or lock of shared memory")
}

pub(super) unsafe extern "C" fn map(
    file: *mut FileHead,
    index: c_int,
    bytes: c_int,
    make: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: SQLite's promises: the file is open, `out` is valid.
    let (open, out) = unsafe { (opened(file), &mut *out) };
    *out = ptr::null_mut();
    open.answer0(code::IOERR_SHMMAP, |f| {
        let (Ok(index), Ok(bytes)) = (usize::try_from(index), usize::try_from(bytes)) else { return Err(invalid()) };
        let OpenFile { file, shm, .. } = f;
        *out = file.node().shm.region(shm, index, bytes, make != 0).map_or(ptr::null_mut(), <*mut u64>::cast);
        Ok(())
    })
}

pub(super) unsafe extern "C" fn lock(file: *mut FileHead, first: c_int, n: c_int, flags: c_int) -> c_int {
    // SAFETY: SQLite's promise: the file is open.
    let open = unsafe { opened(file) };
    open.answer(code::IOERR_SHMLOCK, |f| {
        let (Ok(first), Ok(n)) = (usize::try_from(first), usize::try_from(n)) else { return Err(invalid()) };
        let which = first..first.saturating_add(n);
        if which.end > LOCKS {
            return Err(invalid());
        }
        let OpenFile { file, shm, .. } = f;
        let memory = &file.node().shm;
        if flags & shm_flag::UNLOCK != 0 {
            memory.unlock(shm, which);
            return Ok(code::OK);
        }
        let exclusive = flags & shm_flag::SHARED == 0;
        Ok(memory.lock(shm, which, exclusive).map_or(code::BUSY, |()| code::OK))
    })
}

pub(super) unsafe extern "C" fn barrier(file: *mut FileHead) {
    // SAFETY: SQLite's promise: the file is open.
    unsafe { opened(file) }.file.node().shm.barrier();
}

/// Whether the file is to be deleted does not matter: what nobody has mapped is gone.
pub(super) unsafe extern "C" fn unmap(file: *mut FileHead, _: c_int) -> c_int {
    // SAFETY: SQLite's promise: the file is open.
    let OpenFile { file, shm, .. } = unsafe { opened(file) };
    file.node().shm.unmap(shm);
    code::OK
}
