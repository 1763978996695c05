//! Names: looked up, made, removed, moved.
//!
//! Guarantees (docs/invariants.md):
//! - N6: an inode's links are the names that point to it (a directory's: its own, `.`, and its children's `..`; 1 when
//!   there are more than ext4 counts);
//! - N7: no directory is moved below itself; every directory is reached from the root;
//! - N8: a call that fails has changed nothing.
//!
//! Each call is one operation ([`Volume::run`]), so a crash finds all of it or nothing.

mod create;
mod link;
mod lookup;
mod readdir;
mod rename;
mod unlink;

#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod model_tests;
#[cfg(test)]
mod tell_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod thread_tests;

pub use rename::RenameFlags;

use crate::error::{Error, Result};
use crate::op::Op;
use crate::volume::Volume;
use quire_layout::features::{compat, ro_compat};
use quire_layout::inode::{Inode, Time, flags};
use quire_layout::{Corrupt, Ino, Structure, Tid};

/// Most links of an inode.
pub const MAX_LINKS: u16 = 65000;

/// An inode that a caller names by number: in use, linked or referenced.
///
/// # Errors
/// Stale; corrupt; miss.
pub(crate) fn live(op: &mut Op<'_>, ino: Ino) -> Result<Inode> {
    if ino != Ino::ROOT && (ino < op.sb().first_ino() || ino.0 > op.sb().inodes_count()) {
        return Err(Error::Stale(ino));
    }
    let inode = op.inode(ino)?;
    let used = inode.mode() != 0 && (inode.links() > 0 || op.refs(ino) > 0);
    if used { Ok(inode) } else { Err(Error::Stale(ino)) }
}

/// A directory in which names can be looked up: one that was removed has none.
fn directory(op: &mut Op<'_>, ino: Ino) -> Result<Inode> {
    let inode = live(op, ino)?;
    if !inode.is_dir() {
        return Err(Error::NotDir);
    }
    if inode.links() == 0 { Err(Error::NotFound) } else { Ok(inode) }
}

/// The inode that an entry points to. An entry that points to none is the directory's fault.
fn pointed_to(op: &mut Op<'_>, dir: Ino, ino: Ino) -> Result<Inode> {
    let bad = |why| Corrupt::new(Structure::DirectoryBlock, why).of(dir.0);
    let reserved = ino != Ino::ROOT && ino < op.sb().first_ino();
    if reserved || ino.0 > op.sb().inodes_count() {
        return Err(bad("an entry points to an inode that has no name").into());
    }
    let inode = op.inode(ino)?;
    if inode.mode() == 0 || inode.links() == 0 {
        return Err(bad("an entry points to a free inode").into());
    }
    Ok(inode)
}

/// Notes a change of a directory's names.
fn touch(op: &Op<'_>, dir: &mut Inode) {
    dir.set_time(Time::Modify, op.now());
    dir.set_time(Time::Change, op.now());
}

/// ext4 counts no further in an indexed directory: it has 1 link then, forever.
fn counts_to_one(op: &Op<'_>, dir: &Inode) -> bool {
    let f = op.sb().features();
    f.has_ro_compat(ro_compat::DIR_NLINK) && f.has_compat(compat::DIR_INDEX) && dir.has(flags::INDEX)
}

/// A directory gets a child (N6).
///
/// # Errors
/// Too many links.
fn add_child(op: &Op<'_>, dir: &mut Inode) -> Result<()> {
    match dir.links() {
        1 => {}
        n if n < MAX_LINKS => dir.set_links(n + 1),
        _ if counts_to_one(op, dir) => dir.set_links(1),
        _ => return Err(Error::TooManyLinks),
    }
    Ok(())
}

/// A directory loses a child (N6).
fn remove_child(dir: &mut Inode) {
    if dir.links() > 2 {
        dir.set_links(dir.links() - 1);
    }
}

impl Volume {
    /// The end of a call: what an inode that is to be synchronous has changed is made durable (N10).
    pub(crate) fn settle(&self, sync: bool, tid: Tid) -> Result<()> {
        if sync { Ok(self.inner.journal.commit(tid)?) } else { Ok(()) }
    }
}
