//! From an error of the file system to SQLite's code, and what is kept of the last one for `xGetLastError`.

use crate::abi::code;
use quire::{Error, ErrorKind};
use std::cell::RefCell;
use std::ffi::c_int;

thread_local! {
    static LAST: RefCell<(c_int, String)> = const { RefCell::new((0, String::new())) };
}

/// SQLite's code for an error: what the kind says for itself, else what the failed call says.
pub(crate) fn code_of(e: &Error, call: c_int) -> c_int {
    let opening = call == code::CANTOPEN;
    match e.kind() {
        ErrorKind::NoSpace => code::FULL,
        ErrorKind::Busy => code::BUSY,
        ErrorKind::ReadOnly if !opening => code::READONLY,
        ErrorKind::Corrupt if !opening => code::IOERR_CORRUPTFS,
        _ => call,
    }
}

/// Keeps an error as this thread's last.
pub(crate) fn remember(e: &Error) {
    LAST.with(|last| *last.borrow_mut() = (e.errno(), e.to_string()));
}

/// This thread's last error: its number in Linux, and its words.
pub(crate) fn last() -> (c_int, String) {
    LAST.with(|last| last.borrow().clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_full_in_every_call_and_other_errors_are_the_calls_own() {
        let of = |kind, call| code_of(&Error::new(kind, "test"), call);
        for call in [code::CANTOPEN, code::IOERR_WRITE, code::IOERR_FSYNC, code::IOERR_TRUNCATE] {
            assert_eq!(of(ErrorKind::NoSpace, call), code::FULL);
            assert_eq!(of(ErrorKind::Busy, call), code::BUSY);
            assert_eq!(of(ErrorKind::Io, call), call);
        }
        assert_eq!(of(ErrorKind::Corrupt, code::IOERR_READ), code::IOERR_CORRUPTFS);
        assert_eq!(of(ErrorKind::Corrupt, code::CANTOPEN), code::CANTOPEN);
        assert_eq!(of(ErrorKind::ReadOnly, code::IOERR_WRITE), code::READONLY);
        assert_eq!(of(ErrorKind::ReadOnly, code::CANTOPEN), code::CANTOPEN);
    }
}
