//! The inner module of the Python package `quire`: the Rust library as classes. The package in `python/quire` gives
//! them the forms that Python has for files, walks and file systems.
//!
//! *Guarantees*: no call holds the interpreter while it reads or writes an image, so other threads go on. Nor does the
//! drop of a file or an image ([`detached`]). Errors are those of `OSError`, or of its subclasses in this module.

mod batch;
mod detached;
mod errors;
mod file;
mod image;
mod source;
mod trees;
mod values;

use pyo3::prelude::*;

#[pymodule]
fn _quire(m: &Bound<'_, PyModule>) -> PyResult<()> {
    errors::register(m)?;
    m.add_class::<image::Image>()?;
    m.add_class::<batch::Batch>()?;
    m.add_class::<file::RawFile>()?;
    m.add_class::<values::Stat>()?;
    m.add_class::<values::Usage>()?;
    m.add_class::<values::Info>()?;
    m.add_function(wrap_pyfunction!(image::open_image, m)?)?;
    m.add_function(wrap_pyfunction!(image::open_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(image::create_image, m)?)?;
    m.add_function(wrap_pyfunction!(trees::build_image, m)?)?;
    m.add("__version__", env!("CARGO_PKG_VERSION"))
}
