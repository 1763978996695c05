//! The calls behind `lsattr` and `chattr`: inode flags, project and generation.

use super::flags::{is_sync, masked};
use super::journaling_mode;
use super::live::live;
use crate::error::{Error, Result};
use crate::records;
use crate::txn::Op;
use quire_layout::Ino;
use quire_layout::features::ro_compat;
use quire_layout::inode::Time;
use quire_layout::inode::flags::{
    APPEND, CASEFOLD, COMPR, DAX, DIRSYNC, ENCRYPT, EXTENTS, IMMUTABLE, INLINE_DATA, JOURNAL_DATA, NOATIME, NODUMP,
    NOTAIL, PROJINHERIT, SECRM, SYNC, TOPDIR, UNRM, VERITY,
};

/// Flags that `lsattr` shows.
pub(crate) const VISIBLE: u32 = 0x725B_DFFF;
/// Flags that `chattr` may change.
pub(crate) const MODIFIABLE: u32 = SECRM
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
/// An inode's flags, as `FS_IOC_GETFLAGS` has them.
///
/// # Errors
/// Stale; corrupt; miss.
pub(crate) fn get_flags(op: &mut Op<'_>, ino: Ino) -> Result<u32> {
    let inode = live(op, ino)?;
    let hidden = if inode.is_file() { PROJINHERIT } else { 0 };
    Ok(inode.flags() & VISIBLE & !hidden)
}

/// Sets the flags that can be set, as `FS_IOC_SETFLAGS` does; other visible flags stay as they are. Returns whether the
/// inode asks for durable changes.
///
/// # Errors
/// Not supported: a flag that ext4 does not have, or not for this type of file; conversion between extents and block
/// maps; case folding. Not permitted: another flag of an immutable file. Stale; read-only; corrupt; miss.
pub(crate) fn set_flags(op: &mut Op<'_>, ino: Ino, wanted: u32) -> Result<bool> {
    let mut inode = live(op, ino)?;
    let old = inode.flags();
    if masked(inode.mode(), wanted & MODIFIABLE) != wanted & MODIFIABLE {
        return Err(Error::NotSupported("this inode flag for this type of file"));
    }
    let new = (wanted & MODIFIABLE) | (old & !MODIFIABLE);
    check_change(old, new)?;
    inode.set_flags(new);
    if (old ^ new) & JOURNAL_DATA != 0 {
        journaling_mode::flag_changed(op, ino, &mut inode)?;
    }
    let now = op.now();
    inode.set_time(Time::Change, now);
    records::put_inode(op, ino, &mut inode)?;
    Ok(is_sync(&inode))
}

/// An inode's project; 0 without the feature `project`.
///
/// # Errors
/// Stale; corrupt; miss.
pub(crate) fn get_project(op: &mut Op<'_>, ino: Ino) -> Result<u32> {
    let has = op.sb().features().has_ro_compat(ro_compat::PROJECT);
    Ok(if has { live(op, ino)?.project() } else { 0 })
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
