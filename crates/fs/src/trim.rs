//! FITRIM: telling the device which blocks hold nothing.
//!
//! ```text
//! operation: next() claims free runs ──> discard them (I/O, no lock) ──> operation: done() gives them back
//! ```
//! Guarantees: only blocks that are free, unclaimed, and whose freeing is durable are discarded (A2), and nobody can take
//! one meanwhile. A step claims at most a quarter of what is available, so that a concurrent write does not
//! see a full disk.

use crate::alloc::{self, Claim, Run};
use crate::error::{Error, Result};
use crate::op::Op;
use crate::volume::Volume;
use quire_device::Io;
use quire_device::sync::lock;
use quire_layout::BlockNo;

/// Most blocks to a step.
const STEP: u64 = 1 << 15;

/// Free runs to discard, and where to go on.
#[derive(Debug)]
#[must_use]
pub struct Step {
    /// Discard these, then give them to [`done`].
    pub claims: Vec<Claim>,
    /// First block of the next step; `None` at the end.
    pub next: Option<BlockNo>,
}

/// Claims the next free runs of at least `min` blocks between `from` and `to`. A step may be empty and not the last.
///
/// # Errors
/// Corrupt bitmaps; miss.
pub fn next(op: &mut Op<'_>, from: BlockNo, to: BlockNo, min: u32) -> Result<Step> {
    let sb = op.sb();
    let (from, to) = (from.max(sb.first_data_block()), to.min(BlockNo(sb.blocks_count())));
    if from >= to {
        return Ok(Step { claims: Vec::new(), next: None });
    }
    let g = sb.group_of(from).expect("inside the file system");
    let group_end = sb.group_start(g).plus(u64::from(sb.blocks_in(g)));
    let budget = STEP.min(alloc::available(op) / 4).max(u64::from(min).max(1));
    let mut step = Step { claims: Vec::new(), next: (group_end < to).then_some(group_end) };
    let mut taken = 0;
    for run in alloc::free_runs(op, g, min)? {
        let (start, end) = (run.start.max(from), run.end().min(to));
        if start >= end || end.0 - start.0 < u64::from(min) {
            continue;
        }
        let len = (end.0 - start.0).min(budget - taken);
        step.claims.push(alloc::claim_free(op, Run::new(start, u32::try_from(len).expect("less than a group"))));
        taken += len;
        if taken >= budget {
            let at = start.plus(len);
            step.next = (at < to).then_some(at);
            break;
        }
    }
    Ok(step)
}

/// Gives back what a step has claimed, discarded or not.
pub fn done(op: &mut Op<'_>, claims: &[Claim]) {
    for c in claims {
        alloc::drop_claim(op, c);
    }
}

impl Volume {
    /// Discards free space between byte `start` and `start + len`, in runs of at least `min` bytes. Returns the bytes discarded.
    ///
    /// # Errors
    /// Invalid range; not supported by the device; read-only; corrupt bitmaps; I/O.
    pub fn trim(&self, start: u64, len: u64, min: u64) -> Result<u64> {
        self.inner.check_writable()?;
        let sb = &self.inner.sb;
        let bs = sb.block_size();
        let per_group = u64::from(sb.blocks_per_group());
        if start >> bs.bits() >= sb.blocks_count() || len < bs.bytes64() || bs.blocks_for(min) > per_group {
            return Err(Error::Invalid("trim outside the file system"));
        }
        if !self.inner.journal.gate().device().info().discards {
            return Err(Error::NotSupported("the device cannot discard"));
        }
        let to = BlockNo(start.saturating_add(len) >> bs.bits());
        let min = u32::try_from(bs.blocks_for(min)).expect("no more than a group");
        let (mut at, mut bytes) = (Some(BlockNo(bs.blocks_for(start))), 0);
        while let Some(from) = at {
            let step = self.run(|op| next(op, from, to, min))?;
            let runs: Vec<Run> = step.claims.iter().map(Claim::run).collect();
            let discarded = self.discard(&runs);
            self.run(|op| {
                done(op, &step.claims);
                Ok(())
            })?;
            bytes += discarded?;
            at = step.next;
        }
        Ok(bytes)
    }

    /// Discards what was freed by transactions that are durable, and makes it available: a background step, for mounts with
    /// `discard`. Returns the bytes discarded.
    ///
    /// # Errors
    /// I/O; the blocks are available all the same.
    pub fn discard_freed(&self) -> Result<u64> {
        let reusable = self.inner.journal.reusable();
        let runs = lock(&self.inner.state).alloc.take_durable(reusable);
        let discarded = self.discard(&runs);
        lock(&self.inner.state).alloc.release(&runs);
        discarded
    }

    /// The background step of mounts with `discard`. False if there was nothing to discard.
    pub(crate) fn discard_step(&self) -> bool {
        if !self.inner.options.discard {
            return false;
        }
        // The device's advice was not taken; no data is in danger.
        let discarded = self.discard_freed().inspect_err(|e| tracing::warn!("discard: {e}"));
        discarded.is_ok_and(|bytes| bytes > 0)
    }

    fn discard(&self, runs: &[Run]) -> Result<u64> {
        let (device, bs) = (self.inner.journal.gate().device(), self.inner.sb.block_size());
        if runs.is_empty() || !device.info().discards {
            return Ok(0);
        }
        let io = |r: &Run| Io::Discard { at: bs.offset(r.start), len: u64::from(r.len) << bs.bits() };
        let done = device.run(runs.iter().map(io).collect());
        // What memory holds of them is not what lies there any more (Q3).
        self.inner.journal.written_in_place(runs.iter().map(|r| (r.start, r.len)));
        done?;
        Ok(runs.iter().map(|r| u64::from(r.len) << bs.bits()).sum())
    }
}
