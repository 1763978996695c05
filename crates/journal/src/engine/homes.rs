//! Images from and to the blocks' homes.
//!
//! Guarantees: J2, J9 for the home writes of an fsync as for those of a checkpoint; J11: an image that an fsync wrote
//! home counts as home from its completion on, because a checkpoint flushes before it passes the record.

use super::shared::Shared;
use crate::choices::Record;
use crate::core::InFlight;
use crate::error::Error;
use crate::log::Log;
use crate::policy::{BLOCKS_TO_A_TRANSFER, HOME_BYTES_AT_ONCE};
use quire_cache::Image;
use quire_device::sync::{Arc, lock, wait};
use quire_device::{Buf, Io, Mutant, Region};
use quire_layout::{BlockNo, Tid};
use std::ops::Deref;

/// Neighbours among blocks that are in order, as they are read at once.
pub(crate) fn runs_of(sorted: &[BlockNo]) -> impl Iterator<Item = &[BlockNo]> {
    sorted.chunk_by(|a, b| a.0 + 1 == b.0).flat_map(|r| r.chunks(BLOCKS_TO_A_TRANSFER))
}

/// What a checkpoint writes home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Homes {
    /// What the transactions that it passes need there.
    Needed,
    /// Whatever is committed: who waits for a block at home may find it in a later transaction already.
    All,
}

impl Homes {
    /// Up to which transaction, where the checkpoint passes those up to `passed`.
    pub(super) fn upto(self, passed: Tid) -> Option<Tid> {
        (self == Homes::Needed).then_some(passed)
    }
}

impl Shared {
    /// Reads blocks, in order, from their homes. Neighbours are read at once.
    pub(crate) fn read_home(&self, sorted: &[BlockNo]) -> Result<Vec<(BlockNo, Image)>, Error> {
        let bs = self.config.block_size;
        let batch = runs_of(sorted)
            .map(|r| Io::Read { at: bs.offset(r[0]), buf: Buf::zeroed(r.len() * bs.bytes()), region: Region::Metadata })
            .collect();
        Ok(self.images_of(sorted, &self.gate.device().run(batch)?.reads))
    }

    /// What was read of blocks, in order: a buffer for each of their runs.
    pub(crate) fn images_of(&self, sorted: &[BlockNo], read: &[impl Deref<Target = [u8]>]) -> Vec<(BlockNo, Image)> {
        let bytes = read.iter().flat_map(|buf| buf.chunks_exact(self.config.block_size.bytes()));
        sorted.iter().copied().zip(bytes.map(|bytes| Arc::new(Buf::copy_of(bytes)))).collect()
    }

    /// The images to write, and the floor under which freed blocks may be reused meanwhile (J9), taken at one moment: a
    /// commit takes out what it revokes under the core's lock before it raises `durable`. An error once the journal is
    /// aborted: a transaction whose write failed may stand whole behind the last durable one, with deltas over images
    /// that the tail would pass (Q11). Unless all that is passed `is_left`, the commit under way may write a delta over
    /// an image whose chain would end here, and is waited for (Q6). Without `upto` they are of all that is committed at
    /// that moment: then every block that was committed before the call is at home afterwards, as it was or newer.
    pub(crate) fn begin_home_writes(&self, upto: Option<Tid>, is_left: bool) -> Result<Vec<(BlockNo, Image)>, Error> {
        let mut core = lock(&self.core);
        // That commit holds no lock that this thread holds.
        core.ending_chains = !is_left && self.config.choices.record == Record::Delta;
        while core.ending_chains && core.chosen {
            core = wait(&self.unchosen, core);
        }
        core.ending_chains = false;
        if let Some(e) = core.aborted.as_ref().filter(|_| !Mutant::TailAfterAbort.is_on()) {
            return Err(Error::Aborted(Box::new(e.clone())));
        }
        let mut commit = lock(&self.commits);
        commit.checkpoint_floor = Some(commit.durable);
        let upto = upto.or_else(|| core.committed.back().map(|c| c.tid));
        Ok(upto.map_or_else(Vec::new, |upto| core.home_writes(upto)))
    }

    /// The commit that chose bases for its deltas has ended: home writes go on.
    pub(crate) fn chosen_no_more(&self) {
        lock(&self.core).chosen = false;
        self.unchosen.notify_all();
    }

    /// The images have been written, or some of them: what was read from there meanwhile leaves memory before a block
    /// that was freed meanwhile may be used again (J3, J9).
    pub(crate) fn end_home_writes(&self, homes: &[(BlockNo, Image)]) {
        lock(&self.core).homes_written(homes, self.gate.stamp());
        lock(&self.commits).checkpoint_floor = None;
    }

    /// `checkpoint=fsync`: writes home what is committed of these runs of blocks and is not there yet. Complete, not
    /// durable; the log keeps its records.
    pub(crate) fn write_runs_home(&self, runs: &[(BlockNo, u32)]) -> Result<(), Error> {
        let _one_at_a_time = lock(&self.checkpointing);
        let homes = {
            let mut core = lock(&self.core);
            let mut commit = lock(&self.commits);
            commit.checkpoint_floor = Some(commit.durable);
            core.homes_in(runs)
        };
        let forgotten = Mutant::FsyncHomeForgotten.is_on();
        let written = if forgotten { Ok(()) } else { self.write_home(&homes) };
        self.end_home_writes(&homes);
        written?;
        lock(&self.core).at_home(&homes);
        lock(&self.counters).written_home(homes.len());
        Ok(())
    }

    /// Writes images to their homes, neighbours at once; complete, not durable.
    pub(crate) fn write_home(&self, blocks: &[(BlockNo, Image)]) -> Result<(), Error> {
        let bs = self.config.block_size;
        let runs = blocks.chunk_by(|a, b| a.0.0 + 1 == b.0.0).flat_map(|r| r.chunks(BLOCKS_TO_A_TRANSFER));
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for run in runs {
            batch.push(Io::Write {
                at: bs.offset(run[0].0),
                data: run.iter().map(|(_, image)| image.clone()).collect(),
                region: Region::Metadata,
                fua: false,
            });
            bytes += run.len() * bs.bytes();
            if bytes >= HOME_BYTES_AT_ONCE {
                self.gate.device().run(std::mem::take(&mut batch))?;
                bytes = 0;
            }
        }
        if !batch.is_empty() {
            self.gate.device().run(batch)?;
        }
        Ok(())
    }

    /// Flushes the file system's device, and the log's if that is another.
    pub(crate) fn flush_with(&self, log: &Log) -> Result<(), Error> {
        self.gate.flush()?;
        if log.is_elsewhere(&self.gate) {
            log.gate.flush()?;
        }
        Ok(())
    }

    /// Makes durable the data in place that a transaction names (Q5).
    pub(crate) fn flush_data_of(&self, txn: &InFlight) -> Result<(), Error> {
        let mutant = Mutant::NoFlushBeforeCommit.is_on() || Mutant::CompletionIsDurable.is_on();
        let Some(stamp) = txn.after.filter(|e| !self.gate.is_durable(*e) && !mutant) else { return Ok(()) };
        self.gate.ensure(stamp)?;
        lock(&self.counters).flushed_data();
        Ok(())
    }
}
