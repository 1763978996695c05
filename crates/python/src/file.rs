//! Open files: bytes at a place. The package makes file objects of them.

use crate::detached::Detached;
use crate::errors::{closed, run};
use crate::values::Stat;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::{PyBufferError, PyMemoryError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use quire::File;
use std::sync::{Mutex, PoisonError};

/// An open file of an image.
#[pyclass(frozen, module = "quire")]
pub(crate) struct RawFile {
    /// `None`: closed.
    file: Mutex<Option<Detached<File>>>,
}

impl RawFile {
    pub(crate) fn new(file: File) -> Self {
        RawFile { file: Mutex::new(Some(Detached::new(file))) }
    }

    /// A handle for one call, so that calls of other threads do not wait for it.
    fn handle(&self) -> PyResult<Detached<File>> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.as_ref().map(|f| Detached::new(f.duplicate())).ok_or_else(closed)
    }
}

/// `len` zeros; a `MemoryError` if memory has no room for them.
fn zeros(len: usize) -> PyResult<Vec<u8>> {
    let mut data = Vec::new();
    data.try_reserve_exact(len).map_err(|_| PyMemoryError::new_err(format!("no memory for {len} bytes")))?;
    data.resize(len, 0);
    Ok(data)
}

/// The bytes of a buffer, which other threads may change while the library writes them.
fn copy_of(py: Python<'_>, buffer: &PyBuffer<u8>) -> PyResult<Vec<u8>> {
    let mut data = zeros(buffer.len_bytes())?;
    buffer.copy_to_slice(py, &mut data)?;
    Ok(data)
}

#[pymethods]
impl RawFile {
    /// At most `size` bytes from `offset` on.
    fn pread<'p>(&self, py: Python<'p>, size: usize, offset: u64) -> PyResult<Bound<'p, PyBytes>> {
        let file = self.handle()?;
        let left = run(py, || file.metadata())?.size.saturating_sub(offset);
        // A caller may ask for more than there is.
        let size = size.min(usize::try_from(left).unwrap_or(usize::MAX));
        let mut n = 0;
        let data = PyBytes::new_with(py, size, |data| {
            n = run(py, || file.read_at(data, offset))?;
            Ok(())
        })?;
        if n == size {
            return Ok(data);
        }
        // The file became shorter meanwhile.
        PyBytes::new_with(py, n, |part| {
            part.copy_from_slice(&data.as_bytes()[..n]);
            Ok(())
        })
    }

    /// Fills a buffer from `offset` on; the count is less than its size only at the end of the file.
    fn preadinto(&self, py: Python<'_>, buffer: PyBuffer<u8>, offset: u64) -> PyResult<usize> {
        let file = self.handle()?;
        let cells = buffer.as_mut_slice(py).ok_or_else(|| PyBufferError::new_err("a writable buffer is expected"))?;
        let mut data = zeros(cells.len())?;
        let n = run(py, || file.read_at(&mut data, offset))?;
        for (cell, byte) in cells.iter().zip(&data[..n]) {
            cell.set(*byte);
        }
        Ok(n)
    }

    /// Writes all bytes at `offset`.
    fn pwrite(&self, py: Python<'_>, data: PyBuffer<u8>, offset: u64) -> PyResult<usize> {
        let (file, data) = (self.handle()?, copy_of(py, &data)?);
        run(py, || file.write_at(&data, offset))?;
        Ok(data.len())
    }

    /// Writes all bytes at the end of the file, in one call of the library; returns where they end.
    fn append(&self, py: Python<'_>, data: PyBuffer<u8>) -> PyResult<u64> {
        let (file, data) = (self.handle()?, copy_of(py, &data)?);
        run(py, || file.append(&data))
    }

    fn truncate(&self, py: Python<'_>, size: u64) -> PyResult<()> {
        let file = self.handle()?;
        run(py, || file.set_len(size))
    }

    /// Makes the file durable.
    #[pyo3(signature = (data_only = false))]
    fn sync(&self, py: Python<'_>, data_only: bool) -> PyResult<()> {
        let file = self.handle()?;
        run(py, || if data_only { file.sync_data() } else { file.sync_all() })
    }

    fn stat(&self, py: Python<'_>) -> PyResult<Stat> {
        let file = self.handle()?;
        Ok(Stat::of(&run(py, || file.metadata())?))
    }

    /// The next range of data from `offset` on, as start and end; `None`: only a hole follows.
    fn next_data(&self, py: Python<'_>, offset: u64) -> PyResult<Option<(u64, u64)>> {
        let file = self.handle()?;
        run(py, || file.next_data(offset))
    }

    /// Gives a range space.
    fn allocate(&self, py: Python<'_>, offset: u64, size: u64) -> PyResult<()> {
        let file = self.handle()?;
        run(py, || file.allocate(offset, size))
    }

    /// Takes the space of a range away; it reads as zeros.
    fn punch_hole(&self, py: Python<'_>, offset: u64, size: u64) -> PyResult<()> {
        let file = self.handle()?;
        run(py, || file.punch_hole(offset, size))
    }

    fn close(&self) {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner).take();
        // After the lock is free, because the drop may wait for a batch of another thread.
        drop(file);
    }
}
