//! The checksums that an operation computes once, at its end.

use super::group::{group, put_group};
use crate::error::Result;
use crate::txn::{Bitmap, Op, Unsealed};
use quire_layout::{BlockNo, bitmap, orphan_file};

/// Has the checksum of a block of the orphan file computed when the operation ends.
pub(crate) fn seal_orphans_at_end(op: &mut Op<'_>, b: BlockNo, seed: Option<u32>) {
    if !op.unsealed.orphans.contains(&(b, seed)) {
        op.unsealed.orphans.push((b, seed));
    }
}

/// Computes the checksums that the operation has put off (A3). The caller ends the operation next.
///
/// # Errors
/// Corrupt: a block that is several structures at once. Read-only or aborted.
pub(crate) fn seal(op: &mut Op<'_>) -> Result<()> {
    let Unsealed { orphans, bitmaps, superblock } = std::mem::take(&mut op.unsealed);
    for (b, seed) in orphans {
        orphan_file::seal(op.block_mut(b)?, b, seed);
    }
    for (g, which) in bitmaps {
        let mut d = group(op, g)?;
        match which {
            Bitmap::Blocks => {
                let image = op.block_of_parts(d.block_bitmap())?;
                d.set_block_bitmap_csum(bitmap::block_bitmap_checksum(op.sb(), op.clip(&image)));
            }
            Bitmap::Inodes => {
                let image = op.block_of_parts(d.inode_bitmap())?;
                d.set_inode_bitmap_csum(bitmap::inode_bitmap_checksum(op.sb(), op.clip(&image)));
            }
        }
        put_group(op, g, d)?;
    }
    if let Some(mut sb) = superblock {
        sb.seal();
        let (b, at) = op.context.superblock_at();
        op.block_mut(b)?[at..at + sb.bytes().len()].copy_from_slice(sb.bytes());
    }
    Ok(())
}
