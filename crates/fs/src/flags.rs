//! Inode flags (`lsattr`, `chattr`): which a user sees and sets, and what immutable and append-only forbid.
//!
//! The kernel knows nothing of these flags over FUSE, so they are enforced here, as its own ext4 would (N9).

use crate::error::{Error, Result};
use crate::namei::live;
use crate::volume::Volume;
use quire_layout::Ino;
use quire_layout::features::ro_compat;
use quire_layout::inode::flags::{
    APPEND, CASEFOLD, COMPR, DAX, DIRSYNC, ENCRYPT, EXTENTS, IMMUTABLE, INLINE_DATA, JOURNAL_DATA, NOATIME, NODUMP,
    NOTAIL, PROJINHERIT, SECRM, SYNC, TOPDIR, UNRM, VERITY,
};
use quire_layout::inode::{Inode, Time, mode};

/// What `lsattr` shows.
pub const VISIBLE: u32 = 0x725B_DFFF;
/// What `chattr` may change.
pub const MODIFIABLE: u32 = SECRM
    | UNRM
    | COMPR
    | SYNC
    | IMMUTABLE
    | APPEND
    | NODUMP
    | NOATIME
    | JOURNAL_DATA
    | NOTAIL
    | DIRSYNC
    | TOPDIR
    | EXTENTS
    | DAX
    | PROJINHERIT
    | CASEFOLD;
/// What a new object takes from its directory.
const INHERITED: u32 =
    SECRM | UNRM | COMPR | SYNC | NODUMP | NOATIME | JOURNAL_DATA | NOTAIL | DIRSYNC | PROJINHERIT | CASEFOLD | DAX;
/// What only directories have.
const FOR_DIRS: u32 = DIRSYNC | TOPDIR | CASEFOLD | PROJINHERIT;
/// What devices, sockets, pipes and symbolic links have.
const FOR_OTHERS: u32 = NODUMP | NOATIME;

/// Flags without those that make no sense for the type of file.
fn masked(file_mode: u16, flags: u32) -> u32 {
    match file_mode & mode::FMT {
        mode::DIR => flags,
        mode::REG => flags & !FOR_DIRS,
        _ => flags & FOR_OTHERS,
    }
}

/// Flags that a new object takes from its directory.
pub(crate) fn inherited(dir: &Inode, file_mode: u16) -> u32 {
    masked(file_mode, dir.flags() & INHERITED)
}

/// # Errors
/// Not permitted: the inode is immutable or append-only.
pub(crate) fn may_change(inode: &Inode) -> Result<()> {
    match (inode.has(IMMUTABLE), inode.has(APPEND)) {
        (true, _) => Err(Error::NotPermitted("the file is immutable")),
        (_, true) => Err(Error::NotPermitted("the file is append-only")),
        _ => Ok(()),
    }
}

/// # Errors
/// Not permitted: nothing may be added to an immutable directory.
pub(crate) fn may_add(dir: &Inode) -> Result<()> {
    if dir.has(IMMUTABLE) { Err(Error::NotPermitted("the directory is immutable")) } else { Ok(()) }
}

/// # Errors
/// Not permitted: directory or victim is immutable or append-only.
pub(crate) fn may_remove(dir: &Inode, victim: &Inode) -> Result<()> {
    may_add(dir)?;
    if dir.has(APPEND) {
        return Err(Error::NotPermitted("the directory is append-only"));
    }
    may_change(victim)
}

/// True if changes of this inode's metadata are to be durable before a call returns.
pub(crate) fn is_sync(inode: &Inode) -> bool {
    inode.has(SYNC) || (inode.is_dir() && inode.has(DIRSYNC))
}

impl Volume {
    /// An inode's flags, as `FS_IOC_GETFLAGS` has them.
    ///
    /// # Errors
    /// Corrupt, I/O.
    pub fn get_flags(&self, ino: Ino) -> Result<u32> {
        self.run(|op| {
            let inode = live(op, ino)?;
            let hidden = if inode.is_file() { PROJINHERIT } else { 0 };
            Ok(inode.flags() & VISIBLE & !hidden)
        })
    }

    /// Sets those flags that can be set, as `FS_IOC_SETFLAGS` does: others that are visible stay as they are.
    ///
    /// # Errors
    /// Not supported: a flag that ext4 does not have, or not for this type of file; conversion between extents and block maps;
    /// case folding. Not permitted: another flag of an immutable file. Corrupt, I/O, read-only.
    pub fn set_flags(&self, ino: Ino, wanted: u32) -> Result<()> {
        if wanted & !VISIBLE != 0 {
            return Err(Error::NotSupported("this inode flag"));
        }
        // Pages written so far go the way that the flags still say.
        self.write_back_pending(ino)?;
        let (sync, tid) = self.run_tid(|op| {
            let mut inode = live(op, ino)?;
            let old = inode.flags();
            if masked(inode.mode(), wanted & MODIFIABLE) != wanted & MODIFIABLE {
                return Err(Error::NotSupported("this inode flag for this type of file"));
            }
            let new = (wanted & MODIFIABLE) | (old & !MODIFIABLE);
            check_change(old, new)?;
            inode.set_flags(new);
            if (old ^ new) & JOURNAL_DATA != 0 {
                crate::mode::flag_changed(op, ino, &mut inode)?;
            }
            let now = op.now();
            inode.set_time(Time::Change, now);
            op.put_inode(ino, &mut inode)?;
            Ok(is_sync(&inode))
        })?;
        self.settle(sync, tid)
    }

    /// An inode's project, which only counts with the feature `project`.
    ///
    /// # Errors
    /// Corrupt, I/O.
    pub fn get_project(&self, ino: Ino) -> Result<u32> {
        let has = self.inner.sb.features().has_ro_compat(ro_compat::PROJECT);
        self.run(|op| Ok(if has { live(op, ino)?.project() } else { 0 }))
    }

    /// An inode's generation: with its number, the identity of a file.
    ///
    /// # Errors
    /// Corrupt, I/O.
    pub fn get_generation(&self, ino: Ino) -> Result<u32> {
        self.run(|op| Ok(live(op, ino)?.generation()))
    }

    /// Sets the generation (`FS_IOC_SETVERSION`).
    ///
    /// # Errors
    /// Not supported with `metadata_csum`, where it seeds the checksums of the inode's blocks. Corrupt, I/O, read-only.
    pub fn set_generation(&self, ino: Ino, generation: u32) -> Result<()> {
        if self.inner.inode_seed.is_some() {
            return Err(Error::NotSupported("a generation of choice with metadata_csum"));
        }
        self.run(|op| {
            let mut inode = live(op, ino)?;
            may_change(&inode)?;
            inode.set_generation(generation);
            let now = op.now();
            inode.set_time(Time::Change, now);
            op.put_inode(ino, &mut inode)
        })
    }
}

fn check_change(old: u32, new: u32) -> Result<()> {
    let changed = old ^ new;
    if old & new & IMMUTABLE != 0 && changed != 0 {
        return Err(Error::NotPermitted("the file is immutable"));
    }
    if changed & EXTENTS != 0 {
        return Err(Error::NotSupported("conversion between extents and block maps"));
    }
    if changed & CASEFOLD != 0 {
        return Err(Error::NotSupported("case folding"));
    }
    let excluded = VERITY | ENCRYPT | JOURNAL_DATA | INLINE_DATA;
    if (new & DAX != 0 && old & excluded != 0) || (new & excluded != 0 && old & DAX != 0) {
        return Err(Error::NotSupported("direct access to data that is journaled or transformed"));
    }
    Ok(())
}
