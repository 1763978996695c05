//! The calls on attributes and inode flags.

use super::handle::Volume;
use super::manner::{commit_if, manner, run};
use crate::config::{Atime, JournalingMode};
use crate::data::{DiskAttr, foresee_truncate, truncate, write_back_pending};
use crate::engine::Misses;
use crate::error::{Error, Result};
use crate::inode::{
    Attr, SetAttr, check_setattr, fileattr, is_atime_due, journaling_mode, live, read_target, setattr, touch_atime,
};
use crate::xattr::XattrFlags;
use quire_layout::Ino;
use quire_layout::inode::flags;

impl Volume {
    /// The attributes that `stat` reports.
    ///
    /// # Errors
    /// Stale: the inode was freed. Corrupt; I/O.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        let found = run(self, |op| {
            let inode = live(op, ino)?;
            Ok(DiskAttr::new(&self.inner.data, Attr::of(op.sb(), ino, &inode)))
        })?;
        Ok(found.with_pending(&self.inner.data))
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// Invalid (no symbolic link); corrupt; I/O.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        run(self, |op| {
            let inode = live(op, ino)?;
            read_target(op, ino, &inode)
        })
    }

    /// Changes attributes. A change of owner removes set-user-id, set-group-id (of a program) and capabilities of a
    /// file.
    ///
    /// # Errors
    /// Not permitted (immutable, append-only); those of [`Volume::truncate`]; no space (an ACL that must be copied);
    /// read-only; corrupt; I/O.
    pub fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        let _pass = self.inner.enter()?;
        let mut manner = manner(self);
        if let Some(size) = set.size {
            run(self, |op| {
                let inode = live(op, ino)?;
                check_setattr(&inode, set)?;
                if self.misses == Misses::Tell { foresee_truncate(op, ino, &inode, size) } else { Ok(()) }
            })?;
            truncate(&self.inner.data, ino, size)?;
            // Made again, it would cut off what others have appended meanwhile.
            manner.misses = Misses::Load;
        }
        let ((attr, sync), tid) = self.inner.engine.run_as(manner, |op| {
            let (attr, sync) = setattr(op, ino, set)?;
            Ok((DiskAttr::new(&self.inner.data, attr), sync))
        })?;
        let attr = attr.with_pending_after_set_times(&self.inner.data, set.mtime.is_some());
        commit_if(self, sync, tid)?;
        Ok(attr)
    }

    /// Records an access now, if flags and options ask for it. A read-only or frozen volume records none.
    ///
    /// # Errors
    /// Corrupt; I/O.
    pub fn touch_atime(&self, ino: Ino) -> Result<()> {
        let (engine, atime) = (&*self.inner.engine, self.inner.engine.context.runtime().atime);
        if atime == Atime::No || engine.write_gate.check().is_err() {
            return Ok(());
        }
        let attr = self.getattr(ino)?;
        let due = atime != Atime::Relative || is_atime_due(&attr, engine.now());
        if attr.flags & flags::NOATIME != 0 || !due {
            return Ok(());
        }
        let Ok(_pass) = self.inner.try_enter() else { return Ok(()) };
        engine.run(|op| touch_atime(op, ino))
    }

    /// The calls on flags and other properties of inodes.
    #[must_use]
    pub fn inode_flags(&self) -> InodeFlags<'_> {
        InodeFlags { volume: self }
    }
}

/// Flags, project, generation and journaling mode of inodes: what `lsattr` and `chattr` show and change.
#[derive(Clone, Copy)]
pub struct InodeFlags<'v> {
    volume: &'v Volume,
}

impl InodeFlags<'_> {
    /// An inode's flags, as `FS_IOC_GETFLAGS` has them.
    ///
    /// # Errors
    /// Stale; corrupt; I/O.
    pub fn get(&self, ino: Ino) -> Result<u32> {
        run(self.volume, |op| fileattr::get_flags(op, ino))
    }

    /// Sets the flags that can be set, as `FS_IOC_SETFLAGS` does; other visible flags stay as they are.
    ///
    /// # Errors
    /// Not supported: a flag that ext4 does not have, or not for this type of file; conversion between extents and
    /// block maps; case folding. Not permitted: another flag of an immutable file. Read-only; corrupt; I/O.
    pub fn set(&self, ino: Ino, wanted: u32) -> Result<()> {
        if wanted & !fileattr::VISIBLE != 0 {
            return Err(Error::NotSupported("this inode flag"));
        }
        let v = self.volume;
        let _pass = v.inner.enter()?;
        // Pages written so far go the way that the old flags say.
        write_back_pending(&v.inner.data, ino)?;
        let (sync, tid) = v.inner.engine.run_as(v.pool, |op| fileattr::set_flags(op, ino, wanted))?;
        commit_if(v, sync, tid)
    }

    /// An inode's project; 0 without the feature `project`.
    ///
    /// # Errors
    /// Stale; corrupt; I/O.
    pub fn project(&self, ino: Ino) -> Result<u32> {
        run(self.volume, |op| fileattr::get_project(op, ino))
    }

    /// An inode's generation: with its number, the identity of a file.
    ///
    /// # Errors
    /// Stale; corrupt; I/O.
    pub fn generation(&self, ino: Ino) -> Result<u32> {
        run(self.volume, |op| Ok(live(op, ino)?.generation()))
    }

    /// The setting of a file or directory, and the mode that its data has now: by that setting, a rule, or the mount's
    /// route and default.
    ///
    /// # Errors
    /// Stale; corrupt; I/O.
    pub fn journaling_mode(&self, ino: Ino) -> Result<(Option<JournalingMode>, JournalingMode)> {
        run(self.volume, |op| {
            let inode = live(op, ino)?;
            let set = journaling_mode::explicit(op, ino, &inode)?;
            let journaled = journaling_mode::is_journaled_file(op, ino, &inode)?;
            Ok((set, if journaled { JournalingMode::Journal } else { JournalingMode::Ordered }))
        })
    }

    /// Sets how a file's data is journaled, or the data of files made in a directory; `None` removes the setting.
    ///
    /// # Errors
    /// As [`Xattrs::set`](super::Xattrs::set).
    pub fn set_journaling_mode(&self, ino: Ino, mode: Option<JournalingMode>) -> Result<()> {
        let v = self.volume;
        let name = [b"user.", journaling_mode::ATTRIBUTE].concat();
        match mode {
            Some(mode) => v.xattrs().set(ino, &name, mode.name().as_bytes(), XattrFlags::Any),
            None => match v.xattrs().remove(ino, &name) {
                // The flag alone is the setting.
                Err(Error::NoData) => self.set(ino, self.get(ino)? & !flags::JOURNAL_DATA),
                done => done,
            },
        }
    }
}
