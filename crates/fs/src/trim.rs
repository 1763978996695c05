//! FITRIM: telling the device which blocks hold nothing.
//!
//! ```text
//! operation: next() claims free runs ──> discard them (I/O, no lock) ──> operation: done() gives them back
//! ```
//! Guarantees: only blocks that are free, unclaimed, and whose freeing is durable are discarded (A2), and nobody can take
//! one meanwhile. A step claims at most a quarter of what is available, so that a concurrent write does not
//! see a full disk.

use crate::alloc::{self, Claim, Run};
use crate::error::Result;
use crate::op::Op;
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
