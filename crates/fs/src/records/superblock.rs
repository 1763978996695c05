//! The primary superblock in its block.

use crate::error::Result;
use crate::txn::Op;
use quire_layout::superblock::Superblock;

/// A copy of the superblock as it is now.
///
/// # Errors
/// Miss; corrupt.
pub(crate) fn superblock(op: &mut Op<'_>) -> Result<Superblock> {
    if let Some(sb) = &op.unsealed.superblock {
        return Ok(sb.clone());
    }
    let (b, at) = op.context.superblock_at();
    let image = op.block_of_parts(b)?;
    Superblock::decode(&image[at..]).map_err(|c| c.at(b).into())
}

/// The superblock as it is now, for changes. It is written with its checksum when the operation ends.
///
/// # Errors
/// Miss; corrupt; read-only or aborted.
pub(crate) fn superblock_mut<'o>(op: &'o mut Op<'_>) -> Result<&'o mut Superblock> {
    if op.unsealed.superblock.is_none() {
        op.check_writable()?;
        op.unsealed.superblock = Some(superblock(op)?);
    }
    Ok(op.unsealed.superblock.as_mut().expect("just put"))
}
