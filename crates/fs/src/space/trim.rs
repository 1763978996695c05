//! Free blocks to discard, a step at a time (FITRIM).
//!
//! ```text
//! operation: trim_next() claims free runs ──> discard them (I/O, no lock) ──> operation: trim_done() gives them back
//! ```
//! *Guarantees*: a discarded block is free, unclaimed, and its freeing is durable (A2); no operation can take it
//! meanwhile. What is reserved can be allocated meanwhile (A5).

use super::claim::{Claim, claim_free, drop_claim};
use super::free_space::room;
use super::group::free_runs;
use crate::error::Result;
use crate::policy::trim_budget;
use crate::tables::{Pool, Run};
use crate::txn::Op;
use quire_layout::BlockNo;
use std::ops::Range;

/// Free runs to discard, and where to go on.
#[derive(Debug)]
#[must_use]
pub(crate) struct TrimStep {
    /// Discard these, then give them to [`trim_done`].
    pub claims: Vec<Claim>,
    /// First block of the next step; `None` at the end.
    pub next: Option<BlockNo>,
}

/// Claims the next free runs of a range, from block `at` on: those that have at least `min` blocks in the range, a long
/// one in parts. What is reserved is not claimed (A5). A step may be empty and not the last.
///
/// # Errors
/// Corrupt bitmaps; miss.
pub(crate) fn trim_next(op: &mut Op<'_>, at: BlockNo, range: &Range<BlockNo>, min: u32) -> Result<TrimStep> {
    let sb = op.sb();
    let (first, to) = (range.start.max(sb.first_data_block()), range.end.min(BlockNo(sb.blocks_count())));
    let at = at.max(first);
    if at >= to {
        return Ok(TrimStep { claims: Vec::new(), next: None });
    }
    let g = sb.group_of(at).expect("inside the file system");
    let group_end = sb.group_start(g).plus(u64::from(sb.blocks_in(g)));
    let budget = trim_budget(room(op, Pool::User), room(op, Pool::Root));
    let mut step = TrimStep { claims: Vec::new(), next: (group_end < to).then_some(group_end) };
    // What is marked free in a damaged group may be in use (A9).
    if budget == 0 || !op.tables().space.trusts_blocks(g) {
        return Ok(step);
    }
    let mut taken = 0;
    for run in free_runs(op, g, min)? {
        // The part that earlier steps have discarded counts for its length.
        let (start, end) = (run.start.max(first), run.end().min(to));
        if start >= end || end <= at || end.0 - start.0 < u64::from(min) {
            continue;
        }
        let start = start.max(at);
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
