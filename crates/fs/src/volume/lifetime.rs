//! References on inodes, and what becomes of an inode that has neither references nor links.
//!
//! *Guarantees*: an inode's pages are dropped before it is freed, by the one thread that has claimed it, and it is
//! freed only without links and references (N3).

use crate::data::{Data, drop_pages};
use crate::engine::Engine;
use crate::error::Error;
use crate::names::evict;
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

/// Frees an inode whose last reference or link has gone, or leaves that to another thread if this one may not.
pub(super) fn free_unreferenced(engine: &Engine, data: &Data, ino: Ino) {
    if engine.write_gate.check().is_err() {
        return;
    }
    if evict::may_free(engine) {
        free_now(engine, data, ino);
    } else if begin_free(engine, data, ino) {
        engine.tables().pending_evictions.push(ino);
    }
}

/// Frees an inode that has neither links nor references. An error leaves it an orphan for the next mount.
fn free_now(engine: &Engine, data: &Data, ino: Ino) {
    if begin_free(engine, data, ino) {
        evict::free_or_warn(engine, ino);
    }
}

/// Claims an inode that has neither links nor references, and drops its pages; false for others, and if another thread
/// has claimed it.
fn begin_free(engine: &Engine, data: &Data, ino: Ino) -> bool {
    match evict::claim_unused(engine, ino) {
        Ok(true) => drop_pages(data, ino),
        Ok(false) | Err(Error::ReadOnly(_)) => return false,
        Err(error) => {
            evict::warn_not_freed(ino, &error);
            return false;
        }
    }
    true
}

/// After a freeze: frees the inodes that lost their last reference meanwhile. Calls are admitted again, so other
/// threads free inodes at the same time; each is freed by the thread that claims it.
pub(super) fn free_unused(engine: &Engine, data: &Data) {
    let unused: Vec<Ino> = {
        let tables = engine.tables();
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
        tables.evicting.clear();
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
