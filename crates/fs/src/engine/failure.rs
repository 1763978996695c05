//! What a volume does about an error of its disk: it records the error, and goes on, turns read-only, or stops.
//!
//! *Guarantees*: the superblock records an error of the disk as long as the volume can write. After an aborted journal,
//! or with `errors=remount-ro`, nothing is written any more, and every later call that would write returns an error.
//!
//! L1 (docs/invariants.md): a call that only reads is admitted in every phase, so it may meet an error while the image
//! is marked clean. Nothing is written behind that mark: the error is kept until calls are admitted again, or the
//! volume is closed.

use super::core::Engine;
use super::disk_error::DiskError;
use crate::error::Error;
use crate::records;
use crate::tables::Pool;
use quire_device::sync::lock;
use quire_device::{IoOp, Mutant};
use quire_journal::Error as JournalError;
use quire_layout::superblock::OnError;
use quire_layout::{BlockNo, Ino};

impl Engine {
    /// The policy of the mount, or else of the superblock. A superblock that asks for a panic gets a read-only volume:
    /// in the kernel a panic is the machine's choice, and an image must not end the process that reads it (H2).
    fn on_error(&self) -> OnError {
        self.context.runtime().on_error.unwrap_or_else(|| match self.context.sb.on_error() {
            OnError::Panic => OnError::RemountReadOnly,
            other => other,
        })
    }

    /// Records an error that an operation met on the disk and does what `errors=` says: corrupt metadata, metadata that
    /// cannot be read, file data that cannot be written. Errors of the caller, such as no such file or no space, have
    /// no effect.
    pub(crate) fn note_error(&self, e: &Error) {
        let bits = self.context.block_size().bits();
        let (ino, block) = match e {
            Error::Corrupt(c) => (Ino(0), c.block.unwrap_or(BlockNo(0))),
            // File data that cannot be read is an error of its reader, not of the file system.
            Error::Device(d) if d.op == IoOp::Read => return,
            Error::Device(d) => (Ino(0), BlockNo(d.at >> bits)),
            // A load of metadata. A write of the journal's that failed has aborted it, or is told by an fsync.
            Error::Journal(JournalError::Device(d)) if d.op == IoOp::Read && self.journal.failure().is_none() => {
                (Ino(0), BlockNo(d.at >> bits))
            }
            // The journal refuses what needs a transaction; other data would go on.
            Error::Journal(_) | Error::ReadOnly(_) => {
                if self.journal.failure().is_some() {
                    self.write_gate.turn_read_only("the journal was aborted");
                }
                return;
            }
            _ => return,
        };
        tracing::error!("{e}");
        if self.write_gate.check().is_err() {
            return;
        }
        let error = DiskError { ino, block, place: e.to_string() };
        // The phase of a freeze or unmount waits until this call leaves, too.
        if self.lifecycle.try_enter().is_ok() {
            self.record_and_obey(&error);
            self.lifecycle.leave();
        } else if Mutant::ErrorBehindMark.is_on() {
            self.record_and_obey(&error);
        } else {
            lock(&self.unrecorded).get_or_insert(error);
            if self.on_error() == OnError::Panic {
                stop();
            }
        }
    }

    /// Does what [`Engine::note_error`] could not do when the error was met. The caller is admitted, or is the phase
    /// itself, and the image is marked as in use.
    pub(crate) fn settle_error(&self) {
        let error = lock(&self.unrecorded).take();
        if let Some(error) = error {
            self.record_and_obey(&error);
        }
    }

    /// Records what was met while the volume was frozen, as the last thing before it is closed.
    pub(crate) fn record_late(&self) {
        let error = lock(&self.unrecorded).take();
        if let Some(error) = error {
            self.record_error(&error);
        }
    }

    pub(crate) fn has_unrecorded_error(&self) -> bool {
        lock(&self.unrecorded).is_some()
    }

    fn record_and_obey(&self, error: &DiskError) {
        let recorded = self.record_error(error);
        match self.on_error() {
            OnError::Continue => {}
            OnError::RemountReadOnly => {
                if recorded {
                    self.journal.commit_all().ok();
                }
                self.write_gate.turn_read_only("an error of the disk was met (errors=remount-ro)");
            }
            OnError::Panic => {
                if recorded {
                    self.journal.commit_all().ok();
                }
                stop();
            }
        }
    }

    /// Writes an error into the superblock; true if that succeeded.
    fn record_error(&self, DiskError { ino, block, place }: &DiskError) -> bool {
        let recorded = self.run_loop(Pool::User.into(), |op| {
            let secs = u64::try_from(op.now().secs).unwrap_or(0);
            records::superblock_mut(op)?.record_error(secs, *ino, *block, place);
            Ok(())
        });
        recorded.is_ok()
    }
}

fn stop() -> ! {
    tracing::error!("errors=panic: stopping");
    std::process::abort();
}
