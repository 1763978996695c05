//! The calls on names.

use super::handle::{Inner, Volume};
use super::lifetime;
use super::manner::{commit_if, manner, run};
use crate::data::{DiskAttr, write_back_pending};
use crate::dir::DirItem;
use crate::engine::Misses;
use crate::error::{Error, Result};
use crate::inode::{Attr, Inherit, New};
use crate::names::{self, Attributes, RenameFlags};
use crate::txn::Op;
use quire_layout::{Ino, Tid};

impl Volume {
    /// The attributes of the inode that a name in a directory means. The caller gets a reference on it.
    ///
    /// # Errors
    /// Not found; not a directory; name too long; corrupt; I/O.
    pub fn lookup(&self, parent: Ino, name: &[u8]) -> Result<Attr> {
        let found = run(self, |op| Ok(DiskAttr::new(&self.inner.data, names::lookup(op, parent, name)?)))?;
        Ok(found.with_pending(&self.inner.data))
    }

    /// The attributes of an inode by its number, for file handles that outlive names. The caller gets a reference on
    /// it.
    ///
    /// # Errors
    /// Stale: it was freed, or has no name any more. Corrupt; I/O.
    pub fn lookup_ino(&self, ino: Ino) -> Result<Attr> {
        let found = run(self, |op| Ok(DiskAttr::new(&self.inner.data, names::lookup_ino(op, ino)?)))?;
        Ok(found.with_pending(&self.inner.data))
    }

    /// Makes an object and its name. The caller gets a reference on it.
    ///
    /// # Errors
    /// Exists; not found (the directory was removed); not a directory; name too long; too many links (directories); no
    /// space, no inodes; not permitted (immutable directory); read-only; corrupt; I/O.
    pub fn create(&self, parent: Ino, name: &[u8], new: &New<'_>) -> Result<Attr> {
        create(self, (parent, name), new, Inherit::All)
    }

    /// Makes a regular file without a name (`O_TMPFILE`), as [`Volume::create`] would make it in this directory. It is
    /// an orphan, so that a crash leaves nothing of it; [`Volume::link`] gives it its first name. The caller gets a
    /// reference on it.
    ///
    /// # Errors
    /// Invalid (no regular file); otherwise as [`Volume::create`].
    pub fn create_unnamed(&self, parent: Ino, new: &New<'_>) -> Result<Attr> {
        let _pass = self.inner.enter()?;
        let (attr, _) = self.inner.engine.run_as(manner(self), |op| names::create_unnamed(op, parent, new))?;
        Ok(attr)
    }

    /// Gives an inode another name; to an inode that was made without a name, its first. The caller gets a reference on
    /// it.
    ///
    /// # Errors
    /// Exists; not found (inode or directory was removed); not permitted (a directory; immutable, append-only); too
    /// many links; no space; not a directory; name too long; read-only; corrupt; I/O.
    pub fn link(&self, ino: Ino, new_parent: Ino, new_name: &[u8]) -> Result<Attr> {
        let _pass = self.inner.enter()?;
        write_back_pending(&self.inner.data, ino)?;
        let ((attr, sync), tid) = self.inner.engine.run_as(manner(self), |op| {
            let (attr, sync) = names::link(op, ino, new_parent, new_name)?;
            Ok((DiskAttr::new(&self.inner.data, attr), sync))
        })?;
        commit_if(self, sync, tid)?;
        Ok(attr.with_pending(&self.inner.data))
    }

