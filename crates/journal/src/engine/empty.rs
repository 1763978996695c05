//! Background checkpoints, and emptying the log.
//!
//! Guarantees L3: while an [`EmptyLog`] lives, the log is empty and no transaction is committed to it.

use super::leader::Leader;
use super::nvram_space::NvramSpace;
use super::shared::Shared;
use super::space::LogSpace;
use crate::error::Error;
use crate::log::Log;
use crate::policy::CHECKPOINT_PART;
use quire_device::Mutant;
use quire_device::sync::lock;
use std::time::Duration;

/// Proof that the log is empty and everything that was committed is at home and durable: no transaction is written to
/// the log before it is dropped (L3).
pub struct EmptyLog<'j> {
    _leader: Option<Leader<'j>>,
}

impl Shared {
    /// One step of background work: a checkpoint of some of the log, where it is wanted. True if it did something.
    pub(crate) fn checkpoint_step(&self) -> Result<bool, Error> {
        let Some(log) = &self.log else { return Ok(false) };
        let step = match log.nvram() {
            Some(nvram) => NvramSpace { shared: self, log, nvram }.step(),
            None => {
                let space = LogSpace { shared: self, log };
                if !space.wants_checkpoint() {
                    return Ok(false);
                }
                space.checkpoint(log.capacity() / CHECKPOINT_PART)
            }
        };
        step.inspect_err(|e| self.abort(e))
    }

    /// Writes home what transactions that were closed by `time` have changed, and frees their log space. True if there
    /// were any.
    pub(crate) fn checkpoint_closed_by(&self, time: Duration) -> Result<bool, Error> {
        let Some(log) = &self.log else { return Ok(false) };
        let passed = match log.nvram() {
            Some(nvram) => {
                let space = NvramSpace { shared: self, log, nvram };
                if space.must_leave_region(time) {
                    let _no_commit_is_under_way = self.lead();
                    space.leave_region();
                }
                space.pass_closed_by(time)
            }
            None => LogSpace { shared: self, log }.checkpoint_closed_by(time),
        };
        passed.inspect_err(|e| self.abort(e))
    }

    /// Writes everything home that is committed when it begins, and frees its log space. What commits add meanwhile it
    /// leaves, so that it ends (J15).
    pub(crate) fn checkpoint_all(&self) -> Result<(), Error> {
        let Some(log) = &self.log else { return Ok(()) };
        self.pass_all(log).inspect_err(|e| self.abort(e))
    }

    fn pass_all(&self, log: &Log) -> Result<(), Error> {
        match log.nvram() {
            Some(nvram) => NvramSpace { shared: self, log, nvram }.empty(),
            None => LogSpace { shared: self, log }.empty(),
        }
    }

    /// Commits what is open, writes everything home and empties the log. No transaction is committed between the last
    /// home write and the empty log, whichever caller asks for one (L3).
    pub(crate) fn empty_log(&self) -> Result<EmptyLog<'_>, Error> {
        self.commit_all()?;
        let empty = EmptyLog { _leader: (!Mutant::LogEmptiedBesideCommits.is_on()).then(|| self.lead()) };
        let Some(log) = &self.log else {
            self.gate.flush()?;
            return Ok(empty);
        };
        if let Some(e) = self.failure() {
            return Err(Error::Aborted(Box::new(e)));
        }
        self.checkpoint_all()?;
        let next = {
            let core = lock(&self.core);
            let holds = !core.committed.is_empty() && !Mutant::LogEmptiedBesideCommits.is_on();
            assert!(!holds, "a log that is emptied holds no committed transaction");
            core.running.tid
        };
        log.set_empty(next).inspect_err(|e| self.abort(e))?;
        Ok(empty)
    }
}
