//! Inodes that callers name by number.

use crate::error::{Error, Result};
use crate::records;
use crate::txn::Op;
use quire_layout::Ino;
use quire_layout::inode::Inode;

/// An inode that a caller names by number, if it is in use: linked or referenced.
///
/// # Errors
/// Stale; corrupt; miss.
pub(crate) fn live(op: &mut Op<'_>, ino: Ino) -> Result<Inode> {
    if ino != Ino::ROOT && (ino < op.sb().first_ino() || ino.0 > op.sb().inodes_count()) {
        return Err(Error::Stale(ino));
    }
    let inode = records::inode(op, ino)?;
    let used = inode.mode() != 0 && (inode.links() > 0 || op.refs(ino) > 0);
    if used { Ok(inode) } else { Err(Error::Stale(ino)) }
}