    /// Removes the name of an object that is no directory.
    ///
    /// # Errors
    /// Not found; is a directory; not permitted (immutable, append-only); read-only; corrupt; I/O.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let _pass = self.inner.enter()?;
        let (done, tid) = self.inner.engine.run_as(manner(self), |op| names::unlink(op, parent, name))?;
        end_removal(self, done.evict, done.sync, tid)
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Not found; not a directory; not empty; invalid (`.`); not permitted (immutable, append-only); read-only;
    /// corrupt; I/O.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<()> {
        let _pass = self.inner.enter()?;
        let (done, tid) = self.inner.engine.run_as(manner(self), |op| names::rmdir(op, parent, name))?;
        end_removal(self, done.evict, done.sync, tid)
    }

    /// Moves a name: to another one, to another directory, over an existing one; or exchanges two. Pending data of the
    /// inodes is written back first, so that a file renamed over another is never found empty.
    ///
    /// # Errors
    /// Not found; exists (`no_replace`); is a directory, not a directory, not empty (the object that would be
    /// replaced); invalid (below itself; `.` and `..`); too many links; no space, no inodes (whiteout); not permitted
    /// (immutable, append-only); name too long; read-only; corrupt; I/O.
    pub fn rename(&self, parent: Ino, name: &[u8], new_parent: Ino, new_name: &[u8], flags: RenameFlags) -> Result<()> {
        let _pass = self.inner.enter()?;
        names::check_rename(name, new_name, flags)?;
        write_back_pending(&self.inner.data, run(self, |op| names::resolve(op, parent, name))?)?;
        if flags.exchange {
            write_back_pending(&self.inner.data, run(self, |op| names::resolve(op, new_parent, new_name))?)?;
        }
        let (from, to) = ((parent, name), (new_parent, new_name));
        let (done, tid) = self.inner.engine.run_as(manner(self), |op| names::rename(op, from, to, flags))?;
        end_removal(self, done.evict, done.sync, tid)
    }

    /// Gives the names of a directory to `sink`, from `cookie` on (0: all), until it refuses one by `false`. A name
    /// that exists all the while is given once, whatever else is added or removed.
    ///
    /// # Errors
    /// Not a directory; corrupt; I/O. What was given is valid.
    pub fn readdir(&self, dir: Ino, cookie: u64, sink: &mut dyn FnMut(DirItem<'_>) -> bool) -> Result<()> {
        list(self, dir, cookie, None, &mut |item, _| sink(item))
    }

    /// As [`Volume::readdir`], with attributes and a reference for the names that `which` selects, except that `.` and
    /// `..` get no reference. `None`: the name was not selected, or its inode cannot be read; a lookup returns the
    /// error.
    ///
    /// # Errors
    /// As [`Volume::readdir`].
    pub fn readdir_plus(
        &self,
        dir: Ino,
        cookie: u64,
        which: Attributes,
        sink: &mut dyn FnMut(DirItem<'_>, Option<Attr>) -> bool,
    ) -> Result<()> {
        list(self, dir, cookie, Some(which), sink)
    }

    /// Gives back `n` references on an inode. When none is left and it has no links, it is freed soon. This never waits
    /// for the end of a freeze.
    pub fn forget(&self, ino: Ino, n: u64) {
        self.inner.forget(ino, n);
    }
}

/// As [`Volume::create`], but the object takes nothing from its directory: neither group, flags and journaling mode nor
/// a default ACL. For a copy of an object that has all of its attributes itself.
///
/// # Errors
/// As [`Volume::create`].
pub fn create_alone(volume: &Volume, parent: Ino, name: &[u8], new: &New<'_>) -> Result<Attr> {
    create(volume, (parent, name), new, Inherit::Nothing)
}

fn create(volume: &Volume, (parent, name): (Ino, &[u8]), new: &New<'_>, inherit: Inherit) -> Result<Attr> {
    let _pass = volume.inner.enter()?;
    let run = |op: &mut Op<'_>| names::create(op, parent, name, new, inherit);
    let ((attr, sync), tid) = volume.inner.engine.run_as(manner(volume), run)?;
    commit_if(volume, sync, tid)?;
    Ok(attr)
}

fn list(
    volume: &Volume,
    dir: Ino,
    mut cookie: u64,
    which: Option<Attributes>,
    sink: &mut dyn FnMut(DirItem<'_>, Option<Attr>) -> bool,
) -> Result<()> {
    let (d, mut manner) = (&volume.inner.data, manner(volume));
    let collect = |manner, cookie, which| {
        volume.inner.engine.run_as(manner, |op| {
            let (found, next) = names::collect(op, dir, cookie, which)?;
            // Whether something is pending must be asked while the operation is under way.
            let attrs: Vec<_> = found.items.iter().map(|i| i.attr.as_deref().map(|a| DiskAttr::new(d, *a))).collect();
            Ok((found, attrs, next))
        })
    };
    loop {
        let collected = match collect(manner, cookie, which) {
            // An inode that the device cannot read does not hide the names beside it; its own lookup returns the error.
            Err(Error::Journal(quire_journal::Error::Device(_))) if which.is_some() => collect(manner, cookie, None),
            collected => collected,
        };
        let ((found, attrs, next), _) = collected?;
        let mut wanted = true;
        for (item, attr) in found.items.iter().zip(attrs) {
            wanted = wanted && sink(found.shown(item), attr.map(|a| a.with_pending(d)));
            if !wanted && item.is_referenced() {
                volume.inner.forget(item.ino, 1);
            }
        }
        match next {
            Some(next) if wanted => cookie = next,
            _ => return Ok(()),
        }
        // A listing that has given no name would begin again where it began now, however many empty blocks are
        // behind it.
        if found.items.is_empty() {
            manner.misses = Misses::Load;
        }
    }
}

/// The end of a call that may have removed a name.
fn end_removal(volume: &Volume, evict: Option<Ino>, sync: bool, tid: Tid) -> Result<()> {
    if let Some(ino) = evict {
        lifetime::free_unreferenced(&volume.inner.engine, &volume.inner.data, ino);
    }
    commit_if(volume, sync, tid)
}

impl Inner {
    fn forget(&self, ino: Ino, n: u64) {
        let unused = lifetime::drop_references(&self.engine, ino, n);
        // After a freeze, or at the end of the mount, all unused inodes are freed.
        if unused && let Ok(_pass) = self.try_enter() {
            lifetime::free_unreferenced(&self.engine, &self.data, ino);
        }
    }
}
