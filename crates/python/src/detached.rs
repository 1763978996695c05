//! Values of the library whose drop may wait.
//!
//! *Guarantees*: the drop of a [`Detached`] does not hold the interpreter. The drop of an open file waits until another
//! thread's batch has ended, and that thread needs the interpreter to end the batch.

use pyo3::prelude::*;
use std::ops::Deref;

/// A value that is dropped without the interpreter, whether the dropping thread is attached to it or not.
pub(crate) struct Detached<T: Send> {
    /// `None`: taken by [`Detached::into_inner`] or by the drop.
    value: Option<T>,
}

const IS_PRESENT: &str = "only into_inner and drop take the value";

impl<T: Send> Detached<T> {
    pub(crate) fn new(value: T) -> Self {
        Detached { value: Some(value) }
    }

    /// The value itself; the caller must drop it without the interpreter.
    pub(crate) fn into_inner(mut self) -> T {
        self.value.take().expect(IS_PRESENT)
    }
}

impl<T: Send> Deref for Detached<T> {
    type Target = T;
    fn deref(&self) -> &T {
        self.value.as_ref().expect(IS_PRESENT)
    }
}

impl<T: Send> Drop for Detached<T> {
    fn drop(&mut self) {
        let Some(value) = self.value.take() else { return };
        let mut value = Some(value);
        // Fails after the interpreter has ended. No thread of Python is left then that a drop could block.
        let _ = Python::try_attach(|py| py.detach(|| drop(value.take())));
    }
}
