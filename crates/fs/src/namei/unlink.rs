//! Names removed, and with the last one the inode, as soon as nobody uses it.

use super::{directory, pointed_to, remove_child, touch};
use crate::dir;
use crate::error::{Error, Result};
use crate::flags::{is_sync, may_remove};
use crate::op::Op;
use crate::orphan;
use crate::volume::Volume;
use quire_layout::Ino;
use quire_layout::inode::{Inode, Time};

/// Takes one link off an inode (all, of a directory) and writes it. Without links it is an orphan (N1); true if nobody uses
/// it either, so that the caller evicts it after the operation.
pub(super) fn drop_link(op: &mut Op<'_>, ino: Ino, inode: &mut Inode) -> Result<bool> {
    let links = if inode.is_dir() { 0 } else { inode.links() - 1 };
    inode.set_links(links);
    inode.set_time(Time::Change, op.now());
    if links > 0 {
        op.put_inode(ino, inode)?;
        return Ok(false);
    }
    orphan::add(op, ino, inode)?;
    Ok(op.refs(ino) == 0)
}

impl Volume {
    /// Removes the name of what is no directory.
    ///
    /// # Errors
    /// Not found; is a directory; not permitted (immutable, append-only); corrupt, I/O, read-only.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.remove_name(parent, name, false)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Not found; not a directory; not empty; invalid (`.`); not permitted (immutable, append-only); corrupt, I/O, read-only.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        match name {
            b"." => Err(Error::Invalid("a directory is removed by its name")),
            b".." => Err(Error::NotEmpty),
            _ => self.remove_name(parent, name, true),
        }
    }

    fn remove_name(&self, parent: Ino, name: &[u8], is_dir: bool) -> Result<()> {
        let ((ino, unused, sync), tid) = self.run_tid(|op| {
            let mut dir = directory(op, parent)?;
            let entry = dir::lookup(op, parent, &dir, name)?.ok_or(Error::NotFound)?;
            let ino = entry.ino;
            let mut victim = pointed_to(op, parent, entry.ino)?;
            match (victim.is_dir(), is_dir) {
                (true, false) => return Err(Error::IsDir),
                (false, true) => return Err(Error::NotDir),
                _ => {}
            }
            may_remove(&dir, &victim)?;
            if is_dir {
                if !dir::is_empty(op, ino, &victim)? {
                    return Err(Error::NotEmpty);
                }
                remove_child(&mut dir);
            }
            dir::remove_found(op, parent, &dir, name, entry)?;
            touch(op, &mut dir);
            op.put_inode(parent, &mut dir)?;
            let unused = drop_link(op, ino, &mut victim)?;
            Ok((ino, unused, is_sync(&dir)))
        })?;
        if unused {
            self.evict(ino);
        }
        self.settle(sync, tid)
    }
}
