//! From a name, or a number, to an inode.

use super::directory::{directory, pointed_to};
use crate::dir;
use crate::error::{Error, Result};
use crate::inode::{Attr, journaling_mode, live};
use crate::txn::Op;
use quire_layout::Ino;

/// The attributes on disk of the inode that a name in a directory means. The caller gets a reference on it.
///
/// # Errors
/// Not found; not a directory; name too long; stale; corrupt; miss.
pub(crate) fn lookup(op: &mut Op<'_>, parent: Ino, name: &[u8]) -> Result<Attr> {
    let inode = directory(op, parent)?;
    let entry = dir::lookup(op, parent, &inode, name)?.ok_or(Error::NotFound)?;
    let found = pointed_to(op, parent, entry.ino)?;
    op.add_ref(entry.ino);
    journaling_mode::note_name(op, entry.ino, name);
    Ok(Attr::of(op.sb(), entry.ino, &found))
}

/// The attributes on disk of an inode, by its number, for file handles that outlive names. The caller gets a reference
/// on it.
///
/// # Errors
/// Stale: it was freed, or has no name any more. Corrupt; miss.
pub(crate) fn lookup_ino(op: &mut Op<'_>, ino: Ino) -> Result<Attr> {
    let inode = live(op, ino)?;
    if inode.links() == 0 {
        return Err(Error::Stale(ino));
    }
    op.add_ref(ino);
    Ok(Attr::of(op.sb(), ino, &inode))
}

/// The inode that a name means now, without a reference.
///
/// # Errors
/// As [`lookup`].
pub(crate) fn resolve(op: &mut Op<'_>, parent: Ino, name: &[u8]) -> Result<Ino> {
    let inode = directory(op, parent)?;
    Ok(dir::lookup(op, parent, &inode, name)?.ok_or(Error::NotFound)?.ino)
}
