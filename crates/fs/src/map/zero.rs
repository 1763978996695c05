//! Zeroing bytes of a block of a file as part of an operation.
//!
//! *Guarantees* F3 (docs/invariants.md): the zeros join the transaction of the size, so that no crash leaves one
//! without the other.

use super::lookup::lookup;
use crate::error::Result;
use crate::txn::Op;
use quire_device::sync::Arc;
use quire_layout::inode::Inode;
use quire_layout::{FileBlock, Ino};

/// Before a file grows to hold byte `at`, zeroes the bytes behind its end in its last block, as part of the operation.
///
/// # Errors
/// Corrupt; miss.
pub(crate) fn zero_tail(op: &mut Op<'_>, ino: Ino, inode: &Inode, at: u64) -> Result<()> {
    let size = inode.size();
    if at > size { clear_tail(op, ino, inode, size) } else { Ok(()) }
}

/// Zeroes bytes of one block as part of the operation, if the block holds data.
///
/// # Errors
/// Corrupt; miss.
pub(crate) fn put_zeros(op: &mut Op<'_>, ino: Ino, inode: &Inode, b: FileBlock, from: u64, to: u64) -> Result<()> {
    let start = u64::from(b.0) << op.sb().block_size().bits();
    let index = |at: u64| usize::try_from(at - start).expect("within a block");
    let Some(home) = lookup(op, ino, inode, b, 1)?.written() else { return Ok(()) };
    op.want_data([home])?;
    let mut image = op.block_in_memory(home).expect("wanted");
    let range = index(from)..index(to);
    if image[range.clone()].iter().any(|b| *b != 0) {
        Arc::make_mut(&mut image)[range].fill(0);
        op.block_put(home, image)?;
    }
    Ok(())
}

/// Zeroes the bytes behind byte `size` in its block, as part of the operation, if the block holds data.
///
/// # Errors
/// Corrupt; miss.
pub(crate) fn clear_tail(op: &mut Op<'_>, ino: Ino, inode: &Inode, size: u64) -> Result<()> {
    let bs = op.sb().block_size();
    let Some(b) = bs.file_block(size).filter(|_| !size.is_multiple_of(bs.bytes64())) else { return Ok(()) };
    let end = (u64::from(b.0) + 1) << bs.bits();
    put_zeros(op, ino, inode, b, size, end)
}
