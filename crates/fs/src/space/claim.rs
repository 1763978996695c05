//! Claims: blocks chosen for writeback before anything on disk refers to them.
//!
//! ```text
//! claim ──> data written in place ──> operation: mark_claimed + extents ──> transaction
//!    └──> drop_claim, if the data could not be written
//! ```
//! A claimed block is free in the bitmap and taken in memory. A crash forgets claims, which is right because no
//! structure refers to their blocks.

use super::blocks::{self, Request};
use super::group;
use crate::error::Result;
use crate::tables::Run;
use crate::txn::Op;

/// Blocks that only the holder of this value may mark as used. Give it to [`mark_claimed`] or [`drop_claim`]:
/// blocks of a claim that is merely dropped stay unavailable until unmount.
#[derive(PartialEq, Eq, Debug)]
#[must_use]
pub(crate) struct Claim {
    run: Run,
}

impl Claim {
    #[must_use]
    pub(crate) fn run(&self) -> Run {
        self.run
    }

    /// Keeps the first `len` blocks; returns the claim of the rest.
    pub(crate) fn split_off(&mut self, len: u32) -> Claim {
        assert!(len < self.run.len, "nothing would be left");
        let rest = Run::new(self.run.start.plus(u64::from(len)), self.run.len - len);
        self.run.len = len;
        Claim { run: rest }
    }
}

/// Claims a run near the goal, as long as possible, at most as long as wanted. The claim is in force when the
/// operation succeeds.
///
/// # Errors
/// As [`super::alloc_blocks`].
pub(crate) fn claim(op: &mut Op<'_>, r: &Request) -> Result<Claim> {
    let run = blocks::find(op, r)?;
    let (g, at) = op.tables().space.group_of(run.start);
    op.deferred.space.group(g).next = Some(at + run.len);
    blocks::follow(op, r, run);
    Ok(claim_free(op, run))
}

/// Claims a run that the caller has just found available.
pub(crate) fn claim_free(op: &mut Op<'_>, run: Run) -> Claim {
    op.deferred.space.available -= i64::from(run.len);
    op.deferred.space.claimed.push(run);
    Claim { run }
}

/// Marks claimed blocks as used. From here on on-disk structures may refer to them. The claim ends when the operation
/// succeeds, and stays when it fails.
///
/// # Errors
/// Corrupt bitmaps; miss.
pub(crate) fn mark_claimed(op: &mut Op<'_>, claim: &Claim) -> Result<()> {
    let (g, _) = op.tables().space.group_of(claim.run.start);
    group::flip(op, g, claim.run, true)?;
    op.deferred.space.unclaimed.push(claim.run);
    Ok(())
}

/// Gives claimed blocks back.
pub(crate) fn drop_claim(op: &mut Op<'_>, claim: &Claim) {
    op.deferred.space.available += i64::from(claim.run.len);
    op.deferred.space.unclaimed.push(claim.run);
}
