//! `xFileControl`: atomic updates, and what SQLite and programs ask of a file.

use super::handle::{OpenFile, opened};
use crate::abi::{FileHead, code, fcntl};
use quire::Error;
use std::ffi::{c_char, c_int, c_void};

pub(super) unsafe extern "C" fn file_control(file: *mut FileHead, what: c_int, arg: *mut c_void) -> c_int {
    // SAFETY: SQLite's promise: it is open.
    let open = unsafe { opened(file) };
    match what {
        fcntl::BEGIN_ATOMIC_WRITE => update(open, code::IOERR_BEGIN_ATOMIC, |f| f.file.begin_update()),
        fcntl::COMMIT_ATOMIC_WRITE => update(open, code::IOERR_COMMIT_ATOMIC, |f| f.file.commit_update()),
        fcntl::ROLLBACK_ATOMIC_WRITE => open.answer0(code::IOERR_ROLLBACK_ATOMIC, |f| {
            f.file.abort_update();
            Ok(())
        }),
        fcntl::VFSNAME => {
            let text = open.registered.api.text(&open.registered.name);
            // SAFETY: for this code the argument is a pointer to a text's.
            unsafe { *arg.cast::<*mut c_char>() = text };
            code::OK
        }
        fcntl::LOCKSTATE | fcntl::LAST_ERRNO | fcntl::POWERSAFE_OVERWRITE | fcntl::HAS_MOVED | fcntl::PERSIST_WAL => {
            // SAFETY: for these codes the argument is a pointer to an int.
            let arg = unsafe { &mut *arg.cast::<c_int>() };
            open.answer(code::IOERR_FSTAT, |f| number(f, what, arg).map(|()| code::OK))
        }
        _ => code::NOTFOUND,
    }
}

/// SQLite goes on with its journal after an error of the class IOERR only. So neither a full disk nor another update of
/// the file may say FULL or BUSY here: the journal finds out.
fn update(open: &mut OpenFile, call: c_int, body: impl FnOnce(&mut OpenFile) -> Result<(), Error>) -> c_int {
    let result = open.answer0(call, body);
    if result == code::OK { code::OK } else { call }
}

/// The codes whose argument is a number, asked for or set.
fn number(f: &mut OpenFile, what: c_int, arg: &mut c_int) -> Result<(), Error> {
    match what {
        fcntl::LOCKSTATE => *arg = f.level as c_int,
        fcntl::LAST_ERRNO => *arg = f.last_errno,
        fcntl::HAS_MOVED => *arg = f.file.has_moved()?.into(),
        // It cannot be turned off.
        fcntl::POWERSAFE_OVERWRITE => *arg = 1,
        _ => match *arg {
            n if n < 0 => *arg = f.keeps_wal.into(),
            n => f.keeps_wal = n != 0,
        },
    }
    Ok(())
}
