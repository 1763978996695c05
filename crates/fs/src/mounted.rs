//! What a mount wants to know of its volume, besides files.

use crate::volume::Volume;
use quire_device::sync::lock;
use quire_journal::JournalStats;

impl Volume {
    /// Why nothing may be written, if so: the mount, or an error since then.
    #[must_use]
    pub fn why_read_only(&self) -> Option<&'static str> {
        *lock(&self.inner.read_only)
    }

    /// The journal's figures since the mount.
    #[must_use]
    pub fn journal_stats(&self) -> JournalStats {
        self.inner.journal.stats()
    }
}
