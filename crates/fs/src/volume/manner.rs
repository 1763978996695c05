//! How the calls through a handle run: whether they wait for metadata, and whether they make durable what flags ask
//! for.
//!
//! *Guarantees*: a call that ends with [`Error::Miss`](crate::Error::Miss) has changed nothing (L7).

use super::handle::Volume;
use crate::engine::{Manner, Misses};
use crate::error::Result;
use crate::txn::Op;
use quire_device::sync::Arc;
use quire_device::sync::atomic::Ordering;
use quire_layout::Tid;

/// A handle whose calls do not wait for metadata that is not in memory: those that can be made again from the beginning
/// end with [`Error::Miss`](crate::Error::Miss), before they have changed anything, and are to be made again after
/// [`load_then`](super::load_then). They are the calls on names, attributes and extended attributes,
/// [`begin_read`](super::begin_read) and [`attr_before_write`](super::attr_before_write). A change of the size ends
/// with one only before it begins. Where the device lets no caller go on while it reads, all calls wait.
#[must_use]
pub fn without_waiting(volume: &Volume) -> Volume {
    let can = volume.inner.engine.journal.gate().device().can_suspend_reads();
    Volume { misses: if can { Misses::Tell } else { Misses::Load }, ..volume.clone() }
}

/// A handle whose calls do not commit what flags of files and directories (`chattr +S`, `+D`) ask to be durable at
/// once: the caller does that ([`commit_then`](super::commit_then)), if [`commit_left`] says so.
#[must_use]
pub fn leaving_commits(volume: &Volume) -> Volume {
    Volume { left: Some(Arc::default()), ..volume.clone() }
}

/// The transaction whose commit a call through this handle has left to its caller.
#[must_use]
pub fn commit_left(volume: &Volume) -> Option<Tid> {
    let left = volume.left.as_ref()?.load(Ordering::Relaxed).checked_sub(1)?;
    Some(Tid(u32::try_from(left).expect("a transaction's number")))
}

/// The end of a call: makes durable what an inode with the flag `sync` or `dirsync` asks for (N10), or leaves that to
/// the caller.
///
/// # Errors
/// The commit failed.
pub(super) fn commit_if(volume: &Volume, sync: bool, tid: Tid) -> Result<()> {
    match &volume.left {
        _ if !sync => Ok(()),
        None => Ok(volume.inner.engine.journal.commit(tid)?),
        Some(left) => {
            left.store(u64::from(tid.0) + 1, Ordering::Relaxed);
            Ok(())
        }
    }
}

/// How the calls run operations.
pub(super) fn manner(volume: &Volume) -> Manner {
    Manner { pool: volume.pool, misses: volume.misses }
}

/// Runs an operation of a call.
///
/// # Errors
/// The operation's; nothing has then changed.
pub(super) fn run<T>(volume: &Volume, f: impl FnMut(&mut Op<'_>) -> Result<T>) -> Result<T> {
    Ok(volume.inner.engine.run_as(manner(volume), f)?.0)
}
