//! How much the kernel reads ahead and holds back of this mount's file data: its `/sys/class/bdi` entry. Root's;
//! without it the kernel's defaults for FUSE stay, and nothing depends on it.
//!
//! What the kernel holds back of a file comes all at once when the file is closed, and the page of who appends and
//! fsyncs a little waits behind it: FUSE keeps one queue for what nobody waits for in particular. So the kernel may
//! hold back much, which is what a lone stream is fastest with, but only little while small changes are committed
//! often, and never much more than there is space for.

use quire_device::sync::atomic::{AtomicU64, Ordering};
use rustix::fs::Stat;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What it may hold back otherwise. Before Linux 6.2 there is no `strict_limit`.
const MUCH: &[(&str, &str)] = &[("max_ratio", "100"), ("strict_limit", "0")];
/// What it may hold back while commits come often, in bytes; it begins to write at half.
const LITTLE: u64 = 8 << 20;
/// No limit but the kernel's own.
const UNLIMITED: u64 = u64::MAX;
/// The file for a limit in bytes. Linux 6.2 and later: a share of all memory would be coarse.
const MAX_BYTES: &str = "max_bytes";

/// A mount's entry, from when it is known.
pub(crate) struct Bdi {
    entry: OnceLock<Entry>,
    /// What the kernel may hold back now.
    limit: AtomicU64,
}

struct Entry {
    dir: PathBuf,
    /// What the kernel holds back of all file systems together, in bytes.
    of_all: u64,
}

impl Default for Bdi {
    fn default() -> Self {
        Bdi { entry: OnceLock::new(), limit: AtomicU64::new(UNLIMITED) }
    }
}

impl Bdi {
    /// The entry of what is mounted on `dir` and answers. A FUSE mount's readahead and its share of dirty memory are
    /// small by default.
    pub(crate) fn found(&self, dir: &Path) {
        let Ok(stat) = rustix::fs::stat(dir) else { return };
        let Some(entry) = entry_of(&stat) else { return };
        set(&entry, &[("read_ahead_kb", "3072")]);
        set(&entry, MUCH);
        // With a share of 100 percent, the limit is that of all.
        let of_all = std::fs::read_to_string(entry.join(MAX_BYTES)).ok().and_then(|text| text.trim().parse().ok());
        self.entry.set(Entry { dir: entry, of_all: of_all.unwrap_or_default() }).ok();
    }

    /// Lets the kernel hold back little, or as much as there is space for, given the free bytes.
    pub(crate) fn hold_back(&self, little: bool, free: u64) {
        let Some(entry) = self.entry.get() else { return };
        let fits = quire_fs::may_hold_back(free);
        let limit = match little {
            true => fits.min(LITTLE),
            false if fits >= entry.of_all => UNLIMITED,
            false => fits,
        };
        if self.limit.swap(limit, Ordering::Relaxed) == limit {
            return;
        }
        match limit {
            UNLIMITED => set(&entry.dir, MUCH),
            bytes => set(&entry.dir, &[(MAX_BYTES, &bytes.to_string()), ("strict_limit", "1")]),
        }
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
