//! Further names for an inode.

use super::directory::{MAX_LINKS, directory, touch};
use super::orphan;
use crate::dir;
use crate::error::{Error, Result};
use crate::inode::flags::{is_sync, may_add, may_change};
use crate::inode::{Attr, journaling_mode, live};
use crate::records;
use crate::txn::Op;
use quire_layout::Ino;
use quire_layout::dir::FileType;
use quire_layout::inode::Time;

/// Gives an inode another name; to an inode that was made without a name, its first. The caller gets a reference on it.
/// Returns its attributes on disk, and whether the directory asks for durable changes.
///
/// # Errors
/// Exists; not found (inode or directory was removed); not permitted (a directory; immutable, append-only); too many
/// links; no space; not a directory; name too long; stale; read-only; corrupt; miss.
pub(crate) fn link(op: &mut Op<'_>, ino: Ino, new_parent: Ino, new_name: &[u8]) -> Result<(Attr, bool)> {
    let mut dir = directory(op, new_parent)?;
    let mut inode = live(op, ino)?;
    if dir::lookup(op, new_parent, &dir, new_name)?.is_some() {
        return Err(Error::Exists);
    }
    may_add(&dir)?;
    may_change(&inode)?;
    match inode.links() {
        _ if inode.is_dir() => return Err(Error::NotPermitted("a directory has one name")),
        0 if op.tables().unnamed.contains(&ino) => {
            orphan::got_name(op, ino, &mut inode)?;
            inode.set_links(1);
        }
        0 => return Err(Error::NotFound),
        n if n >= MAX_LINKS => return Err(Error::TooManyLinks),
        n => inode.set_links(n + 1),
    }
    dir::add(op, new_parent, &mut dir, new_name, ino, FileType::from_mode(inode.mode()), op.pool())?;
    touch(op, &mut dir);
    records::put_inode(op, new_parent, &mut dir)?;
    inode.set_time(Time::Change, op.now());
    records::put_inode(op, ino, &mut inode)?;
    op.add_ref(ino);
    journaling_mode::note_name(op, ino, new_name);
    Ok((Attr::of(op.sb(), ino, &inode), is_sync(&dir)))
}
