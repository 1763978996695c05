//! The end of an inode: its blocks are freed, its record is cleared.
//!
//! ```text
//! last link removed ──> orphan ──last reference given back──> claimed ──> pages dropped ──> freed
//! ```
//! The thread that gives the last reference back frees the inode. In a batch and in a callback of the journal it may
//! not ([`may_free`]); then the inode is pending until a caller asks for space or for the free space, until a freeze,
//! or until the background thread comes by. A thaw frees what lost its last reference during the freeze.
//!
//! *Guarantees*: an inode is freed once, and only without links and references (N3). One thread claims it before its
//! pages are dropped ([`claim_unused`]), and the claim ends in the operation that frees it. Otherwise a second thread
//! could find the inode unused, and drop the pages when the number belongs to a new file. An inode stays an orphan
//! until the operation that frees it (N1), so that the next mount continues an eviction that ended early.
//!
//! *Relies on*: the layer above has claimed an inode and dropped its pages before the inode is pending.

use super::orphan;
use crate::engine::Engine;
use crate::error::{Error, Result};
use crate::inode::{check_usable, is_fast_symlink};
use crate::map;
use crate::records;
use crate::space;
use crate::txn::Op;
use crate::xattr;
use quire_device::Mutant;
use quire_layout::inode::{Inode, flags};
use quire_layout::{FileBlock, Ino};

/// Claims an inode that must be freed: true if the caller has to drop its pages and free it. False if it has links or
/// references, is only being truncated, or is another thread's to free.
///
/// # Errors
/// Corrupt; I/O.
pub(crate) fn claim_unused(engine: &Engine, ino: Ino) -> Result<bool> {
    engine.run(|op| {
        let inode = records::inode(op, ino)?;
        let is_others = op.tables().evicting.contains(&ino) && !Mutant::EvictedByTwo.is_on();
        let claims = is_evictable(op, ino, &inode) && !is_others;
        op.deferred.evicts = claims.then_some(ino);
        Ok(claims)
    })
}

/// True if this thread may free inodes that another operation of it has left. In a batch the transaction may have no
/// room for that; the thread that commits for others would wait for itself if there is no room.
pub(crate) fn may_free(engine: &Engine) -> bool {
    !engine.journal.is_held_here() && !engine.journal.tells_here()
}

/// Frees the inodes that wait for eviction. Returns true if there were any. Takes no file lock.
pub(crate) fn free_pending(engine: &Engine) -> bool {
    // A frozen volume does this after the thaw.
    if engine.write_gate.check().is_err() || !may_free(engine) {
        return false;
    }
    let pending = std::mem::take(&mut engine.tables().pending_evictions);
    pending.iter().for_each(|ino| free_or_warn(engine, *ino));
    !pending.is_empty()
}

/// Frees an inode that the caller has claimed. An error leaves it an orphan for the next thaw, unmount or mount.
pub(crate) fn free_or_warn(engine: &Engine, ino: Ino) {
    let Err(error) = free(engine, ino) else { return };
    engine.tables().evicting.remove(&ino);
    if !matches!(error, Error::ReadOnly(_)) {
        warn_not_freed(ino, &error);
    }
}

pub(crate) fn warn_not_freed(ino: Ino, error: &Error) {
    tracing::warn!(%ino, %error, "an unlinked inode could not be freed; the next mount will try again");
}

/// Frees an inode, if it has neither links nor references.
///
/// # Errors
/// Corrupt; I/O; read-only. The inode may then have lost some of its blocks.
pub(crate) fn free(engine: &Engine, ino: Ino) -> Result<()> {
    let budget = engine.step_budget();
    while engine.run(|op| evict_some(op, ino, budget))? {}
    Ok(())
}

/// Ends a truncate that a crash interrupted: afterwards nothing is mapped behind the file's size, and its last block
/// has zeros behind it (F3), which the kernel writes after its first transaction.
///
/// # Errors
/// Corrupt; I/O; read-only.
pub(crate) fn finish_truncate(engine: &Engine, ino: Ino) -> Result<()> {
    let budget = engine.step_budget();
    // First, and by itself: where the last block cannot be read, nothing is mapped behind it at least.
    while !engine.run(|op| unmap_behind(op, ino, budget))? {}
    engine.run(|op| {
        let mut inode = records::inode(op, ino)?;
        if inode.links() == 0 {
            return Ok(());
        }
        if inode.is_file() && has_map(op, &inode) {
            map::clear_tail(op, ino, &inode, inode.size())?;
        }
        orphan::remove(op, ino, &mut inode)?;
        records::put_inode(op, ino, &mut inode)
    })
}

/// Unmaps some of the blocks behind the end of a file that has links; true if none is left.
fn unmap_behind(op: &mut Op<'_>, ino: Ino, budget: usize) -> Result<bool> {
    let mut inode = records::inode(op, ino)?;
    if inode.links() == 0 || !inode.is_file() || !has_map(op, &inode) {
        return Ok(true);
    }
    let (before, from) = (inode.clone(), op.sb().block_size().blocks_for(inode.size()));
    let whole = remove_blocks(op, ino, &mut inode, from, budget)?;
    if inode != before {
        records::put_inode(op, ino, &mut inode)?;
    }
    Ok(whole)
}

/// N3: the inode has no links and no references, and is not freed yet.
fn is_evictable(op: &Op<'_>, ino: Ino, inode: &Inode) -> bool {
    inode.links() == 0 && op.refs(ino) == 0 && orphan::is_orphan(op, ino)
}

/// True if `i_block` is a block map.
fn has_map(op: &Op<'_>, inode: &Inode) -> bool {
    if inode.has(flags::INLINE_DATA) {
        return false;
    }
    inode.is_file() || inode.is_dir() || (inode.is_symlink() && !is_fast_symlink(op.sb(), inode))
}

/// Unmaps some of the blocks from `from` on; true if none is left.
fn remove_blocks(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, from: u64, budget: usize) -> Result<bool> {
    let Ok(from) = u32::try_from(from) else { return Ok(true) };
    Ok(map::remove(op, ino, inode, FileBlock(from), FileBlock(u32::MAX), budget)?.next.is_none())
}

/// One operation of an eviction; true if more operations must follow.
pub(super) fn evict_some(op: &mut Op<'_>, ino: Ino, budget: usize) -> Result<bool> {
    let mut inode = records::inode(op, ino)?;
    if !is_evictable(op, ino, &inode) {
        return Ok(false);
    }
    check_usable(op, ino, &inode)?;
    if has_map(op, &inode) {
        let whole = remove_blocks(op, ino, &mut inode, 0, budget)?;
        // With size 0 a symbolic link would count as a fast one.
        if !inode.is_symlink() {
            inode.set_size(0);
        }
        if !whole {
            records::put_inode(op, ino, &mut inode)?;
            return Ok(true);
        }
    }
    xattr::release(op, ino, &mut inode)?;
    orphan::remove(op, ino, &mut inode)?;
    space::free_inode(op, ino, inode.is_dir())?;
    inode.set_size(0);
    inode.set_dtime(deletion_time(op));
    records::put_inode(op, ino, &mut inode)?;
    op.deferred.freed_inodes.push(ino);
    Ok(false)
}

/// The deletion time in seconds, but never a value that could be taken for an inode number of the orphan list.
fn deletion_time(op: &Op<'_>) -> u32 {
    let now = u32::try_from(op.now().secs).unwrap_or(u32::MAX);
    now.max(op.sb().inodes_count().saturating_add(1))
}
