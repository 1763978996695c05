//! Where a tree comes from, and where it goes: a path of the host, or a file object of Python.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use quire::archive::Source;
use std::io::{self, Read, Write};
use std::path::PathBuf;

/// A path, or an object with `read` or `write` for bytes.
#[derive(FromPyObject)]
pub(crate) enum PathOrFile {
    Path(PathBuf),
    File(Py<PyAny>),
}

impl PathOrFile {
    pub(crate) fn source(self, py: Python<'_>) -> PyResult<Source> {
        match self {
            // "-" is a name for scripts of shells; here it is a file.
            PathOrFile::Path(path) if path.as_os_str() == "-" => Ok(Source::Tar(path)),
            PathOrFile::Path(path) => Source::detect(&path).map_err(|e| crate::errors::exception(py, &e)),
            PathOrFile::File(file) if file.bind(py).hasattr("read")? => {
                Ok(Source::Stream(Box::new(PyFile { file, rest: Vec::new(), at: 0 })))
            }
            PathOrFile::File(_) => Err(PyTypeError::new_err("a path or an object with read() is expected")),
        }
    }
}

/// A file object as a stream.
pub(crate) struct PyFile {
    file: Py<PyAny>,
    /// What `read` has returned, and how much of it was taken.
    rest: Vec<u8>,
    at: usize,
}

/// Bytes that one call of the object's `read` is asked for.
const READ_BYTES: usize = 1 << 20;

impl PyFile {
    pub(crate) fn writer(py: Python<'_>, file: Py<PyAny>) -> PyResult<PyFile> {
        if !file.bind(py).hasattr("write")? {
            return Err(PyTypeError::new_err("a path or an object with write() is expected"));
        }
        Ok(PyFile { file, rest: Vec::new(), at: 0 })
    }
}

impl Read for PyFile {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.at == self.rest.len() {
            let data: PyResult<Vec<u8>> =
                Python::attach(|py| self.file.bind(py).call_method1("read", (READ_BYTES,))?.extract());
            self.rest = data.map_err(io::Error::other)?;
            self.at = 0;
        }
        let n = buf.len().min(self.rest.len() - self.at);
        buf[..n].copy_from_slice(&self.rest[self.at..self.at + n]);
        self.at += n;
        Ok(n)
    }
}

impl Write for PyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written: PyResult<Option<usize>> =
            Python::attach(|py| self.file.bind(py).call_method1("write", (PyBytes::new(py, bytes),))?.extract());
        // A raw file may write less, and tells how much; others return nothing, or the whole length.
        match written.map_err(io::Error::other)? {
            None => Ok(bytes.len()),
            Some(n) if n <= bytes.len() => Ok(n),
            Some(_) => Err(io::Error::other(PyValueError::new_err("write() returned more than it was given"))),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
