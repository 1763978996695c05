//! How far an import or export is, told to the caller, who may end it.

use crate::error::{Error, ErrorKind, Result};
use std::cell::Cell;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fmt;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// An export tells of its data when so many bytes more are done.
const TOLD_BYTES: u64 = 1 << 20;
/// Names of attributes that an import tells of: an archive may have any number.
const MAX_TOLD_NAMES: usize = 100;

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

type ToldName = dyn Fn(&OsStr, &Path) + Send + Sync;

/// Who is told which extended attributes an import leaves out: of each name once.
#[derive(Clone, Default)]
pub(super) struct LeftOutNames {
    told: Option<Arc<ToldName>>,
    /// The names that were told.
    known: Arc<Mutex<HashSet<Vec<u8>>>>,
}

impl LeftOutNames {
    pub(super) fn new(told: impl Fn(&OsStr, &Path) + Send + Sync + 'static) -> Self {
        LeftOutNames { told: Some(Arc::new(told)), ..LeftOutNames::default() }
    }

    /// The same for another import.
    pub(super) fn anew(&self) -> Self {
        LeftOutNames { told: self.told.clone(), ..LeftOutNames::default() }
    }

    pub(super) fn tell(&self, name: &[u8], path: impl FnOnce() -> PathBuf) {
        let is_new = {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.len() < MAX_TOLD_NAMES && !known.contains(name) && known.insert(name.to_vec())
        };
        if !is_new {
            return;
        }
        let (name, path) = (OsStr::from_bytes(name), path());
        match &self.told {
            Some(told) => told(name, &path),
            None => tracing::warn!("{}: attribute {} is left out", path.display(), name.display()),
        }
    }
}

impl fmt::Debug for LeftOutNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.told.is_some() { "LeftOutNames(set)" } else { "LeftOutNames(none)" })
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;
    use std::sync::mpsc::channel;

    #[test]
    fn each_name_is_told_once_in_an_import_and_no_more_than_so_many() {
        let (sender, told) = channel();
        let names = LeftOutNames::new(move |name, path| sender.send((name.to_owned(), path.to_owned())).unwrap());
        for path in ["first", "second"] {
            names.clone().tell(b"btrfs.compression", || path.into());
        }
        let expected: [(OsString, PathBuf); 1] = [("btrfs.compression".into(), "first".into())];
        assert_eq!(told.try_iter().collect::<Vec<_>>(), expected);
        (0..2 * MAX_TOLD_NAMES).for_each(|n| names.tell(n.to_string().as_bytes(), || "f".into()));
        assert_eq!(told.try_iter().count(), MAX_TOLD_NAMES - 1);
        names.anew().tell(b"btrfs.compression", || "other".into());
        assert_eq!(told.try_iter().count(), 1);
    }
}
