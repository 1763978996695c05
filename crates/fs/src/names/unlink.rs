//! Names removed, and with the last one the inode, as soon as it has no references.

use super::directory::{directory, pointed_to, remove_child, touch};
use super::orphan;
use crate::dir;
use crate::error::{Error, Result};
use crate::inode::flags::{is_sync, may_remove};
use crate::records;
use crate::txn::Op;
use quire_layout::Ino;
use quire_layout::inode::{Inode, Time};

/// What the removal of a name leaves to do.
pub(crate) struct Unlinked {
    /// The inode, if it has neither links nor references: the caller evicts it after the operation.
    pub evict: Option<Ino>,
    /// The directory asks for durable changes.
    pub sync: bool,
}

/// Removes one link of an inode (all links of a directory) and writes it. Without links it becomes an orphan (N1).
/// Returns true if it has no references either.
pub(super) fn drop_link(op: &mut Op<'_>, ino: Ino, inode: &mut Inode) -> Result<bool> {
    inode.set_links(if inode.is_dir() { 0 } else { inode.links() - 1 });
    inode.set_time(Time::Change, op.now());
    if inode.links() > 0 {
        records::put_inode(op, ino, inode)?;
        return Ok(false);
    }
    orphan::add(op, ino, inode)?;
    Ok(op.refs(ino) == 0)
}

/// Removes the name of an object that is no directory.
///
/// # Errors
/// Not found; is a directory; not permitted (immutable, append-only); read-only; corrupt; miss.
pub(crate) fn unlink(op: &mut Op<'_>, parent: Ino, name: &[u8]) -> Result<Unlinked> {
    remove_name(op, parent, name, false)
}

/// Removes an empty directory.
///
/// # Errors
/// Not found; not a directory; not empty; invalid (`.`); not permitted (immutable, append-only); read-only; corrupt;
/// miss.
pub(crate) fn rmdir(op: &mut Op<'_>, parent: Ino, name: &[u8]) -> Result<Unlinked> {
    match name {
        b"." => Err(Error::Invalid("a directory is removed by its name")),
        b".." => Err(Error::NotEmpty),
        _ => remove_name(op, parent, name, true),
    }
}

fn remove_name(op: &mut Op<'_>, parent: Ino, name: &[u8], is_dir: bool) -> Result<Unlinked> {
    let mut dir = directory(op, parent)?;
    let entry = dir::lookup(op, parent, &dir, name)?.ok_or(Error::NotFound)?;
    let mut victim = pointed_to(op, parent, entry.ino)?;
    match (victim.is_dir(), is_dir) {
        (true, false) => return Err(Error::IsDir),
        (false, true) => return Err(Error::NotDir),
        _ => {}
    }
    may_remove(&dir, &victim)?;
    if is_dir {
        if !dir::is_empty(op, entry.ino, &victim)? {
            return Err(Error::NotEmpty);
        }
        remove_child(&mut dir);
    }
    dir::remove_found(op, parent, &mut dir, name, entry)?;
    touch(op, &mut dir);
    records::put_inode(op, parent, &mut dir)?;
    let unused = drop_link(op, entry.ino, &mut victim)?;
    Ok(Unlinked { evict: unused.then_some(entry.ino), sync: is_sync(&dir) })
}
