//! The commit path: from a closed transaction to a durable one.
//!
//! Guarantees: when a commit returns, a power loss at any later time finds the transaction whole; a power
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
//!
//! A log on a device of its own has its own flush; the file system's device is flushed only for data in place that the
//! transaction names.

use super::nvram_commit::NvramCommit;
use super::shared::Shared;
use super::space::LogSpace;
use crate::choices::{CommitMode, Format};
use crate::core::InFlight;
use crate::encode;
use crate::error::Error;
use crate::log::Log;
use crate::run::{self, Encoder};
use quire_cache::Image;
use quire_device::Mutant;
use quire_device::sync::lock;
use quire_layout::Tid;

/// As the leader: closes the running transaction and makes it durable. `None` if nothing was in it.
pub(super) fn commit_running(shared: &Shared) -> Result<Option<Tid>, Error> {
    let begun = shared.config.clock.monotonic();
    let Some(txn) = shared.close_running() else { return Ok(None) };
    lock(&shared.commits).writing = true;
    let log_blocks = match &shared.log {
        None => write_without_log(shared, &txn)?,
        Some(log) => match (log.nvram(), shared.config.choices.format()) {
            (Some(nvram), _) => NvramCommit { shared, log, nvram }.write(&txn)?,
            (None, format) => DeviceCommit { shared, log }.write(&txn, format)?,
        },
    };
    let took = shared.config.clock.monotonic().saturating_sub(begun);
    shared.timings.commit.record(took);
    lock(&shared.counters).committed(&txn, log_blocks, took);
    Ok(Some(txn.tid))
}

/// `data=none`: home at once, one flush, no atomicity.
fn write_without_log(shared: &Shared, txn: &InFlight) -> Result<u32, Error> {
    shared.write_home(&txn.blocks)?;
    shared.gate.flush()?;
    lock(&shared.core).written_home(txn);
    Ok(0)
}

/// A commit to a log on a block device.
struct DeviceCommit<'a> {
    shared: &'a Shared,
    log: &'a Log,
}

impl DeviceCommit<'_> {
    /// Returns the log blocks it took. The background is woken while there is much to write home, so that it makes room
    /// before a commit has to (J13).
    fn write(&self, txn: &InFlight, format: Format) -> Result<u32, Error> {
        let took = match format {
            Format::Jbd2 => self.write_blocks(txn)?,
            _ => self.write_run(txn)?,
        };
        if self.space().wants_checkpoint() {
            self.shared.wake();
        }
        Ok(took)
    }

    fn space(&self) -> LogSpace<'_> {
        LogSpace { shared: self.shared, log: self.log }
    }

    /// `barrier`: body, flush, commit block, durable. Returns the log blocks it took.
    fn write_blocks(&self, txn: &InFlight) -> Result<u32, Error> {
        let body = encode::body(&self.log.format, txn);
        let total = u32::try_from(body.len() + 1).expect("bounded by the log");
        if total > self.log.capacity() {
            let limit = usize::try_from(self.log.capacity()).expect("fits");
            return Err(Error::TooLarge { blocks: body.len() + 1, limit });
        }
        self.make_space(total)?;
        self.log.open_at_head(txn.tid, self.shared.config.clock.realtime())?;
        self.log.write(0, &body, false)?;
        self.flush_before_last(txn)?;
        let commit = encode::commit(&self.log.format, txn.tid, self.shared.config.clock.realtime());
        self.log.write(total - 1, &[commit], true)?;
        self.log.took(total);
        lock(&self.shared.core).committed(txn, total, None);
        Ok(total)
    }

    /// Quire's log: a run of blocks that checks itself. Returns how many.
    fn write_run(&self, txn: &InFlight) -> Result<u32, Error> {
        let most = run::blocks_at_most(self.shared.config.block_size, txn.blocks.len(), txn.revokes.len());
        if most > self.log.longest_run() {
            let limit = usize::try_from(self.log.longest_run()).expect("fits");
            return Err(Error::TooLarge { blocks: txn.blocks.len(), limit });
        }
        // Before bases are chosen: a checkpoint ends chains of deltas.
        self.make_space(most)?;
        let now = self.shared.config.clock.realtime();
        self.log.open_at_head(txn.tid, now)?;
        let bases = lock(&self.shared.core).choose_bases(txn, |e| self.shared.gate.is_durable(e));
        let encoder = Encoder {
            block_size: self.shared.config.block_size,
            known: self.log.known(),
            seed: self.log.format.seed,
            record: self.shared.config.choices.record,
            epoch: self.log.epoch(),
            now,
        };
        let run = encoder.run(txn, &bases);
        drop(bases);
        let total = u32::try_from(run.blocks.len()).expect("bounded by the log");
        assert!(total <= most, "a run of {total} blocks, expected {most} at most");
        self.log.allow(txn.tid, total)?;
        match self.shared.config.choices.commit {
            CommitMode::Barrier => self.write_first_last(txn, &run.blocks)?,
            _ => self.write_at_once(txn, &run.blocks)?,
        }
        self.log.took(total);
        lock(&self.shared.core).committed(txn, total, Some(&run.self_contained));
        lock(&self.shared.counters).encoded(run.kinds);
        Ok(total)
    }

    /// `checksum`: data in place that the transaction names is durable before any of it can be (Q5); then one write,
    /// one flush.
    fn write_at_once(&self, txn: &InFlight, blocks: &[Image]) -> Result<(), Error> {
        self.shared.flush_data_of(txn)?;
        self.log.write(0, blocks, false)?;
        self.log.gate.flush()?;
        Ok(())
    }

    /// `barrier`: all but the first block; a flush; then the block that makes it valid, durable on return.
    fn write_first_last(&self, txn: &InFlight, blocks: &[Image]) -> Result<(), Error> {
        let (first, rest) = blocks.split_first().expect("a run has a first block");
        if !rest.is_empty() {
            self.log.write(1, rest, false)?;
        }
        self.flush_before_last(txn)?;
        self.log.write(0, std::slice::from_ref(first), true)
    }

    /// `barrier`: makes durable what the last block may not come before: the others, and the data in place that the
    /// transaction names (Q5). On one device a flush does both, because that data has completed.
    fn flush_before_last(&self, txn: &InFlight) -> Result<(), Error> {
        if Mutant::NoFlushBeforeCommit.is_on() {
            return Ok(());
        }
        if self.log.is_elsewhere(&self.shared.gate) {
            self.shared.flush_data_of(txn)?;
        }
        self.log.gate.flush()?;
        Ok(())
    }

    /// Frees `blocks` blocks of the log, and memory, before a transaction of that size.
    fn make_space(&self, blocks: u32) -> Result<(), Error> {
        let space = self.space();
        if !space.is_short_of(blocks) {
            return Ok(());
        }
        self.shared.stalled(|| {
            space.make_room(blocks)?;
            space.relieve_memory()
        })
    }
}
