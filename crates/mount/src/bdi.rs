//! How much the kernel reads ahead and holds back of this mount's file data: its `/sys/class/bdi` entry. Root's;
//! without it the kernel's defaults for FUSE stay, and nothing depends on it.
//!
//! What the kernel holds back of a file comes all at once when the file is closed, and the page of who appends and
//! fsyncs a little waits behind it: FUSE keeps one queue for what nobody waits for in particular. So the kernel may
//! hold back much, which is what a lone stream is fastest with, but only little while small changes are committed
//! often.

use quire_device::sync::atomic::{AtomicBool, Ordering};
use rustix::fs::Stat;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What it may hold back otherwise. Before Linux 6.2 there is no `strict_limit`.
const MUCH: &[(&str, &str)] = &[("max_ratio", "100"), ("strict_limit", "0")];
/// What it may hold back while commits come often, 8 MiB; it begins to write at half. Linux 6.2 and later: a share of
/// all memory would be coarse.
const LITTLE: &[(&str, &str)] = &[("max_bytes", "8388608"), ("strict_limit", "1")];

/// A mount's entry, from when it is known.
#[derive(Default)]
pub(crate) struct Bdi {
    entry: OnceLock<PathBuf>,
    little: AtomicBool,
}

impl Bdi {
    /// The entry of what is mounted on `dir` and answers. A FUSE mount's readahead and its share of dirty memory are
    /// small by default.
    pub(crate) fn found(&self, dir: &Path) {
        let Ok(stat) = rustix::fs::stat(dir) else { return };
        let Some(entry) = entry_of(&stat) else { return };
        set(&entry, &[("read_ahead_kb", "3072")]);
        set(&entry, MUCH);
        self.entry.set(entry).ok();
    }

    /// Lets the kernel hold back little, or much.
    pub(crate) fn hold_back(&self, little: bool) {
        if self.little.load(Ordering::Relaxed) == little {
            return;
        }
        let Some(entry) = self.entry.get() else { return };
        self.little.store(little, Ordering::Relaxed);
        set(entry, if little { LITTLE } else { MUCH });
    }
}

/// A block device's mount has an entry besides the device's own.
fn entry_of(stat: &Stat) -> Option<PathBuf> {
    let number = format!("/sys/class/bdi/{}:{}", rustix::fs::major(stat.st_dev), rustix::fs::minor(stat.st_dev));
    [format!("{number}-fuseblk"), number].into_iter().map(PathBuf::from).find(|p| p.exists())
}

/// Sets all of them, or those before the first that is refused.
fn set(entry: &Path, values: &[(&str, &str)]) {
    for (file, value) in values {
        let path = entry.join(file);
        if let Err(e) = std::fs::write(&path, value) {
            tracing::debug!("{}: {e}", path.display());
            return;
        }
    }
}
