//! New files, directories, symbolic links and nodes: with a name, or without one until they get it.

use super::directory::{add_child, directory, touch};
use super::orphan;
use crate::dir;
use crate::error::{Error, Result};
use crate::inode::flags::{is_sync, may_add};
use crate::inode::{Attr, Inherit, New, NewKind, journaling_mode, make};
use crate::records;
use crate::txn::Op;
use quire_layout::Ino;
use quire_layout::dir::FileType;

/// Makes an object and its name. The caller gets a reference on it. Returns its attributes, and whether the directory
/// asks for durable changes.
///
/// # Errors
/// Exists; not found (the directory was removed); not a directory; name too long; too many links (directories); no
/// space, no inodes; not permitted (immutable directory); read-only; corrupt; miss.
pub(crate) fn create(
    op: &mut Op<'_>,
    parent: Ino,
    name: &[u8],
    new: &New<'_>,
    inherit: Inherit,
) -> Result<(Attr, bool)> {
    let mut dir = directory(op, parent)?;
    if dir::lookup(op, parent, &dir, name)?.is_some() {
        return Err(Error::Exists);
    }
    may_add(&dir)?;
    let pool = new.cred.pool(op);
    let (ino, mut inode) = make(op, (parent, &dir), new, inherit)?;
    let handed = inherit == Inherit::All && journaling_mode::hand_down(op, (parent, &dir), (ino, &mut inode), name)?;
    if handed {
        records::put_inode(op, ino, &mut inode)?;
    }
    journaling_mode::note_name(op, ino, name);
    if inode.is_dir() {
        dir::init(op, ino, &mut inode, parent, pool)?;
        records::put_inode(op, ino, &mut inode)?;
        add_child(op, &mut dir)?;
    }
    dir::add(op, parent, &mut dir, name, ino, FileType::from_mode(inode.mode()), pool)?;
    touch(op, &mut dir);
    records::put_inode(op, parent, &mut dir)?;
    op.add_ref(ino);
    Ok((Attr::of(op.sb(), ino, &inode), is_sync(&dir)))
}

/// Makes a regular file without a name (`O_TMPFILE`), as [`create`] would make it in this directory. It is an orphan,
/// so that a crash leaves nothing of it; [`super::link`] gives it its first name. The caller gets a reference on it.
///
/// # Errors
/// Invalid (no regular file); otherwise as [`create`].
pub(crate) fn create_unnamed(op: &mut Op<'_>, parent: Ino, new: &New<'_>) -> Result<Attr> {
    if new.kind != NewKind::File {
        return Err(Error::Invalid("only a regular file can be without a name"));
    }
    let dir = directory(op, parent)?;
    may_add(&dir)?;
    let (ino, mut inode) = make(op, (parent, &dir), new, Inherit::All)?;
    if journaling_mode::hand_down(op, (parent, &dir), (ino, &mut inode), b"")? {
        records::put_inode(op, ino, &mut inode)?;
    }
    inode.set_links(0);
    orphan::add(op, ino, &mut inode)?;
    op.deferred.unnamed = Some(ino);
    op.add_ref(ino);
    Ok(Attr::of(op.sb(), ino, &inode))
}
