//! From a mounted volume to a clean image: unmount, freeze, thaw, sync.
//!
//! Guarantees: after a successful [`Volume::close`] or [`Volume::freeze`] the image is plain ext4 and needs no recovery: everything is at
//! home and durable before the log is marked empty, and the log is empty before `needs_recovery` is cleared (O2).

use crate::choices::LogKind;
use crate::error::{Error, Result};
use crate::open::{mark_in_use, read_superblock, write_superblock};
use crate::volume::{Inner, Volume};
use quire_device::Mutant;
use quire_device::sync::atomic::Ordering;
use quire_device::sync::{lock, wait};
use quire_layout::features::{compat, incompat, ro_compat};
use quire_layout::superblock::state;

impl Volume {
    /// Unmounts: the image is clean afterwards. No other call may be under way, and none may follow.
    ///
    /// # Errors
    /// Something could not be made durable; the image then needs recovery, as after a crash.
    pub fn close(&self) -> Result<()> {
        if let Err(Error::Frozen) = self.inner.check_writable() {
            self.thaw()?; // What slipped in as the freeze began is still to be written.
        }
        if self.inner.check_writable().is_err() {
            return match self.inner.journal.failure() {
                Some(e) => Err(e.into()),
                None => Ok(()),
            };
        }
        self.forget_all();
        // Data that was lost is told, and does not keep the rest from being clean.
        let synced = self.sync();
        self.clean()?;
        *lock(&self.inner.read_only) = Some("unmounted");
        self.inner.stopped.store(true, Ordering::Release);
        synced
    }

    /// Brings the image into a clean, consistent state and keeps it there: operations that would change it wait for
    /// [`Volume::thaw`].
    ///
    /// # Errors
    /// As [`Volume::close`]; busy if frozen already.
    pub fn freeze(&self) -> Result<()> {
        self.inner.check_writable()?;
        self.free_doomed();
        self.write_back_all();
        {
            let mut frozen = lock(&self.inner.frozen);
            if *frozen {
                return Err(Error::Busy("the volume is frozen already".into()));
            }
            *frozen = true;
            self.inner.stopped.store(true, Ordering::Release);
        }
        self.inner.files.wait_for_rounds();
        let done = self.clean();
        if done.is_err() {
            self.unfreeze();
        }
        done
    }

    /// Ends a freeze.
    ///
    /// # Errors
    /// Invalid if the volume is not frozen; I/O.
    pub fn thaw(&self) -> Result<()> {
        if !*lock(&self.inner.frozen) {
            return Err(Error::Invalid("the volume is not frozen"));
        }
        let gate = self.inner.journal.gate();
        let mut sb = read_superblock(&**gate.device())?;
        let log = if self.inner.journal.has_log() {
            self.inner.options.choices().log().unwrap_or(LogKind::None)
        } else {
            LogKind::None
        };
        mark_in_use(&mut sb, log);
        write_superblock(gate, &mut sb)?;
        self.superblock_written();
        self.unfreeze();
        self.evict_unused();
        Ok(())
    }

    fn unfreeze(&self) {
        *lock(&self.inner.frozen) = false;
        let read_only = lock(&self.inner.read_only).is_some();
        self.inner.stopped.store(read_only, Ordering::Release);
        self.inner.thawed.notify_all();
    }

    /// Commits, writes home, empties the log, and marks the superblock clean.
    fn clean(&self) -> Result<()> {
        self.update_superblock()?;
        let journal = &self.inner.journal;
        if Mutant::RecoverClearedEarly.is_on() {
            let mut sb = read_superblock(&**journal.gate().device())?;
            let mut f = sb.features();
            f.incompat &= !incompat::RECOVER;
            sb.set_features(f);
            write_superblock(journal.gate(), &mut sb)?;
        }
        if Mutant::QuireBitClearedEarly.is_on() {
            let mut sb = read_superblock(&**journal.gate().device())?;
            let mut f = sb.features();
            f.incompat &= !incompat::QUIRE_LOG;
            sb.set_features(f);
            write_superblock(journal.gate(), &mut sb)?;
        }
        journal.commit_all()?;
        journal.checkpoint_all()?;
        // Nothing is in the log any more: the superblock at home is the newest.
        let mut sb = read_superblock(&**journal.gate().device())?;
        let mut f = sb.features();
        f.incompat &= !(incompat::RECOVER | incompat::QUIRE_LOG);
        // A freeze keeps files that are unlinked but open.
        if f.has_compat(compat::ORPHAN_FILE) && lock(&self.inner.state).orphans.file_is_empty() {
            f.ro_compat &= !ro_compat::ORPHAN_PRESENT;
        }
        sb.set_features(f);
        if !journal.has_log() && self.inner.was_valid {
            sb.set_state(sb.state() | state::VALID);
        }
        write_superblock(journal.gate(), &mut sb)
    }

    /// Counts that are only kept in memory go into the superblock with the last transaction.
    fn update_superblock(&self) -> Result<()> {
        self.run_quietly(|op| {
            let mut sb = op.superblock()?;
            sb.set_write_time(u64::try_from(op.now().secs).unwrap_or(0));
            op.state().alloc.put_totals(&mut sb);
            *op.superblock_mut()? = sb;
            Ok(())
        })
    }
}

impl Inner {
    /// Waits while the volume is frozen.
    pub(crate) fn wait_thawed(&self) {
        let mut frozen = lock(&self.frozen);
        while *frozen {
            frozen = wait(&self.thawed, frozen);
        }
    }
}
