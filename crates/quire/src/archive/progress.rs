//! How far an import or export is, told to the caller, who may end it.

use crate::error::{Error, ErrorKind, Result};
use std::cell::Cell;
use std::fmt;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

/// An export tells of its data when so many bytes more are done.
const TOLD_BYTES: u64 = 1 << 20;

/// How far the reading of a tree is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Progress {
    /// False while a tree is only measured, for [`Size::Min`](super::Size::Min).
    pub writing: bool,
    /// Objects so far, hard links among them.
    pub objects: u64,
    /// Bytes of data so far.
    pub bytes: u64,
}

type Told = dyn Fn(Progress) -> ControlFlow<()> + Send + Sync;

/// Who is told.
#[derive(Clone, Default)]
pub(super) struct Watch(Option<Arc<Told>>);

impl Watch {
    pub(super) fn new(told: impl Fn(Progress) -> ControlFlow<()> + Send + Sync + 'static) -> Self {
        Watch(Some(Arc::new(told)))
    }

    /// # Errors
    /// Cancelled.
    pub(super) fn tell(&self, progress: Progress) -> Result<()> {
        match &self.0 {
            Some(told) if told(progress).is_break() => Err(Error::new(ErrorKind::Cancelled, "interrupted")),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Watch(set)" } else { "Watch(none)" })
    }
}

type ToldPath = dyn Fn(&Path) + Send + Sync;

/// Who is told what an archive cannot have.
#[derive(Clone, Default)]
pub(super) struct LeftOut(Option<Arc<ToldPath>>);

impl LeftOut {
    pub(super) fn new(told: impl Fn(&Path) + Send + Sync + 'static) -> Self {
        LeftOut(Some(Arc::new(told)))
    }

    pub(super) fn tell(&self, path: &Path) {
        if let Some(told) = &self.0 {
            told(path);
        }
    }
}

impl fmt::Debug for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "LeftOut(set)" } else { "LeftOut(none)" })
    }
}

/// What an export has done, told to the caller.
pub(super) struct Done<'w> {
    progress: Cell<Progress>,
    watch: &'w Watch,
}

impl<'w> Done<'w> {
    pub(super) fn new(watch: &'w Watch) -> Self {
        Done { progress: Cell::new(Progress { writing: true, ..Progress::default() }), watch }
    }

    /// # Errors
    /// Cancelled.
    pub(super) fn objects(&self, n: u64) -> Result<()> {
        let now = self.progress.get();
        self.progress.set(Progress { objects: now.objects + n, ..now });
        self.watch.tell(self.progress.get())
    }

    /// # Errors
    /// Cancelled.
    pub(super) fn bytes(&self, n: u64) -> Result<()> {
        let now = self.progress.get();
        let bytes = now.bytes + n;
        self.progress.set(Progress { bytes, ..now });
        if bytes / TOLD_BYTES == now.bytes / TOLD_BYTES { Ok(()) } else { self.watch.tell(self.progress.get()) }
    }
}
