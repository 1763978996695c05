//! The lazy checkpoint: committed images go home, the tail moves, log space is free again.
//!
//! Guarantees: the tail passes a record only when a home image at least as new is durable, or a later record that
//! stands alone or a durable revoke makes it needless (J11); it passes the image that a chain of deltas begins with
//! only when the chain's last image is durable at home, and the chain then ends (Q6); only committed images are written
//! home (J2); a block freed by a transaction that became durable meanwhile is not reused before the checkpoint's writes
//! are complete (J9).
//!
//! ```text
//! choose the oldest transactions ──> newest committed images of blocks that need a record there ──> home, sorted, merged
//!                                ──> flush ──> log superblock with the new tail, FUA ──> records are dead
//! ```

use crate::error::Error;
use crate::journal::{Journal, RUN};
use crate::log::Log;
use crate::style::Records;
use crate::waiting::Leader;
use quire_cache::Image;
use quire_device::sync::{lock, wait};
use quire_device::{Io, Mutant, Region};
use quire_layout::{BlockNo, Tid};

/// Images that a log may pin whatever the cache's size, in bytes.
const LEAST_PINNED: u64 = 1 << 20;

/// What a checkpoint is to pass: transactions up to `upto`, which occupy `blocks` of the log.
struct Target {
    upto: Tid,
    blocks: u32,
}

/// Proof that the log is empty and everything that was committed is at home and durable: no transaction is written to
/// the log before it is dropped (L3).
pub struct EmptyLog<'j> {
    _leader: Option<Leader<'j>>,
}

impl Journal {
    /// Checkpoints until `blocks` log blocks are free; then a quarter of the log, so that it is rare.
    pub(crate) fn make_room(&self, log: &Log, blocks: u32) -> Result<(), Error> {
        while log.free() < blocks {
            let want = blocks.saturating_sub(log.free()).max(log.capacity() / 4);
            let moved = self.checkpoint(log, want)?;
            assert!(moved || log.free() >= blocks, "a log without transactions has room for one");
        }
        Ok(())
    }

    /// What the log pins in memory is bounded, too, where nobody does the background work: beyond the cache's size and
    /// a quarter, who commits writes some of the log home.
    pub(crate) fn relieve_memory(&self, log: &Log) -> Result<(), Error> {
        let most = self.pinned_bound() / 4 * 5;
        while self.live_bytes() > most {
            if !self.checkpoint(log, log.capacity() / 4)? {
                break;
            }
        }
        Ok(())
    }

    /// Bytes of images that the log may pin before it is relieved of some.
    pub(crate) fn pinned_bound(&self) -> u64 {
        self.config.cache_bytes.max(LEAST_PINNED)
    }

    /// Bytes of images that the log pins.
    pub(crate) fn live_bytes(&self) -> u64 {
        lock(&self.core).stats().live as u64 * self.config.block_size.bytes64()
    }

    /// One step of background work: checkpoints a quarter of the log if more than half of it is in use, or if the
    /// images that it pins take more than the cache. True if it did something.
    ///
    /// # Errors
    /// The device failed; the journal is then aborted.
    pub fn checkpoint_step(&self) -> Result<bool, Error> {
        let Some(log) = &self.log else { return Ok(false) };
        if let Some(nvram) = log.nvram() {
            return self.nvram_step(log, nvram).inspect_err(|e| self.abort(e));
        }
        if log.used() <= log.capacity() / 2 && self.live_bytes() <= self.config.cache_bytes {
            return Ok(false);
        }
        self.checkpoint(log, log.capacity() / 4).inspect_err(|e| self.abort(e))
    }

    /// Writes everything committed home and frees its log space.
    ///
    /// # Errors
    /// As [`Journal::checkpoint_step`].
    pub fn checkpoint_now(&self) -> Result<(), Error> {
        let Some(log) = &self.log else { return Ok(()) };
        if let Some(nvram) = log.nvram() {
            return self.empty_nvram(log, nvram).inspect_err(|e| self.abort(e));
        }
        while self.checkpoint(log, u32::MAX).inspect_err(|e| self.abort(e))? {}
        Ok(())
    }

