//! Inodes that callers name by number.

use super::symlink;
use crate::error::{Error, Result};
use crate::records;
use crate::txn::Op;
use quire_layout::features::incompat;
use quire_layout::inode::Inode;
use quire_layout::superblock::is_special;
use quire_layout::{Corrupt, Ino, Structure, inline_data};

/// An inode that a caller names by number, if it is in use: linked or referenced.
///
/// # Errors
/// Stale; corrupt; miss.
pub(crate) fn live(op: &mut Op<'_>, ino: Ino) -> Result<Inode> {
    if is_special(op.sb(), ino) || ino.0 > op.sb().inodes_count() {
        return Err(Error::Stale(ino));
    }
    let inode = records::inode(op, ino)?;
    let used = inode.mode() != 0 && (inode.links() > 0 || op.refs(ino) > 0);
    if !used {
        return Err(Error::Stale(ino));
    }
    check_usable(op, ino, &inode)?;
    Ok(inode)
}

/// Refuses an inode in use that contradicts itself, whatever is to be done with it: its `i_block` could be taken for
/// what it is not.
///
/// # Errors
/// Corrupt, with the inode.
pub(crate) fn check_usable(op: &Op<'_>, ino: Ino, inode: &Inode) -> Result<()> {
    if inline_data::is_inline(inode) && !op.sb().features().has_incompat(incompat::INLINE_DATA) {
        let why = "says that its data is in it, without the feature inline_data";
        return Err(Corrupt::new(Structure::Inode, why).of(ino.0).into());
    }
    Ok(symlink::check_fast(op.sb(), ino, inode)?)
}
