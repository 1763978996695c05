//! What an inode holds of its content (`inline_data`): the attribute `system.data`, and `i_block`.

use super::attrs::{XattrFlags, set};
use crate::error::{Error, Result};
use crate::txn::Op;
use quire_layout::Ino;
use quire_layout::extent::NodeMut;
use quire_layout::features::incompat;
use quire_layout::inode::{Inode, flags};
use quire_layout::xattr::{Namespace, Xattr};

const NAME: &[u8] = b"data";

/// Replaces the part of the content that is in the attribute by one of the same length. The caller writes the inode.
///
/// # Errors
/// Corrupt; miss.
pub(crate) fn set_inline_tail(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, tail: &[u8]) -> Result<()> {
    set(op, ino, inode, &Xattr::new(Namespace::SYSTEM, NAME, tail), false, XattrFlags::Replace)
}

/// Has the inode hold no content, but an empty map. The caller puts the content into blocks in the same operation, and
/// writes the inode.
///
/// # Errors
/// Corrupt; miss.
pub(crate) fn clear_inline_data(op: &mut Op<'_>, ino: Ino, inode: &mut Inode) -> Result<()> {
    match set(op, ino, inode, &Xattr::new(Namespace::SYSTEM, NAME, b""), true, XattrFlags::Any) {
        Err(Error::NoData) => {}
        done => done?,
    }
    let others = inode.flags() & !(flags::INLINE_DATA | flags::EXTENTS);
    inode.block_area_mut().fill(0);
    if op.sb().features().has_incompat(incompat::EXTENTS) {
        inode.set_flags(others | flags::EXTENTS);
        NodeMut::init(inode.block_area_mut(), 0);
    } else {
        inode.set_flags(others);
    }
    Ok(())
}