    /// Commits what is open, writes everything home and empties the log. No transaction is committed between the last
    /// home write and the empty log, whoever asks for one (L3).
    ///
    /// # Errors
    /// As [`Journal::commit`] and [`Journal::checkpoint_step`].
    pub fn empty_log(&self) -> Result<EmptyLog<'_>, Error> {
        self.commit_all()?;
        let empty = EmptyLog { _leader: (!Mutant::LogEmptiedBesideCommits.is_on()).then(|| self.lead()) };
        let Some(log) = &self.log else {
            self.gate.flush()?;
            return Ok(empty);
        };
        if let Some(e) = self.failure() {
            return Err(Error::Aborted(Box::new(e)));
        }
        if let Some(nvram) = log.nvram() {
            self.empty_nvram(log, nvram).inspect_err(|e| self.abort(e))?;
        }
        while self.checkpoint(log, u32::MAX).inspect_err(|e| self.abort(e))? {}
        let next = {
            let core = lock(&self.core);
            let holds = !core.committed.is_empty() && !Mutant::LogEmptiedBesideCommits.is_on();
            assert!(!holds, "a log that is emptied holds no committed transaction");
            core.running.tid
        };
        log.set_empty(next).inspect_err(|e| self.abort(e))?;
        Ok(empty)
    }

    /// Passes the oldest transactions until `want` log blocks are freed, or all. False if there were none.
    fn checkpoint(&self, log: &Log, want: u32) -> Result<bool, Error> {
        let _one_at_a_time = lock(&self.checkpointing);
        let Some(target) = self.choose(want) else { return Ok(false) };
        let homes = self.begin_home_writes(target.upto);
        let written = self.write_home(&homes);
        lock(&self.commit).checkpoint_floor = None;
        written?;
        if !Mutant::TailBeforeHomeFlush.is_on() {
            self.gate.flush()?;
        }
        log.free_tail(target.blocks, target.upto.next())?;
        lock(&self.core).tail_passed(target.upto, &homes);
        lock(&self.counters).checkpointed(homes.len());
        Ok(true)
    }

    fn choose(&self, want: u32) -> Option<Target> {
        let core = lock(&self.core);
        let mut target = None;
        let mut blocks = 0;
        for c in &core.committed {
            blocks += c.log_blocks;
            target = Some(Target { upto: c.tid, blocks });
            if blocks >= want {
                break;
            }
        }
        target
    }

    /// The images to write, and the floor under which freed blocks may be reused meanwhile (J9), taken at one moment: a
    /// commit takes out what it revokes under the core's lock before it raises `durable`.
    pub(crate) fn begin_home_writes(&self, upto: Tid) -> Vec<(BlockNo, Image)> {
        let mut core = lock(&self.core);
        // A commit under way may write a delta over an image whose chain would end here. It holds no lock that we hold.
        // With regions no chain leaves its region, and none that is under way begins in one that is passed (V6).
        let regions = self.config.style.by_regions();
        while core.chosen && !regions && self.config.style.records() == Some(Records::Deltas) {
            core = wait(&self.unchosen, core);
        }
        let mut commit = lock(&self.commit);
        commit.checkpoint_floor = Some(commit.durable);
        core.home_writes(upto)
    }

    /// Writes images to their homes, neighbours at once; complete, not durable.
    pub(crate) fn write_home(&self, blocks: &[(BlockNo, Image)]) -> Result<(), Error> {
        let bs = self.config.block_size;
        let runs = blocks.chunk_by(|a, b| a.0.0 + 1 == b.0.0).flat_map(|r| r.chunks(RUN));
        let batch: Vec<Io> = runs
            .map(|r| Io::Write {
                at: bs.offset(r[0].0),
                data: r.iter().map(|(_, image)| image.clone()).collect(),
                region: Region::Metadata,
                fua: false,
            })
            .collect();
        if !batch.is_empty() {
            self.gate.device().run(batch)?;
        }
        Ok(())
    }
}
