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

/// Blocks that the removal of a name changes: the name's, two of inodes, and the orphan file's or the superblock.
const BLOCKS_OF_A_NAME: usize = 4;

/// Links that are left of an inode's when it loses a name: a directory has only one.
fn links_left(inode: &Inode) -> u16 {
    if inode.is_dir() { 0 } else { inode.links() - 1 }
}

/// Takes one link off an inode (all, of a directory) and writes it. Without links it is an orphan (N1); true if nobody uses
/// it either, so that the caller evicts it after the operation.
pub(super) fn drop_link(op: &mut Op<'_>, ino: Ino, inode: &mut Inode) -> Result<bool> {
    let plan = plan_drop(op, ino, inode)?;
    carry_out_drop(op, ino, inode, plan)
}

/// What [`carry_out_drop`] needs, so that it cannot fail: how the inode becomes an orphan, if it does.
fn plan_drop(op: &mut Op<'_>, ino: Ino, inode: &Inode) -> Result<Option<orphan::Plan>> {
    if links_left(inode) > 0 { Ok(None) } else { orphan::plan(op, ino).map(Some) }
}

fn carry_out_drop(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, plan: Option<orphan::Plan>) -> Result<bool> {
    inode.set_links(links_left(inode));
    inode.set_time(Time::Change, op.now());
    match plan {
        None => op.put_inode(ino, inode).map(|()| false),
        Some(plan) => {
            orphan::carry_out(op, ino, inode, plan)?;
            Ok(op.refs(ino) == 0)
        }
    }
}

impl Volume {
    /// Removes the name of what is no directory.
    ///
    /// # Errors
    /// Not found; is a directory; not permitted (immutable, append-only); corrupt, I/O, read-only.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.unlink_telling(parent, name, &mut || ())
    }

    /// As [`Volume::unlink`]. Calls `tell`, once, when nothing can fail any more, a moment before it is done; whoever looks at the volume then
    /// waits until it is. Not where it returns only when all is durable. `tell` must not look at the volume.
    ///
    /// # Errors
    /// As [`Volume::unlink`]; none after `tell`, unless the directory's memory is corrupt.
    pub fn unlink_telling(&self, parent: Ino, name: &[u8], tell: &mut dyn FnMut()) -> Result<()> {
        self.remove_name(parent, name, false, tell)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Not found; not a directory; not empty; invalid (`.`); not permitted (immutable, append-only); corrupt, I/O, read-only.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        self.rmdir_telling(parent, name, &mut || ())
    }

    /// As [`Volume::rmdir`], and tells as [`Volume::unlink_telling`] does.
    ///
    /// # Errors
    /// As [`Volume::rmdir`].
    pub fn rmdir_telling(&self, parent: Ino, name: &[u8], tell: &mut dyn FnMut()) -> Result<()> {
        match name {
            b"." => Err(Error::Invalid("a directory is removed by its name")),
            b".." => Err(Error::NotEmpty),
            _ => self.remove_name(parent, name, true, tell),
        }
    }

    fn remove_name(&self, parent: Ino, name: &[u8], is_dir: bool, tell: &mut dyn FnMut()) -> Result<()> {
        let mut told = false;
        let mut tell_once = || {
            if !std::mem::replace(&mut told, true) {
                tell();
            }
        };
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
            dir::check_writable(&dir)?;
            let plan = plan_drop(op, ino, &victim)?;
            let sync = is_sync(&dir);
            if !sync {
                op.tell(BLOCKS_OF_A_NAME, &mut tell_once)?;
            }
            dir::remove_found(op, parent, &dir, name, entry)?;
            touch(op, &mut dir);
            op.put_inode(parent, &mut dir)?;
            let unused = carry_out_drop(op, ino, &mut victim, plan)?;
            Ok((ino, unused, sync))
        })?;
        if unused {
            self.evict(ino);
        }
        self.settle(sync, tid)
    }
}
