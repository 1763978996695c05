//! Reservations for delayed allocation.

use super::free_space::ensure_reservable;
use crate::error::Result;
use crate::tables::{Pool, Reservation};
use crate::txn::Op;

/// Reserves blocks, so that a later allocation from [`Pool::Reserved`] cannot fail (A5). Blocks for the map alone may
/// come out of the reserves, as those of [`Pool::Metadata`] do.
///
/// # Errors
/// No space, or none before a transaction is durable.
pub(crate) fn reserve(op: &mut Op<'_>, r: Reservation, pool: Pool) -> Result<()> {
    ensure_reservable(op, r, pool)?;
    op.deferred.space.reserved += r;
    Ok(())
}

/// Reserves as many blocks as the same operation has given back of claims: they are there.
pub(crate) fn reserve_dropped(op: &mut Op<'_>, blocks: u64) {
    op.deferred.space.reserved += Reservation::data(blocks);
}

/// Gives back a reservation, used or not.
pub(crate) fn unreserve(op: &mut Op<'_>, r: Reservation) {
    op.deferred.space.reserved -= r;
}
