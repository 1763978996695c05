//! Errors: a negative errno as the result, and the rest for the asking.
//!
//! *Guarantees*: [`guard`] is the only way out of a function that can fail, so each failure is recorded for its thread,
//! and a panic never crosses into C.

use libc::{c_char, c_int};
use quire::{Error, ErrorKind};
use std::cell::RefCell;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// What kind of failure an error is.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(non_camel_case_types)]
pub enum quire_error_kind {
    /// No failure.
    None = 0,
    NotFound = 1,
    Exists = 2,
    NotADirectory = 3,
    IsADirectory = 4,
    DirectoryNotEmpty = 5,
    TooManySymlinks = 6,
    /// A name leads out of the directory that was given as root.
    OutsideRoot = 7,
    NameTooLong = 8,
    TooManyLinks = 9,
    FileTooLarge = 10,
    InvalidInput = 11,
    /// The object is immutable, append-only, or not of a kind that allows this.
    NotPermitted = 12,
    /// The host refuses access.
    PermissionDenied = 13,
    NoAttribute = 14,
    /// The object was freed, or belongs to a batch that was rolled back.
    Stale = 15,
    NoSpace = 16,
    ReadOnly = 17,
    /// In use by another process, or frozen.
    Busy = 18,
    /// The changes of a batch do not fit into one transaction; none has happened.
    BatchTooLarge = 19,
    Unsupported = 20,
    /// A structure of the image breaks the rules of ext4.
    Corrupt = 21,
    NotExt4 = 22,
    /// A tar stream or another input is malformed.
    BadInput = 23,
    Io = 24,
    /// mke2fs is missing or failed.
    Tool = 25,
    /// A defect of libquire.
    Bug = 26,
}

/// The last failure of the calling thread. Its texts are valid until the thread's next call that fails.
#[repr(C)]
#[allow(non_camel_case_types)]
pub struct quire_error {
    pub kind: quire_error_kind,
    /// A positive errno.
    pub errnum: c_int,
    /// One line, with the path in front.
    pub message: *const c_char,
    /// The path that the failed call was about, or NULL.
    pub path: *const c_char,
    /// The on-disk structure that is damaged, such as "inode", or NULL.
    pub structure: *const c_char,
    /// The block of the image that is damaged, if has_block.
    pub block: u64,
    pub has_block: bool,
}

/// The texts that a [`quire_error`] points to.
struct Last {
    public: quire_error,
    _texts: [Option<CString>; 3],
}

thread_local! {
    static LAST: RefCell<Option<Box<Last>>> = const { RefCell::new(None) };
}

/// What went wrong in the calling thread's last call that failed. NULL: none has failed.
#[unsafe(no_mangle)]
pub extern "C" fn quire_last_error() -> *const quire_error {
    LAST.with_borrow(|last| last.as_ref().map_or(ptr::null(), |l| &raw const l.public))
}

/// An error, and its errno where C has one that the library does not tell apart.
pub(crate) struct Failure {
    error: Error,
    errno: c_int,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure { errno: error.errno(), error }
    }
}

impl Failure {
    pub(crate) fn with_errno(error: Error, errno: c_int) -> Self {
        Failure { error, errno }
    }
}

/// Runs the body of a function of the interface.
pub(crate) fn guard(f: impl FnOnce() -> Result<i64, Error>) -> i64 {
    guard_errno(|| f().map_err(Failure::from))
}

/// [`guard`] for a body with an errno of its own.
pub(crate) fn guard_errno(f: impl FnOnce() -> Result<i64, Failure>) -> i64 {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(value)) => value,
        Ok(Err(e)) => fail(kind_of(e.error.kind()), &e),
        Err(_) => {
            let e = Error::new(ErrorKind::Io, "a defect of libquire (it has panicked)");
            fail(quire_error_kind::Bug, &e.into())
        }
    }
}

/// [`guard`] for a function that returns 0 or an error.
pub(crate) fn guard0(f: impl FnOnce() -> Result<(), Error>) -> c_int {
    // Only errnos are negative, and they fit.
    c_int::try_from(guard(|| f().map(|()| 0))).unwrap_or(-libc::EIO)
}

fn fail(kind: quire_error_kind, failure: &Failure) -> i64 {
    let e = &failure.error;
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
        CString::new(&bytes[..end]).ok()
    };
    let texts = [
        text(e.to_string().as_bytes()),
        e.path().and_then(|p| text(p.as_os_str().as_bytes())),
        e.structure().and_then(|s| text(s.as_bytes())),
    ];
    let at = |n: usize| texts[n].as_ref().map_or(ptr::null(), |t| t.as_ptr());
    let public = quire_error {
        kind,
        errnum: failure.errno,
        message: at(0),
        path: at(1),
        structure: at(2),
        block: e.block().unwrap_or(0),
        has_block: e.block().is_some(),
    };
    LAST.set(Some(Box::new(Last { public, _texts: texts })));
    -i64::from(failure.errno)
}

fn kind_of(kind: ErrorKind) -> quire_error_kind {
    use quire_error_kind as Q;
    match kind {
        ErrorKind::NotFound => Q::NotFound,
        ErrorKind::Exists => Q::Exists,
        ErrorKind::NotADirectory => Q::NotADirectory,
        ErrorKind::IsADirectory => Q::IsADirectory,
        ErrorKind::DirectoryNotEmpty => Q::DirectoryNotEmpty,
        ErrorKind::TooManySymlinks => Q::TooManySymlinks,
        ErrorKind::OutsideRoot => Q::OutsideRoot,
        ErrorKind::NameTooLong => Q::NameTooLong,
        ErrorKind::TooManyLinks => Q::TooManyLinks,
        ErrorKind::FileTooLarge => Q::FileTooLarge,
        ErrorKind::InvalidInput => Q::InvalidInput,
        ErrorKind::NotPermitted => Q::NotPermitted,
        ErrorKind::PermissionDenied => Q::PermissionDenied,
        ErrorKind::NoAttribute => Q::NoAttribute,
        ErrorKind::Stale => Q::Stale,
        ErrorKind::NoSpace => Q::NoSpace,
        ErrorKind::ReadOnly => Q::ReadOnly,
        ErrorKind::Busy => Q::Busy,
        ErrorKind::BatchTooLarge => Q::BatchTooLarge,
        ErrorKind::Unsupported => Q::Unsupported,
        ErrorKind::Corrupt => Q::Corrupt,
        ErrorKind::NotExt4 => Q::NotExt4,
        ErrorKind::BadInput => Q::BadInput,
        ErrorKind::Tool => Q::Tool,
        _ => Q::Io,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_an_error_of_the_thread() {
        assert_eq!(guard(|| panic!("on purpose")), -i64::from(libc::EIO));
        // SAFETY: a failure is recorded, and stays until the next one of this thread.
        let last = unsafe { &*quire_last_error() };
        assert_eq!((last.kind, last.errnum, last.has_block), (quire_error_kind::Bug, libc::EIO, false));
        assert!(last.path.is_null());
    }

    #[test]
    fn an_error_has_its_path_and_number() {
        let e = Error::new(ErrorKind::NotFound, "no such file or directory").at("/a");
        assert_eq!(guard0(|| Err(e)), -libc::ENOENT);
        // SAFETY: as above; the texts end with a zero.
        let (message, path) = unsafe {
            let last = &*quire_last_error();
            (std::ffi::CStr::from_ptr(last.message), std::ffi::CStr::from_ptr(last.path))
        };
        assert_eq!(message.to_str().unwrap(), "/a: no such file or directory");
        assert_eq!(path.to_str().unwrap(), "/a");
    }
}
