//! The lazy checkpoint: committed images go home, the tail moves, log space is free again.
//!
//! Guarantees: the tail passes a record only when a home image at least as new is durable, or a later self-contained
//! record or a durable revoke makes it needless (J11); it passes the image that a chain of deltas begins
//! with only when the chain's last image is durable at home, and the chain then ends (Q6); only committed images are
//! written home (J2); a block freed by a transaction that became durable meanwhile is not reused before the
//! checkpoint's writes are complete (J9).
//!
//! ```text
//! choose the oldest transactions ──> newest committed images of blocks that need a record there ──> home, sorted, merged
//!                                ──> flush ──> log superblock with the new tail, FUA ──> records are dead
//! ```

use super::homes::Homes;
use super::shared::Shared;
use crate::error::Error;
use crate::log::Log;
use crate::policy::{CHECKPOINT_BEGINS, CHECKPOINT_PART};
use quire_device::Mutant;
use quire_device::sync::lock;
use quire_layout::Tid;
use std::time::Duration;

/// What a checkpoint is to pass: transactions up to `upto`, which occupy `blocks` of the log.
struct Target {
    upto: Tid,
    blocks: u32,
}

/// The space of a log on a block device.
pub(super) struct LogSpace<'a> {
    pub shared: &'a Shared,
    pub log: &'a Log,
}

impl LogSpace<'_> {
    /// True if a transaction of `blocks` log blocks needs a checkpoint first.
    pub(super) fn is_short_of(&self, blocks: u32) -> bool {
        self.log.free() < blocks || self.pins_too_much()
    }

    /// Checkpoints until `blocks` log blocks are free; then a quarter of the log, so that it is rare; all of a log that
    /// does not go round. It is enough if the background has made the room meanwhile (J13).
    pub(super) fn make_room(&self, blocks: u32) -> Result<(), Error> {
        let is_short = || self.log.free() < blocks;
        while is_short() {
            let want = self.log.to_free(blocks).max(self.log.capacity() / CHECKPOINT_PART);
            let moved = self.pass(Homes::Needed, || is_short().then(|| self.choose(want))?)?;
            assert!(moved || !is_short(), "a log without transactions has room for one");
        }
        Ok(())
    }

    /// What the log pins in memory is bounded, too, where no thread does the background work: beyond the cache's size
    /// and a quarter, the commit writes some of the log home.
    pub(super) fn relieve_memory(&self) -> Result<(), Error> {
        let quarter = self.log.capacity() / CHECKPOINT_PART;
        let choose = || self.pins_too_much().then(|| self.choose(quarter))?;
        while self.pins_too_much() && self.pass(Homes::Needed, choose)? {}
        Ok(())
    }

    fn pins_too_much(&self) -> bool {
        self.shared.pinned_bytes() > self.shared.pinned_bound() / 4 * 5
    }

    /// True if more than half of the log is in use, or if the images that it pins take more than the cache.
    pub(super) fn wants_checkpoint(&self) -> bool {
        self.log.used() > self.log.capacity() / CHECKPOINT_BEGINS
            || self.shared.pinned_bytes() > self.shared.config.cache_bytes
    }

    /// Passes the oldest transactions until `want` log blocks are freed, or all. False if there were none.
    pub(super) fn checkpoint(&self, want: u32) -> Result<bool, Error> {
        self.pass(Homes::Needed, || self.choose(want))
    }

    /// Passes all transactions that are committed when it begins, and writes all home that is committed then.
    pub(super) fn empty(&self) -> Result<(), Error> {
        self.pass(Homes::All, || self.choose(u32::MAX)).map(drop)
    }

    /// Passes transactions that were closed by `time`, at most a quarter of the log at once, so that others get the
    /// device between two steps. False if there were none.
    pub(super) fn checkpoint_closed_by(&self, time: Duration) -> Result<bool, Error> {
        self.pass(Homes::Needed, || {
            let (upto, blocks) = lock(&self.shared.core).closed_by(time, self.log.capacity() / CHECKPOINT_PART)?;
            Some(Target { upto, blocks })
        })
    }

    fn pass(&self, which: Homes, choose: impl Fn() -> Option<Target>) -> Result<bool, Error> {
        let _one_at_a_time = lock(&self.shared.checkpointing);
        let Some(target) = choose() else { return Ok(false) };
        let begun = self.shared.config.clock.monotonic();
        let homes = self.shared.begin_home_writes(which.upto(target.upto), false)?;
        let written = self.shared.write_home(&homes);
        self.shared.end_home_writes(&homes);
        written?;
        if !Mutant::TailBeforeHomeFlush.is_on() {
            self.shared.gate.flush()?;
        }
        self.log.free_tail(target.blocks, target.upto.next())?;
        lock(&self.shared.core).tail_passed(target.upto, &homes);
        self.shared.checkpointed(homes.len(), begun);
        Ok(true)
    }

    fn choose(&self, want: u32) -> Option<Target> {
        let core = lock(&self.shared.core);
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
}
