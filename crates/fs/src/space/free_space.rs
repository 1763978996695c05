//! How many blocks may be taken now, from each pool.

use super::shortage;
use crate::error::{Error, Result};
use crate::tables::Pool;
use crate::txn::Op;

/// Checks that `blocks` may be taken from a pool; returns how many may be.
pub(super) fn ensure(op: &mut Op<'_>, blocks: u64, pool: Pool) -> Result<u64> {
    if pool != Pool::Reserved && shortage::strikes() {
        return Err(Error::NoSpace);
    }
    let room = room(op, pool);
    if room >= blocks { Ok(room) } else { Err(no_space(op)) }
}

/// The error where no block is available: perhaps a commit makes freed blocks available.
pub(super) fn no_space(op: &Op<'_>) -> Error {
    op.tables().space.newest_freed().map_or(Error::NoSpace, Error::NoSpaceYet)
}

/// Free blocks that are neither claimed nor freed too recently, as this operation leaves them.
pub(crate) fn available(op: &Op<'_>) -> u64 {
    op.tables().space.available().saturating_add_signed(op.deferred.space.available)
}

/// Blocks that may be taken from a pool now.
pub(super) fn room(op: &Op<'_>, pool: Pool) -> u64 {
    let (table, delta) = (&op.tables().space, &op.deferred.space);
    let reserved = table.reserved().saturating_add_signed(delta.reserved);
    let (root, metadata) = table.reserves();
    let keep = match pool {
        Pool::User => reserved.saturating_add(root).saturating_add(metadata),
        Pool::Root => reserved.saturating_add(metadata),
        Pool::Reserved => 0,
    };
    available(op).saturating_sub(keep)
}
