//! Group descriptors in their blocks.

use crate::error::Result;
use crate::txn::{Bitmap, Op};
use quire_layout::group_desc::GroupDesc;
use quire_layout::{BlockNo, Corrupt, GroupNo, Structure};

/// The descriptor of a group, checked.
///
/// # Errors
/// Miss; corrupt.
pub(crate) fn group(op: &mut Op<'_>, g: GroupNo) -> Result<GroupDesc> {
    let sb = op.sb();
    if g.0 >= sb.group_count() {
        return Err(Corrupt::new(Structure::GroupDescriptor, "number out of range").of(g.0).into());
    }
    let (b, at) = sb.descriptor_at(g);
    let image = op.block_of_parts(b)?;
    GroupDesc::decode(sb, op.context.desc_sums, g, &image[at..]).map_err(|c| c.at(b).into())
}

/// Reads the descriptors of several groups with one miss.
///
/// # Errors
/// Miss; corrupt.
pub(crate) fn read_groups(op: &mut Op<'_>, groups: &[GroupNo]) -> Result<Vec<GroupDesc>> {
    let sb = op.sb();
    let mut blocks: Vec<BlockNo> = groups.iter().map(|g| sb.descriptor_at(*g).0).collect();
    blocks.dedup();
    op.want(blocks)?;
    groups.iter().map(|g| group(op, *g)).collect()
}

/// Writes the descriptor of a group with its checksum.
///
/// # Errors
/// Miss; read-only or aborted.
pub(crate) fn put_group(op: &mut Op<'_>, g: GroupNo, d: GroupDesc) -> Result<()> {
    let (b, at) = op.sb().descriptor_at(g);
    let bytes = d.encode(op.context.desc_sums, g);
    op.block_mut(b)?[at..at + bytes.len()].copy_from_slice(&bytes);
    Ok(())
}

/// Has the checksum of a group's bitmap computed when the operation ends.
pub(crate) fn seal_bitmap_at_end(op: &mut Op<'_>, g: GroupNo, which: Bitmap) {
    if op.sb().features().metadata_csum() && !op.unsealed.bitmaps.contains(&(g, which)) {
        op.unsealed.bitmaps.push((g, which));
    }
}
