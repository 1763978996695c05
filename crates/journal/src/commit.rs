//! The commit path: from a closed transaction to a durable one.
//!
//! Guarantees: when [`Journal::commit`] returns, a power loss at any later time finds the transaction whole; a power loss
//! before finds all of it or nothing (J10), because the commit block is written only when everything before it
//! is durable.
//!
//! ```text
//! leader: close ──> [checkpoint for room] ──> (log superblock: begins here)? + body ──> flush ──> commit block, FUA ──> live
//!           │                                        one batch, complete                │
//!   images are shared, the next                                     also makes durable the in-place data
//!   transaction runs on at once                                     that completed before (ordered)
//! ```

use crate::core::InFlight;
use crate::encode;
use crate::error::Error;
use crate::journal::Journal;
use crate::log::Log;
use quire_device::Mutant;
use quire_device::sync::{Arc, lock};
use quire_layout::Tid;

impl Journal {
    /// As the leader: closes the running transaction and makes it durable. `None` if nothing was in it.
    pub(crate) fn commit_running(&self) -> Result<Option<Tid>, Error> {
        let begun = self.config.clock.monotonic();
        let Some(txn) = self.close_running() else { return Ok(None) };
        let log_blocks = match &self.log {
            Some(log) => self.write_to_log(log, &txn)?,
            None => self.write_without_log(&txn)?,
        };
        let took = self.config.clock.monotonic().saturating_sub(begun);
        lock(&self.counters).committed(&txn, log_blocks, took);
        Ok(Some(txn.tid))
    }

    /// `barrier`: body, flush, commit block, durable. Returns the log blocks it took.
    fn write_to_log(&self, log: &Log, txn: &InFlight) -> Result<u32, Error> {
        let body = encode::body(&log.format, txn);
        let total = u32::try_from(body.len() + 1).expect("bounded by the log");
        if total > log.capacity() {
            let limit = usize::try_from(log.capacity()).expect("fits");
            return Err(Error::TooLarge { blocks: body.len() + 1, limit });
        }
        self.make_room(log, total)?;
        self.relieve_memory(log)?;
        log.open_at_head(txn.tid)?;
        log.write(0, &body, false)?;
        // The data that this transaction's metadata names has completed on the file system's device.
        if !Mutant::NoFlushBeforeCommit.is_on() {
            self.gate.flush()?;
            if !Arc::ptr_eq(&self.gate, &log.gate) {
                log.gate.flush()?;
            }
        }
        let commit = encode::commit(&log.format, txn.tid, self.config.clock.realtime());
        log.write(total - 1, &[commit], true)?;
        log.took(total);
        lock(&self.core).committed(txn, total);
        Ok(total)
    }

    /// `data=none`: home at once, one flush, no atomicity.
    fn write_without_log(&self, txn: &InFlight) -> Result<u32, Error> {
        self.write_home(&txn.blocks)?;
        self.gate.flush()?;
        lock(&self.core).written_home(txn);
        Ok(0)
    }
}
