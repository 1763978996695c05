//! Directories and their entries as the calls on names need them, and link counts.

use crate::error::{Error, Result};
use crate::inode::{check_usable, live};
use crate::records;
use crate::txn::Op;
use quire_layout::features::{compat, ro_compat};
use quire_layout::inode::{Inode, Time, flags};
use quire_layout::superblock::is_special;
use quire_layout::{Corrupt, Ino, Structure};

/// Most links of an inode.
pub const MAX_LINKS: u16 = 65000;

/// A directory in which names can be looked up. A removed directory has none.
///
/// # Errors
/// Not a directory; not found; stale; corrupt; miss.
pub(super) fn directory(op: &mut Op<'_>, ino: Ino) -> Result<Inode> {
    let inode = live(op, ino)?;
    if !inode.is_dir() {
        return Err(Error::NotDir);
    }
    if inode.links() == 0 { Err(Error::NotFound) } else { Ok(inode) }
}

/// The inode that an entry points to. An entry that points to none makes the directory corrupt.
///
/// # Errors
/// Corrupt; miss.
pub(super) fn pointed_to(op: &mut Op<'_>, dir: Ino, ino: Ino) -> Result<Inode> {
    let bad = |why| Corrupt::new(Structure::DirectoryBlock, why).of(dir.0);
    if is_special(op.sb(), ino) || ino.0 > op.sb().inodes_count() {
        return Err(bad("an entry points to an inode that has no name").into());
    }
    let inode = records::inode(op, ino)?;
    if inode.mode() == 0 || inode.links() == 0 {
        return Err(bad("an entry points to a free inode").into());
    }
    check_usable(op, ino, &inode)?;
    Ok(inode)
}

/// Sets the times of a directory whose names change.
pub(super) fn touch(op: &Op<'_>, dir: &mut Inode) {
    dir.set_time(Time::Modify, op.now());
    dir.set_time(Time::Change, op.now());
}

/// True if ext4 stops counting the links of this directory: it has 1 link from then on.
fn counts_to_one(op: &Op<'_>, dir: &Inode) -> bool {
    let f = op.sb().features();
    f.has_ro_compat(ro_compat::DIR_NLINK) && f.has_compat(compat::DIR_INDEX) && dir.has(flags::INDEX)
}

/// Counts a new child of a directory (N6).
///
/// # Errors
/// Too many links.
pub(super) fn add_child(op: &Op<'_>, dir: &mut Inode) -> Result<()> {
    match dir.links() {
        1 => {}
        n if n < MAX_LINKS => dir.set_links(n + 1),
        _ if counts_to_one(op, dir) => dir.set_links(1),
        _ => return Err(Error::TooManyLinks),
    }
    Ok(())
}

/// Counts the loss of a child of a directory (N6).
pub(super) fn remove_child(dir: &mut Inode) {
    if dir.links() > 2 {
        dir.set_links(dir.links() - 1);
    }
}
