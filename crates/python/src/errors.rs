//! Errors of the library as exceptions.
//!
//! What POSIX has an errno for is the `OSError` that Python makes of it, such as `FileNotFoundError`, with the path as
//! `filename`. The rest are subclasses of `quire.QuireError`, itself an `OSError`.

use pyo3::create_exception;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use quire::{Error, ErrorKind};

create_exception!(quire, QuireError, PyOSError, "A failure that has no errno of its own.");
create_exception!(quire, CorruptError, QuireError, "A structure of the image breaks the rules of ext4.");
create_exception!(quire, NotExt4Error, QuireError, "No ext4 file system.");
create_exception!(quire, UnsupportedError, QuireError, "The image uses a feature that Quire does not have.");
create_exception!(quire, BatchTooLargeError, QuireError, "The changes of a batch do not fit into one transaction.");
create_exception!(quire, OutsideRootError, QuireError, "A name leads out of the tree.");
create_exception!(quire, BadInputError, QuireError, "A tar stream, an OCI layout or another input is malformed.");
create_exception!(quire, ToolError, QuireError, "mke2fs is missing or failed.");

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = m.py();
    m.add("QuireError", py.get_type::<QuireError>())?;
    m.add("CorruptError", py.get_type::<CorruptError>())?;
    m.add("NotExt4Error", py.get_type::<NotExt4Error>())?;
    m.add("UnsupportedError", py.get_type::<UnsupportedError>())?;
    m.add("BatchTooLargeError", py.get_type::<BatchTooLargeError>())?;
    m.add("OutsideRootError", py.get_type::<OutsideRootError>())?;
    m.add("BadInputError", py.get_type::<BadInputError>())?;
    m.add("ToolError", py.get_type::<ToolError>())
}

/// The exception for an error. It has the attributes `structure` and `block`, which are `None` where nothing is
/// damaged.
pub(crate) fn exception(py: Python<'_>, e: &Error) -> PyErr {
    let path = e.path().map(|p| p.as_os_str().to_owned());
    let mut what = e.to_string();
    if let Some(path) = e.path()
        && let Some(rest) = what.strip_prefix(&format!("{}: ", path.display()))
    {
        what = rest.to_owned();
    }
    let arguments = (e.errno(), what, path);
    let new = match e.kind() {
        ErrorKind::Corrupt => PyErr::new::<CorruptError, _>(arguments),
        ErrorKind::NotExt4 => PyErr::new::<NotExt4Error, _>(arguments),
        ErrorKind::Unsupported => PyErr::new::<UnsupportedError, _>(arguments),
        ErrorKind::BatchTooLarge => PyErr::new::<BatchTooLargeError, _>(arguments),
        ErrorKind::OutsideRoot => PyErr::new::<OutsideRootError, _>(arguments),
        ErrorKind::BadInput => PyErr::new::<BadInputError, _>(arguments),
        ErrorKind::Tool => PyErr::new::<ToolError, _>(arguments),
        _ => PyErr::new::<PyOSError, _>(arguments),
    };
    let value = new.value(py);
    // The classes have a dictionary; an exception without the two attributes is still the right one.
    let _ = value.setattr("structure", e.structure());
    let _ = value.setattr("block", e.block());
    new
}

/// The exception for the use of what was closed, as Python's own files have it.
pub(crate) fn closed() -> PyErr {
    PyValueError::new_err("operation on a closed image")
}

/// Runs a call of the library without the interpreter, so that other threads of Python go on.
pub(crate) fn run<T: Send>(py: Python<'_>, f: impl FnOnce() -> quire::Result<T> + Send) -> PyResult<T> {
    py.detach(f).map_err(|e| exception(py, &e))
}
