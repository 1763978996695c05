//! Batches: changes that happen together or not at all.
//!
//! *Guarantees*: a batch is ended by the thread that has begun it; another thread gets a `RuntimeError`. It is rolled
//! back when its thread ends.

use crate::errors::run;
use crate::image::Image;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

thread_local! {
    /// The batches that this thread has begun. They stay here, since the library does not let them leave their thread.
    static BEGUN: RefCell<HashMap<u64, quire::Batch>> = RefCell::default();
}

static NEXT: AtomicU64 = AtomicU64::new(0);

/// Changes that happen together or not at all.
#[pyclass(frozen, module = "quire")]
pub(crate) struct Batch {
    number: u64,
}

impl Batch {
    /// Ends the batch, without the interpreter.
    fn end(&self, py: Python<'_>, how: impl FnOnce(quire::Batch) -> quire::Result<()> + Send) -> PyResult<()> {
        let number = self.number;
        let ended = run(py, || match BEGUN.with_borrow_mut(|begun| begun.remove(&number)) {
            Some(batch) => how(batch).map(|()| true),
            None => Ok(false),
        })?;
        let why = "the batch has ended, or another thread has begun it";
        if ended { Ok(()) } else { Err(PyRuntimeError::new_err(why)) }
    }
}

#[pymethods]
impl Batch {
    /// Makes all changes durable, at once.
    fn commit(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, quire::Batch::commit)
    }

    /// Undoes all changes.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        self.end(py, quire::Batch::rollback)
    }
}

#[pymethods]
impl Image {
    /// Begins a batch. Calls of other threads wait until it has ended.
    fn begin(&self, py: Python<'_>) -> PyResult<Batch> {
        let fs = self.fs()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        run(py, || {
            let batch = fs.batch()?;
            BEGUN.with_borrow_mut(|begun| begun.insert(number, batch));
            Ok(())
        })?;
        Ok(Batch { number })
    }
}
