//! Where a tree comes from, and where it goes: a path of the host, or a file object of Python.

use crate::errors::exception;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use quire::archive::{Progress, Source};
use std::io::{self, Read, Write};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often long work looks for signals, which needs the interpreter.
const SIGNAL_CHECK: Duration = Duration::from_millis(50);

/// The exception that has ended a call of the library: one of a file object, or of a handler of a signal.
#[derive(Clone, Default)]
pub(crate) struct Raised(Arc<Mutex<Option<PyErr>>>);

impl Raised {
    fn set(&self, e: PyErr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
    }

    /// Ends work after a signal whose handler raises an exception, as Ctrl-C does.
    pub(crate) fn watch(&self) -> impl Fn(Progress) -> ControlFlow<()> + Send + Sync + 'static {
        let (raised, last) = (self.clone(), Mutex::new(Instant::now()));
        move |_| {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.elapsed() < SIGNAL_CHECK {
                return ControlFlow::Continue(());
            }
            *last = Instant::now();
            match Python::attach(|py| py.check_signals()) {
                Ok(()) => ControlFlow::Continue(()),
                Err(e) => {
                    raised.set(e);
                    ControlFlow::Break(())
                }
            }
        }
    }

    /// Runs a call of the library without the interpreter. If an exception has ended it, that one is raised.
    pub(crate) fn run<T: Send>(&self, py: Python<'_>, f: impl FnOnce() -> quire::Result<T> + Send) -> PyResult<T> {
        py.detach(f).map_err(|e| {
            let raised = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
            raised.unwrap_or_else(|| exception(py, &e))
        })
    }

    /// An exception as an error of a stream, until [`Raised::run`] raises it.
    fn stash(&self, e: PyErr) -> io::Error {
        let error = io::Error::other(e.to_string());
        self.set(e);
        error
    }
}

/// A path, or an object with `read` or `write` for bytes.
#[derive(FromPyObject)]
pub(crate) enum PathOrFile {
    Path(PathBuf),
    File(Py<PyAny>),
}

impl PathOrFile {
    pub(crate) fn source(self, py: Python<'_>, raised: &Raised) -> PyResult<Source> {
        match self {
            // "-" is a name for scripts of shells; here it is a file.
            PathOrFile::Path(path) if path.as_os_str() == "-" => Ok(Source::Tar(path)),
            PathOrFile::Path(path) => Source::detect(&path).map_err(|e| exception(py, &e)),
            PathOrFile::File(file) if file.bind(py).hasattr("read")? => {
                Ok(Source::Stream(Box::new(PyFile::new(file, raised))))
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
    raised: Raised,
}

/// Bytes that one call of the object's `read` is asked for.
const READ_BYTES: usize = 1 << 20;

impl PyFile {
    fn new(file: Py<PyAny>, raised: &Raised) -> PyFile {
        PyFile { file, rest: Vec::new(), at: 0, raised: raised.clone() }
    }

    pub(crate) fn writer(py: Python<'_>, file: Py<PyAny>, raised: &Raised) -> PyResult<PyFile> {
        if !file.bind(py).hasattr("write")? {
            return Err(PyTypeError::new_err("a path or an object with write() is expected"));
        }
        Ok(PyFile::new(file, raised))
    }
}

impl Read for PyFile {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.at == self.rest.len() {
            let data: PyResult<Vec<u8>> =
                Python::attach(|py| self.file.bind(py).call_method1("read", (READ_BYTES,))?.extract());
            self.rest = data.map_err(|e| self.raised.stash(e))?;
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
        match written.map_err(|e| self.raised.stash(e))? {
            None => Ok(bytes.len()),
            Some(n) if n <= bytes.len() => Ok(n),
            Some(_) => Err(self.raised.stash(PyValueError::new_err("write() returned more than it was given"))),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
