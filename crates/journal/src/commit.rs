//! The commit path: from a closed transaction to a durable one.
//!
//! Guarantees: when [`Journal::commit`] returns, a power loss at any later time finds the transaction whole; a power
//! loss before finds all of it or nothing (J10), because the commit block is written only when everything before it is
//! durable, or, in Quire's log, because the transaction checks itself whole (Q2).
//!
//! ```text
//! jbd2's log
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
use crate::run::{self, Encoder};
use crate::style::{CommitBy, Records, Style};
use quire_cache::Image;
use quire_device::Mutant;
use quire_device::sync::{Arc, lock};
use quire_layout::Tid;

impl Journal {
    /// As the leader: closes the running transaction and makes it durable. `None` if nothing was in it.
    pub(crate) fn commit_running(&self) -> Result<Option<Tid>, Error> {
        let begun = self.config.clock.monotonic();
        let Some(txn) = self.close_running() else { return Ok(None) };
        lock(&self.commit).writing = true;
        let log_blocks = match (&self.log, self.config.style) {
            (Some(log), Style::Jbd2) => self.write_to_log(log, &txn)?,
            (Some(log), Style::Quire { records, commit }) => self.write_run(log, &txn, records, commit)?,
            (Some(log), Style::Nvram { records, .. }) => {
                self.write_nvram(log, log.nvram().expect("the style has one"), &txn, records)?
            }
            (None, _) => self.write_without_log(&txn)?,
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
        log.open_at_head(txn.tid, self.config.clock.realtime())?;
        log.write(0, &body, false)?;
        // The data that this transaction's metadata names has completed on the file system's device.
        if !Mutant::NoFlushBeforeCommit.is_on() {
            self.flush_with(log)?;
        }
        let commit = encode::commit(&log.format, txn.tid, self.config.clock.realtime());
        log.write(total - 1, &[commit], true)?;
        log.took(total);
        lock(&self.core).committed(txn, total, None);
        Ok(total)
    }

    /// Quire's log: a run of blocks that checks itself. Returns how many.
    fn write_run(&self, log: &Log, txn: &InFlight, records: Records, by: CommitBy) -> Result<u32, Error> {
        let most = run::blocks_at_most(self.config.block_size, txn.blocks.len(), txn.revokes.len());
        if most > log.longest_run() {
            let limit = usize::try_from(log.longest_run()).expect("fits");
            return Err(Error::TooLarge { blocks: txn.blocks.len(), limit });
        }
        // Before bases are chosen: a checkpoint ends chains of deltas.
        self.make_room(log, most)?;
        self.relieve_memory(log)?;
        let now = self.config.clock.realtime();
        log.open_at_head(txn.tid, now)?;
        let bases = lock(&self.core).choose_bases(txn, |e| self.gate.is_durable(e));
        let encoder = Encoder {
            block_size: self.config.block_size,
            known: log.known(),
            seed: log.format.seed,
            records,
            epoch: log.epoch(),
            now,
        };
        let run = encoder.run(txn, &bases);
        drop(bases);
        let total = u32::try_from(run.blocks.len()).expect("bounded by the log");
        assert!(total <= most, "a run of {total} blocks, expected {most} at most");
        log.allow(txn.tid, total)?;
        let flushed_first = match by {
            CommitBy::Checksum => self.write_at_once(log, txn, &run.blocks)?,
            CommitBy::Barrier => self.write_first_last(log, &run.blocks)?,
        };
        log.took(total);
        lock(&self.core).committed(txn, total, Some(&run.alone));
        lock(&self.counters).encoded(run.kinds, flushed_first);
        Ok(total)
    }

    /// `checksum`: data in place that the transaction names is durable before any of it can be (Q5); then one write,
    /// one flush. True if the data took a flush.
    fn write_at_once(&self, log: &Log, txn: &InFlight, blocks: &[Image]) -> Result<bool, Error> {
        let mutant = Mutant::NoFlushBeforeCommit.is_on() || Mutant::CompletionIsDurable.is_on();
        let stamp = txn.after.filter(|e| !self.gate.is_durable(*e) && !mutant);
        if let Some(stamp) = stamp {
            self.gate.ensure(stamp)?;
        }
        log.write(0, blocks, false)?;
        log.gate.flush()?;
        Ok(stamp.is_some())
    }

    /// `barrier`: all but the first block; a flush, which makes all data durable that has completed, too; then the
    /// block that makes it valid, durable on return.
    fn write_first_last(&self, log: &Log, blocks: &[Image]) -> Result<bool, Error> {
        let (first, rest) = blocks.split_first().expect("a run has a first block");
        if !rest.is_empty() {
            log.write(1, rest, false)?;
        }
        if !Mutant::NoFlushBeforeCommit.is_on() {
            self.flush_with(log)?;
        }
        log.write(0, std::slice::from_ref(first), true)?;
        Ok(false)
    }

    /// Flushes the file system's device, and the log's if that is another.
    pub(crate) fn flush_with(&self, log: &Log) -> Result<(), Error> {
        self.gate.flush()?;
        if !Arc::ptr_eq(&self.gate, &log.gate) {
            log.gate.flush()?;
        }
        Ok(())
    }

    /// `data=none`: home at once, one flush, no atomicity.
    fn write_without_log(&self, txn: &InFlight) -> Result<u32, Error> {
        self.write_home(&txn.blocks)?;
        self.gate.flush()?;
        lock(&self.core).written_home(txn);
        Ok(0)
    }
}
