//! What a call on a file's data may do, by the inode's type, flags and limits.

use crate::error::{Error, Result};
use crate::inode::{Privileges, drop_privileges};
use crate::map;
use crate::records;
use crate::txn::Op;
use quire_layout::Ino;
use quire_layout::inode::{Inode, Time, flags};

/// Refuses inodes that are no regular files, because only these have data.
///
/// # Errors
/// Is a directory; invalid.
pub(super) fn check_file(inode: &Inode) -> Result<()> {
    if inode.is_file() {
        Ok(())
    } else if inode.is_dir() {
        Err(Error::IsDir)
    } else {
        Err(Error::Invalid("not a regular file"))
    }
}

/// Refuses what the flags of an inode forbid. `deferred`: a page of a cache above, which begins with bytes that the
/// file has; the cache's owner checks that an append-only file keeps them.
///
/// # Errors
/// Not permitted.
pub(super) fn check_change(inode: &Inode, overwrites: bool, deferred: bool) -> Result<()> {
    match () {
        () if inode.has(flags::IMMUTABLE) => Err(Error::NotPermitted("the file is immutable")),
        () if inode.has(flags::APPEND) && overwrites && !deferred => {
            Err(Error::NotPermitted("the file is append-only"))
        }
        () => Ok(()),
    }
}

/// The largest size that a file can have, in bytes. The first file of 2 GiB sets the feature `large_file`.
pub(super) fn max_size(op: &Op<'_>, inode: &Inode) -> u64 {
    map::max_size(op.sb(), inode.uses_extents()).min(i64::MAX.unsigned_abs())
}

/// Removes the privileges that a write takes from a file, and writes the inode if it changed.
///
/// # Errors
/// No space; corrupt; miss.
pub(super) fn lose_privileges(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, what: Privileges) -> Result<()> {
    if what == Privileges::Keep {
        return Ok(());
    }
    let before = inode.clone();
    drop_privileges(op, ino, inode, what)?;
    if *inode == before { Ok(()) } else { records::put_inode(op, ino, inode) }
}

/// Sets the times of a file whose content changes.
pub(super) fn touch(op: &Op<'_>, inode: &mut Inode) {
    inode.set_time(Time::Modify, op.now());
    inode.set_time(Time::Change, op.now());
}
