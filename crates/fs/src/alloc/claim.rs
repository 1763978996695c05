//! Claims: blocks chosen for write-back before anything on disk says so.
//!
//! ```text
//! claim ──> data written in place ──> operation: mark_claimed + extents ──> transaction
//!    └──> drop_claim, if the data could not be written
//! ```
//! A claimed block is free in the bitmap and taken in memory. A crash forgets claims, which is right: nothing refers
//! to their blocks.

use super::{Request, Run, blocks, group};
use crate::error::Result;
use crate::op::Op;

/// Blocks that only the holder of this value may mark as used. Give it to [`mark_claimed`] or [`drop_claim`]:
/// blocks of a claim that is merely dropped stay unavailable until unmount.
#[derive(PartialEq, Eq, Debug)]
#[must_use]
pub struct Claim {
    run: Run,
}

impl Claim {
    #[must_use]
    pub fn run(&self) -> Run {
        self.run
    }

    /// Splits off what follows the first `len` blocks.
    ///
    /// # Panics
    /// If there are not more than `len` blocks.
    pub fn split(self, len: u32) -> (Claim, Claim) {
        assert!(len > 0 && len < self.run.len, "split of a claim out of range");
        let (a, b) = (Run::new(self.run.start, len), Run::new(self.run.start.plus(u64::from(len)), self.run.len - len));
        (Claim { run: a }, Claim { run: b })
    }
}

/// Claims a run near the goal: as long as can be had, at most what is wanted. It is in force when the operation
/// succeeds.
///
/// # Errors
/// As [`super::alloc_blocks`].
pub fn claim(op: &mut Op<'_>, r: &Request) -> Result<Claim> {
    let run = blocks::find(op, r)?;
    let (g, at) = op.state().alloc.group_of(run.start);
    op.deferred.alloc.group(g).next = Some(at + run.len);
    blocks::follow(op, r, run);
    Ok(claim_free(op, run))
}

/// Claims a run that was just seen to be available.
pub(crate) fn claim_free(op: &mut Op<'_>, run: Run) -> Claim {
    op.deferred.alloc.available -= i64::from(run.len);
    op.deferred.alloc.claimed.push(run);
    Claim { run }
}

/// Marks claimed blocks as used. They belong to the file system's structures from here on; the claim ends when the
/// operation succeeds, and stays as it is when it fails.
///
/// # Errors
/// Corrupt bitmaps; miss.
pub fn mark_claimed(op: &mut Op<'_>, claim: &Claim) -> Result<()> {
    let (g, _) = op.state().alloc.group_of(claim.run.start);
    group::flip(op, g, claim.run, true)?;
    op.deferred.alloc.unclaimed.push(claim.run);
    Ok(())
}

/// Gives claimed blocks back.
pub fn drop_claim(op: &mut Op<'_>, claim: &Claim) {
    op.deferred.alloc.available += i64::from(claim.run.len);
    op.deferred.alloc.unclaimed.push(claim.run);
}
