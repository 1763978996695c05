//! The end of an inode: references given back, blocks freed, the record cleared.
//!
//! ```text
//! last link gone ──> orphan ──last reference gone──> drop pages ──> waits for company ──> free blocks, some per operation
//!                                                                                      ──> free inode, not an orphan
//! ```
//! Neighbours share an inode table block, bitmaps and the orphan list: freed in one operation, each of these blocks is copied once for
//! many. So inodes wait until there are a few and nobody waits for us ([`Volume::tidy`]), or more ([`TOGETHER`]), or somebody asks for
//! durability, for space, or for how much there is, or the background comes by.
//! Guarantees: an inode is freed once, and only without links and references (N3); it stays an orphan until the operation
//! that frees it (N1), so that an eviction that ends early, for whatever reason, is continued at the next mount.

use crate::alloc;
use crate::attr::Attr;
use crate::error::{Error, Result};
use crate::map;
use crate::op::Op;
use crate::orphan;
use crate::volume::Volume;
use crate::xattr;
use quire_device::sync::lock;
use quire_layout::inode::{Inode, flags};
use quire_layout::{FileBlock, Ino};

/// Inodes that wait, at most.
const TOGETHER: usize = 16;
/// So many are freed in a moment in which nobody waits for us.
const FEW: usize = 2;
/// Sectors of an inode that may wait: freeing it takes no longer than one operation or two.
const SMALL: u64 = 8 << 20 >> 9;

impl Volume {
    /// At unmount nobody uses anything any more: all references go, and with them what has no links.
    pub(crate) fn forget_all(&self) {
        let unused = {
            let mut state = lock(&self.inner.state);
            state.refs.clear();
            state.doomed.clear();
            state.orphans.all()
        };
        for ino in unused {
            self.evict(ino);
            // A truncate that met an error; it may fare better now.
            if lock(&self.inner.state).orphans.contains(ino)
                && let Err(error) = self.finish_truncate(ino)
            {
                tracing::warn!(%ino, %error, "a truncate is not finished; the next mount will try again");
            }
        }
    }

    /// After a thaw: frees what lost its last reference meanwhile.
    pub(crate) fn evict_unused(&self) {
        let unused: Vec<Ino> = {
            let mut state = lock(&self.inner.state);
            state.doomed.clear();
            state.orphans.all().into_iter().filter(|ino| !state.refs.contains_key(ino)).collect()
        };
        for ino in unused {
            self.evict(ino);
        }
    }

    /// Gives back `n` references on an inode. When none is left and it has no links, it is freed soon; on a frozen volume after
    /// the thaw, so that this never waits.
    pub fn forget(&self, ino: Ino, n: u64) {
        let unused = {
            let mut state = lock(&self.inner.state);
            let Some(refs) = state.refs.get_mut(&ino) else { return };
            *refs = refs.saturating_sub(n);
            if *refs > 0 {
                return;
            }
            state.refs.remove(&ino);
            state.orphans.contains(ino)
        };
        if !unused || self.inner.check_writable().is_err() {
            return;
        }
        match self.abandon(ino) {
            Ok(Some(sectors)) if sectors <= SMALL => {}
            Ok(None) | Err(Error::ReadOnly(_)) => return,
            // Others would wait for it.
            Ok(Some(_)) => return self.evict(ino),
            Err(error) => return not_freed(ino, &error),
        }
        let many = {
            let mut state = lock(&self.inner.state);
            state.doomed.push(ino);
            state.doomed.len() >= TOGETHER
        };
        if many {
            self.free_doomed();
        }
    }

    /// Does a little of what waits for a better moment, some microseconds of it: for callers who have answered a request, and expect that the
    /// next one takes longer to come.
    pub fn tidy(&self) {
        if lock(&self.inner.state).doomed.len() >= FEW {
            self.free_doomed();
        }
    }

    /// Frees what waits to be freed. True if there was something. Takes no file's lock.
    pub(crate) fn free_doomed(&self) -> bool {
        // A frozen volume does this after the thaw; in a batch there may be no room for it.
        if self.inner.check_writable().is_err() || self.inner.journal.is_held_here() {
            return false;
        }
        let mut doomed = std::mem::take(&mut lock(&self.inner.state).doomed);
        if doomed.is_empty() {
            return false;
        }
        // The last one stands first in the orphan list, and is taken off there without a look at others.
        doomed.reverse();
        if self.free_together(&doomed).is_err() {
            // One of them is damaged, or the volume; by itself each tells what is wrong with it.
            doomed.iter().for_each(|ino| self.evict(*ino));
        }
        true
    }

    /// Frees an inode that has neither links nor references. An error leaves it an orphan for the next mount.
    pub(crate) fn evict(&self, ino: Ino) {
        match self.free_unlinked(ino) {
            Ok(()) | Err(Error::ReadOnly(_)) => {}
            Err(error) => not_freed(ino, &error),
        }
    }

