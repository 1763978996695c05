//! The rules of inode flags: what a new inode inherits, and what immutable and append-only forbid.
//!
//! The kernel does not see these flags over FUSE, so Quire enforces them as the kernel's ext4 would (N9).

use crate::error::{Error, Result};
use quire_layout::inode::flags::{
    APPEND, CASEFOLD, COMPR, DAX, DIRSYNC, IMMUTABLE, JOURNAL_DATA, NOATIME, NODUMP, NOTAIL, PROJINHERIT, SECRM, SYNC,
    TOPDIR, UNRM,
};
use quire_layout::inode::{Inode, mode};

/// Flags that a new object takes from its directory.
const INHERITED: u32 =
    SECRM | UNRM | COMPR | SYNC | NODUMP | NOATIME | JOURNAL_DATA | NOTAIL | DIRSYNC | PROJINHERIT | CASEFOLD | DAX;
/// Flags that only directories have.
const FOR_DIRS: u32 = DIRSYNC | TOPDIR | CASEFOLD | PROJINHERIT;
/// Flags that devices, sockets, pipes and symbolic links have.
const FOR_OTHERS: u32 = NODUMP | NOATIME;

/// The flags that make sense for a type of file.
pub(super) fn masked(file_mode: u16, flags: u32) -> u32 {
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

/// Refuses changes of an immutable or append-only inode.
///
/// # Errors
/// Not permitted.
pub(crate) fn may_change(inode: &Inode) -> Result<()> {
    match (inode.has(IMMUTABLE), inode.has(APPEND)) {
        (true, _) => Err(Error::NotPermitted("the file is immutable")),
        (_, true) => Err(Error::NotPermitted("the file is append-only")),
        _ => Ok(()),
    }
}

/// Refuses new names in an immutable directory.
///
/// # Errors
/// Not permitted.
pub(crate) fn may_add(dir: &Inode) -> Result<()> {
    if dir.has(IMMUTABLE) { Err(Error::NotPermitted("the directory is immutable")) } else { Ok(()) }
}

/// Refuses the removal of a name if the directory or the named inode is immutable or append-only.
///
/// # Errors
/// Not permitted.
pub(crate) fn may_remove(dir: &Inode, victim: &Inode) -> Result<()> {
    may_add(dir)?;
    if dir.has(APPEND) {
        return Err(Error::NotPermitted("the directory is append-only"));
    }
    may_change(victim)
}

/// True if changes of this inode's metadata must be durable before a call returns.
pub(crate) fn is_sync(inode: &Inode) -> bool {
    inode.has(SYNC) || (inode.is_dir() && inode.has(DIRSYNC))
}
