//! What a volume does about an error of its disk: note it, and go on, turn read-only, or stop.
//!
//! Guarantees: an error of the disk is recorded in the superblock once the volume can still write; after an aborted journal, or
//! with `errors=remount-ro`, nothing is written any more and every later call that would write says so.

use crate::error::Error;
use crate::volume::{Inner, Volume};
use quire_device::sync::atomic::Ordering;
use quire_device::sync::lock;
use quire_layout::superblock::OnError;
use quire_layout::{BlockNo, Ino};

impl Inner {
    /// What the mount or the superblock says about errors.
    pub(crate) fn on_error(&self) -> OnError {
        self.options.on_error.unwrap_or_else(|| self.sb.on_error())
    }

    /// Nothing is written from now on. The first reason stays.
    pub(crate) fn turn_read_only(&self, why: &'static str) {
        let mut r = lock(&self.read_only);
        if r.is_none() {
            tracing::error!(why, "the volume is now read-only");
            *r = Some(why);
            self.stopped.store(true, Ordering::Release);
        }
    }
}

impl Volume {
    /// An operation met an error of the disk: records it and does what `errors=` says. Errors that are the
    /// caller's (no such file, no space) pass by.
    pub(crate) fn note_error(&self, e: &Error) {
        let (ino, block) = match e {
            Error::Corrupt(c) => (Ino(0), c.block.unwrap_or(BlockNo(0))),
            Error::Device(d) => (Ino(0), BlockNo(d.at >> self.inner.sb.block_size().bits())),
            Error::Journal(_) if self.inner.journal.failure().is_none() => return,
            Error::Journal(_) => return self.inner.turn_read_only("the journal was aborted"),
            _ => return,
        };
        tracing::error!("{e}");
        if self.inner.check_writable().is_err() {
            return;
        }
        let place = e.to_string();
        let recorded = self.run_quietly(|op| {
            let secs = u64::try_from(op.now().secs).unwrap_or(0);
            op.superblock_mut()?.record_error(secs, ino, block, &place);
            Ok(())
        });
        match self.inner.on_error() {
            OnError::Continue => {}
            OnError::RemountReadOnly => {
                if recorded.is_ok() {
                    self.inner.journal.commit_all().ok();
                }
                self.inner.turn_read_only("an error of the disk was met (errors=remount-ro)");
            }
            OnError::Panic => {
                if recorded.is_ok() {
                    self.inner.journal.commit_all().ok();
                }
                tracing::error!("errors=panic: stopping");
                std::process::abort();
            }
        }
    }
}
