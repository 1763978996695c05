//! References on inodes, and what becomes of an inode that has neither references nor links.
//!
//! *Guarantees*: an inode's pages are dropped before it is freed, and it is freed only without links and references
//! (N3).

use crate::data::{Data, drop_pages};
use crate::engine::Engine;
use crate::error::Error;
use crate::names::evict;
use crate::policy::{MAX_DEFERRED_SECTORS, MAX_PENDING};
use quire_layout::Ino;

/// Gives back `n` references. Returns true if none is left and the inode may have to be freed.
pub(super) fn drop_references(engine: &Engine, ino: Ino, n: u64) -> bool {
    let mut tables = engine.tables();
    let Some(refs) = tables.refs.get_mut(&ino) else { return false };
    *refs = refs.saturating_sub(n);
    if *refs > 0 {
        return false;
    }
    tables.refs.remove(&ino);
    tables.orphans.contains(ino)
}

/// Frees an inode that has neither links nor references, together with others if it is small.
pub(super) fn free_later(engine: &Engine, data: &Data, ino: Ino) {
    if engine.write_gate.check().is_err() {
        return;
    }
    match evict::sectors_to_free(engine, ino) {
        Ok(Some(sectors)) => {
            drop_pages(data, ino);
            // Callers would wait for a large one later. The thread that commits for others leaves it to them.
            if sectors > MAX_DEFERRED_SECTORS && !engine.journal.tells_here() {
                return evict::free_or_warn(engine, ino);
            }
        }
        Ok(None) | Err(Error::ReadOnly(_)) => return,
        Err(error) => return evict::warn_not_freed(ino, &error),
    }
    let pending = {
        let mut tables = engine.tables();
        tables.pending_evictions.push(ino);
        tables.pending_evictions.len()
    };
    let enough = if data.without().batched_frees { 1 } else { MAX_PENDING };
    if pending >= enough {
        evict::free_pending(engine);
    }
}

/// Frees an inode that has neither links nor references. An error leaves it an orphan for the next mount.
pub(super) fn free_now(engine: &Engine, data: &Data, ino: Ino) {
    match evict::sectors_to_free(engine, ino) {
        Ok(Some(_)) => {
            drop_pages(data, ino);
            evict::free_or_warn(engine, ino);
        }
        Ok(None) | Err(Error::ReadOnly(_)) => {}
        Err(error) => evict::warn_not_freed(ino, &error),
    }
}

/// After a freeze: frees the inodes that lost their last reference meanwhile.
pub(super) fn free_unused(engine: &Engine, data: &Data) {
    let unused: Vec<Ino> = {
        let mut tables = engine.tables();
        tables.pending_evictions.clear();
        tables.orphans.all().into_iter().filter(|ino| !tables.refs.contains_key(ino)).collect()
    };
    unused.into_iter().for_each(|ino| free_now(engine, data, ino));
}

/// At unmount, when nobody uses the volume any more: drops all references, frees what has no links, and ends truncates
/// that an error has stopped.
pub(super) fn free_all(engine: &Engine, data: &Data) {
    let orphans = {
        let mut tables = engine.tables();
        tables.refs.clear();
        tables.pending_evictions.clear();
        tables.orphans.all()
    };
    for ino in orphans {
        free_now(engine, data, ino);
        if engine.tables().orphans.contains(ino)
            && let Err(error) = evict::finish_truncate(engine, ino)
        {
            tracing::warn!(%ino, %error, "a truncate is not finished; the next mount will try again");
        }
    }
}
