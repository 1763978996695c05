//! Which way the data of a file goes, and what a write request is promised.
//!
//! Guarantees F16: where requests are whole, what is pending of a file fits one transaction, so that a round can make all of it
//! durable at once.

use super::state::{File, FileState};
use crate::error::Result;
use crate::options::Route;
use crate::volume::{Inner, Volume};
use quire_device::sync::MutexGuard;

impl Inner {
    /// True if a crash leaves each write request whole or absent, though data waits in pages.
    pub(crate) fn whole_requests(&self) -> bool {
        matches!(self.options.route, Route::Overwrite | Route::Auto) && self.journal.has_log()
    }
}

impl Volume {
    /// Bytes of a write request that is all or nothing after a crash, page-aligned; longer ones are split. `None`: the route
    /// promises nothing of the kind.
    #[must_use]
    pub fn atomic_bytes(&self) -> Option<usize> {
        let whole = self.inner.options.route == Route::Journal && self.inner.journal.has_log();
        (whole || self.inner.whole_requests()).then(|| self.request_bytes())
    }

    /// Locks a file for a write of `len` bytes. Where requests are whole, its pages that overwrite data, these included, take at most
    /// half a transaction; what is too much is written back first.
    pub(super) fn lock_with_room<'f>(&self, file: &'f File, len: usize) -> Result<MutexGuard<'f, FileState>> {
        let most = self.inner.journal.limit() / 2;
        let more = len / self.inner.sb.block_size().bytes() + 2;
        loop {
            let s = file.lock();
            // A request alone always fits: it takes half.
            if !self.inner.whole_requests() || s.overwrites() == 0 || s.overwrites() + more <= most {
                return Ok(s);
            }
            drop(s);
            self.write_back(file.ino, false)?;
        }
    }
}
