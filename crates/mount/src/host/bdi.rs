//! How much the kernel reads ahead and keeps dirty of this mount's file data: its `/sys/class/bdi` entry, which goes
//! with the mount. Needs root; without it the kernel's defaults for FUSE stay.
//!
//! *Guarantees*: [`Bdi::undo`] leaves the entry as [`Bdi::of`] found it.
//!
//! The kernel's dirty pages of a file come all at once when the file is closed, and the page of a caller that appends
//! and fsyncs waits behind them: FUSE keeps one queue for background requests. So the kernel may keep many dirty pages,
//! with which a lone stream is fastest, but few while small changes are committed often, and never much more than
//! there is space for.

use crate::policy::DIRTY_BYTES_BESIDE_COMMITS;
use quire_device::sync::atomic::{AtomicU64, Ordering};
use std::path::{Path, PathBuf};

const READ_AHEAD: &[(&str, &str)] = &[("read_ahead_kb", "3072")];
/// What it may keep otherwise. Before Linux 6.2 there is no `strict_limit`.
const LARGE_SHARE: &[(&str, &str)] = &[("max_ratio", "100"), ("strict_limit", "0")];
/// No limit but the kernel's own.
const UNLIMITED: u64 = u64::MAX;
/// The file for a limit in bytes. Linux 6.2 and later: a share of all memory would be coarse.
const MAX_BYTES: &str = "max_bytes";

/// A mount's entry, if it has one.
pub(crate) struct Bdi {
    entry: Option<Entry>,
    /// What the kernel may keep now, in bytes.
    limit: AtomicU64,
}

struct Entry {
    dir: PathBuf,
    /// The files that are set, and what they held. A share of memory also sets a limit in bytes, and the other way
    /// round, so the share comes last.
    before: Vec<(&'static str, String)>,
    /// What the kernel keeps of all file systems together, in bytes.
    of_all: u64,
}

impl Bdi {
    /// The entry of the mount of this device number, as mountinfo has it. A FUSE mount's readahead and its share of
    /// dirty memory are small by default.
    pub(crate) fn of(device: Option<&str>) -> Self {
        let entry = device.and_then(entry_of).map(|dir| {
            let settings = READ_AHEAD.iter().chain(LARGE_SHARE.iter().rev());
            let before = settings.filter_map(|(file, _)| Some((*file, std::fs::read_to_string(dir.join(file)).ok()?)));
            let before = before.collect();
            set(&dir, READ_AHEAD);
            set(&dir, LARGE_SHARE);
            // With a share of 100 percent, the limit is that of all.
            let of_all = std::fs::read_to_string(dir.join(MAX_BYTES)).ok().and_then(|text| text.trim().parse().ok());
            Entry { dir, before, of_all: of_all.unwrap_or_default() }
        });
        Bdi { entry, limit: AtomicU64::new(UNLIMITED) }
    }

    /// Limits the dirty pages of the mount: to little while commits are frequent, else to what there is space for,
    /// given the free bytes.
    pub(crate) fn limit(&self, commits_are_frequent: bool, free: u64) {
        let Some(entry) = &self.entry else { return };
        let fits = quire_fs::may_hold_back(free);
        let limit = match commits_are_frequent {
            true => fits.min(DIRTY_BYTES_BESIDE_COMMITS),
            false if fits >= entry.of_all => UNLIMITED,
            false => fits,
        };
        if self.limit.swap(limit, Ordering::Relaxed) == limit {
            return;
        }
        match limit {
            UNLIMITED => set(&entry.dir, LARGE_SHARE),
            bytes => set(&entry.dir, &[(MAX_BYTES, &bytes.to_string()), ("strict_limit", "1")]),
        }
    }

    /// The mount is served on without these settings.
    pub(crate) fn undo(&self) {
        if let Some(Entry { dir, before, .. }) = &self.entry {
            before.iter().for_each(|setting| set(dir, &[(setting.0, setting.1.trim())]));
        }
    }
}

/// A block device's mount has an entry besides the device's own.
fn entry_of(device: &str) -> Option<PathBuf> {
    let number = format!("/sys/class/bdi/{device}");
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
