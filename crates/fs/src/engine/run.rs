//! Running operations: for callers, for writeback, and for the volume's own work.

use super::core::{Engine, Manner, Misses};
use crate::error::{Error, Result};
use crate::tables::Pool;
use crate::txn::Op;
use quire_layout::Tid;

impl Engine {
    /// Runs an operation, on the account of a user without privilege. Errors of the disk are recorded.
    ///
    /// # Errors
    /// The operation's; nothing has then changed.
    pub(crate) fn run<T>(&self, f: impl FnMut(&mut Op<'_>) -> Result<T>) -> Result<T> {
        self.run_as(Pool::User, f).map(|(value, _)| value)
    }

    /// Runs an operation in a manner. Returns also the transaction that the changes joined.
    ///
    /// # Errors
    /// As [`Engine::run`]; a miss, if it is to be told.
    pub(crate) fn run_as<T>(
        &self,
        manner: impl Into<Manner>,
        mut f: impl FnMut(&mut Op<'_>) -> Result<T>,
    ) -> Result<(T, Tid)> {
        let mut manner = manner.into();
        let mut damage = None;
        loop {
            let error = match self.run_loop(manner, &mut f) {
                Ok(done) => return Ok(done),
                // Without the damage there might have been room.
                Err(Error::NoSpace | Error::NoInodes | Error::ReadOnly(_)) if damage.is_some() => {
                    return Err(damage.expect("looked at"));
                }
                Err(Error::NoSpace | Error::NoInodes) if self.tables().space.try_unread_again() => continue,
                Err(e) => e,
            };
            self.note_error(&error);
            // The operation goes round a group whose bitmap it has found damaged, or could not read (A9).
            let is_damage = match &error {
                Error::Corrupt(_) => true,
                Error::Journal(quire_journal::Error::Device(e)) => {
                    self.avoid_unreadable(e);
                    true
                }
                _ => false,
            };
            if !is_damage || !self.tables().space.take_new_distrust() {
                return Err(error);
            }
            damage = Some(error);
            // A caller that makes the call again would not know of it.
            manner.misses = Misses::Load;
        }
    }

    /// Makes a transaction durable; an error aborts the journal and is recorded.
    ///
    /// # Errors
    /// The commit failed, now or earlier.
    pub(crate) fn commit(&self, tid: Tid) -> Result<()> {
        self.journal.commit(tid).map_err(crate::error::Error::from).inspect_err(|e| self.note_error(e))
    }

    /// Makes all that was changed durable; an error aborts the journal and is recorded.
    ///
    /// # Errors
    /// As [`Engine::commit`].
    pub(crate) fn commit_all(&self) -> Result<()> {
        self.journal.commit_all().map_err(crate::error::Error::from).inspect_err(|e| self.note_error(e))
    }

    /// Metadata blocks that one step of a long change touches at most.
    pub(crate) fn step_budget(&self) -> usize {
        crate::policy::step_budget(self.journal.limit())
    }
}