    /// As [`Volume::evict`].
    ///
    /// # Errors
    /// Corrupt, I/O, read-only.
    pub(crate) fn free_unlinked(&self, ino: Ino) -> Result<()> {
        if self.abandon(ino)?.is_some() { self.free_together(&[ino]) } else { Ok(()) }
    }

    /// Forgets the data of an inode that has neither links nor references; tells the space it takes on disk, in sectors. `None` if it
    /// has, or is none of ours: a file being truncated is an orphan, too.
    fn abandon(&self, ino: Ino) -> Result<Option<u64>> {
        let doomed = self.run(|op| {
            let inode = op.inode(ino)?;
            Ok(is_doomed(op, ino, &inode).then(|| Attr::of(op.sb(), ino, &inode).sectors))
        })?;
        if doomed.is_some() {
            self.drop_pages(ino);
        }
        Ok(doomed)
    }

    /// Frees abandoned inodes. On an error some are not freed.
    fn free_together(&self, inos: &[Ino]) -> Result<()> {
        let (budget, mut left) = (self.budget(), inos);
        while !left.is_empty() {
            let done = self.run(|op| {
                for (n, ino) in left.iter().enumerate() {
                    if op.touched() >= budget || evict_some(op, *ino, budget - op.touched())? {
                        return Ok(n);
                    }
                }
                Ok(left.len())
            })?;
            left = &left[done..];
        }
        Ok(())
    }

    /// Ends a truncate that a crash interrupted: nothing is mapped behind the file's size.
    ///
    /// # Errors
    /// Corrupt, I/O, read-only.
    pub(crate) fn finish_truncate(&self, ino: Ino) -> Result<()> {
        let (budget, mut done) = (self.budget(), false);
        while !done {
            done = self.run(|op| {
                let mut inode = op.inode(ino)?;
                if inode.links() == 0 {
                    return Ok(true);
                }
                let from = op.sb().block_size().blocks_for(inode.size());
                if inode.is_file() && has_map(&inode) && !remove_blocks(op, ino, &mut inode, from, budget)? {
                    op.put_inode(ino, &mut inode)?;
                    return Ok(false);
                }
                orphan::remove(op, ino, &mut inode)?;
                op.put_inode(ino, &mut inode)?;
                Ok(true)
            })?;
        }
        Ok(())
    }
}

fn not_freed(ino: Ino, error: &Error) {
    tracing::warn!(%ino, %error, "an unlinked inode could not be freed; the next mount will try again");
}

/// N3: no links, no references, and not freed yet.
fn is_doomed(op: &Op<'_>, ino: Ino, inode: &Inode) -> bool {
    inode.links() == 0 && op.refs(ino) == 0 && orphan::is_orphan(op, ino)
}

/// True if `i_block` is a block map.
pub(crate) fn has_map(inode: &Inode) -> bool {
    if inode.has(flags::INLINE_DATA) {
        return false;
    }
    inode.is_file() || inode.is_dir() || (inode.is_symlink() && !crate::inode_ops::is_fast_symlink(inode))
}

/// Unmaps what lies at `from` and after, some of it; true if nothing is left.
fn remove_blocks(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, from: u64, budget: usize) -> Result<bool> {
    let Ok(from) = u32::try_from(from) else { return Ok(true) };
    Ok(map::remove(op, ino, inode, FileBlock(from), FileBlock(u32::MAX), budget)?.next.is_none())
}

/// One operation of an eviction; true if there is more to do.
pub(crate) fn evict_some(op: &mut Op<'_>, ino: Ino, budget: usize) -> Result<bool> {
    let mut inode = op.inode(ino)?;
    if !is_doomed(op, ino, &inode) {
        return Ok(false);
    }
    let mapped = has_map(&inode);
    if mapped {
        // What a symbolic link says with its size would be a fast one's.
        let whole = remove_blocks(op, ino, &mut inode, 0, budget)?;
        if !inode.is_symlink() {
            inode.set_size(0);
        }
        if !whole {
            op.put_inode(ino, &mut inode)?;
            return Ok(true);
        }
    }
    xattr::release(op, ino, &mut inode)?;
    orphan::remove(op, ino, &mut inode)?;
    alloc::free_inode(op, ino, inode.is_dir())?;
    inode.set_size(0);
    inode.set_dtime(deletion_time(op));
    op.put_inode(ino, &mut inode)?;
    op.deferred.gone.push(ino);
    Ok(false)
}

/// Seconds, but never what could be taken for an inode number of the orphan list.
fn deletion_time(op: &Op<'_>) -> u32 {
    let now = u32::try_from(op.now().secs).unwrap_or(u32::MAX);
    now.max(op.sb().inodes_count().saturating_add(1))
}
