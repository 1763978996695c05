//! Free blocks to discard, a step at a time (FITRIM).
//!
//! ```text
//! operation: trim_next() claims free runs ──> discard them (I/O, no lock) ──> operation: trim_done() gives them back
//! ```
//! *Guarantees*: a discarded block is free, unclaimed, and its freeing is durable (A2); no operation can take it
//! meanwhile.

use super::claim::{Claim, claim_free, drop_claim};
use super::free_space::available;
use super::group::free_runs;
use crate::error::Result;
use crate::policy::trim_budget;
use crate::tables::Run;
use crate::txn::Op;
use quire_layout::BlockNo;

/// Free runs to discard, and where to go on.
#[derive(Debug)]
#[must_use]
pub(crate) struct TrimStep {
    /// Discard these, then give them to [`trim_done`].
    pub claims: Vec<Claim>,
    /// First block of the next step; `None` at the end.
    pub next: Option<BlockNo>,
}

/// Claims the next free runs of at least `min` blocks between `from` and `to`. A step may be empty and not the last.
///
/// # Errors
/// Corrupt bitmaps; miss.
pub(crate) fn trim_next(op: &mut Op<'_>, from: BlockNo, to: BlockNo, min: u32) -> Result<TrimStep> {
    let sb = op.sb();
    let (from, to) = (from.max(sb.first_data_block()), to.min(BlockNo(sb.blocks_count())));
    if from >= to {
        return Ok(TrimStep { claims: Vec::new(), next: None });
    }
    let g = sb.group_of(from).expect("inside the file system");
    let group_end = sb.group_start(g).plus(u64::from(sb.blocks_in(g)));
    let budget = trim_budget(available(op), min);
    let mut step = TrimStep { claims: Vec::new(), next: (group_end < to).then_some(group_end) };
    let mut taken = 0;
    for run in free_runs(op, g, min)? {
        let (start, end) = (run.start.max(from), run.end().min(to));
        if start >= end || end.0 - start.0 < u64::from(min) {
            continue;
        }
        let len = (end.0 - start.0).min(budget - taken);
        step.claims.push(claim_free(op, Run::new(start, u32::try_from(len).expect("less than a group"))));
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
pub(crate) fn trim_done(op: &mut Op<'_>, claims: &[Claim]) {
    for c in claims {
        drop_claim(op, c);
    }
}
