//! How many blocks may be taken now, from each pool.

use super::shortage;
use crate::error::{Error, Result};
use crate::tables::{Pool, Reservation};
use crate::txn::Op;

/// Checks that `blocks` may be taken from a pool; returns how many may be.
pub(super) fn ensure(op: &mut Op<'_>, blocks: u64, pool: Pool) -> Result<u64> {
    if pool != Pool::Reserved && shortage::strikes() {
        return Err(Error::NoSpace);
    }
    let room = room(op, pool);
    if room >= blocks { Ok(room) } else { Err(no_space(op)) }
}

/// Checks that so many blocks may be reserved.
pub(super) fn ensure_reservable(op: &mut Op<'_>, r: Reservation, pool: Pool) -> Result<()> {
    if shortage::strikes() {
        return Err(Error::NoSpace);
    }
    // Data finds what is then kept for maps, and the reserves; a map alone is metadata.
    let pool = if r.data > 0 { pool } else { Pool::Metadata };
    let keep = kept(op, pool, r.map);
    if available(op) >= keep.saturating_add(r.data) { Ok(()) } else { Err(no_space(op)) }
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
    available(op).saturating_sub(kept(op, pool, 0))
}

/// Blocks that are kept from a pool, when `more` are reserved for maps.
fn kept(op: &Op<'_>, pool: Pool, more: u64) -> u64 {
    let (table, delta) = (&op.tables().space, &op.deferred.space);
    let reserved = table.reserved().changed(delta.reserved);
    let (root, metadata) = table.reserves();
    let for_maps = reserved.map.saturating_add(more);
    match pool {
        Pool::User => reserved.data.saturating_add(root).saturating_add(metadata.max(for_maps)),
        Pool::Root => reserved.data.saturating_add(metadata.max(for_maps)),
        Pool::Metadata => reserved.data.saturating_add(for_maps),
        Pool::Reserved => 0,
    }
}
