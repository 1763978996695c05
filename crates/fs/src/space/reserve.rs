//! Reservations for delayed allocation.

use super::free_space::ensure;
use crate::error::Result;
use crate::tables::Pool;
use crate::txn::Op;

/// Reserves blocks, so that a later allocation from [`Pool::Reserved`] cannot fail (A5).
///
/// # Errors
/// No space, or none before a transaction is durable.
pub(crate) fn reserve(op: &mut Op<'_>, blocks: u64, pool: Pool) -> Result<()> {
    ensure(op, blocks, pool)?;
    op.deferred.space.reserved += i64::try_from(blocks).expect("fewer than the blocks of the image");
    Ok(())
}

/// Reserves as many blocks as the same operation has given back of claims: they are there.
pub(crate) fn reserve_dropped(op: &mut Op<'_>, blocks: u64) {
    op.deferred.space.reserved += i64::try_from(blocks).expect("fewer than the blocks of the image");
}

/// Gives back a reservation, used or not.
pub(crate) fn unreserve(op: &mut Op<'_>, blocks: u64) {
    op.deferred.space.reserved -= i64::try_from(blocks).expect("fewer than the blocks of the image");
}
