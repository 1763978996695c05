//! A handle: one atomic set of changes to block images.
//!
//! Guarantees: [`Handle::stop`] joins all changes to the running transaction; dropping the handle without it
//! brings every image back (J4). No I/O happens inside: a block that is not in memory is `None`, and the caller
//! unwinds, loads it and begins again. The handle holds the core's lock for its whole life.

use crate::core::Core;
use quire_cache::{BlockKind, Image, Saved};
use quire_device::sync::{Arc, MutexGuard};
use quire_device::{Buf, Epoch};
use quire_layout::{BlockNo, Tid};
use std::collections::BTreeMap;

/// A block as it was before the handle first touched it.
struct Undo {
    saved: Option<Saved>,
    in_running: bool,
    revoked: bool,
    /// Its new content is file data.
    data: bool,
}

/// Why a change was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Touch {
    /// The block is not in memory; load it and begin again.
    Miss(BlockNo),
    /// The journal has been aborted.
    Aborted,
}

/// One atomic set of changes.
pub struct Handle<'a> {
    core: MutexGuard<'a, Core>,
    undo: BTreeMap<BlockNo, Undo>,
    /// Data in place that has to be durable before the transaction.
    after: Option<Epoch>,
    /// Most blocks that a transaction may hold.
    limit: usize,
}

/// The transaction has no room for this handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full {
    /// The handle alone is larger than any transaction may be.
    pub never_fits: bool,
    pub blocks: usize,
}

impl<'a> Handle<'a> {
    pub(crate) fn new(core: MutexGuard<'a, Core>, limit: usize) -> Self {
        Handle { core, undo: BTreeMap::new(), after: None, limit }
    }

    /// The current image of a block; `None` if it is not in memory.
    pub fn read(&mut self, b: BlockNo) -> Option<Image> {
        let image = self.core.image(b);
        self.core.hits += u64::from(image.is_some());
        image
    }

    /// True if the current bytes have been checked to be this since they came into memory, and nothing else after that.
    #[must_use]
    pub fn is_verified(&self, b: BlockNo, kind: BlockKind) -> bool {
        self.core.cache.is_verified(b, kind)
    }

    pub fn set_verified(&mut self, b: BlockNo, kind: BlockKind) {
        self.core.cache.set_verified(b, kind);
    }

    /// Writable bytes of a block that is in memory; joins the transaction.
    ///
    /// # Errors
    /// The block is not in memory, or the journal is aborted.
    pub fn write(&mut self, b: BlockNo) -> Result<&mut Buf, Touch> {
        if self.core.aborted.is_some() {
            return Err(Touch::Aborted);
        }
        if self.core.image(b).is_none() {
            return Err(Touch::Miss(b));
        }
        self.remember(b).data = false;
        self.core.join(b);
        Ok(self.core.cache.make_mut(b).expect("in memory"))
    }

    /// Makes file data a block's whole content; what it was need not be in memory. Joins the transaction.
    ///
    /// # Errors
    /// The journal is aborted.
    pub fn put(&mut self, b: BlockNo, image: Image) -> Result<(), Touch> {
        self.replace(b, image)?.data = true;
        Ok(())
    }

    /// As [`Handle::put`], of data new to its file, which could have gone in place: what becomes of it is counted.
    ///
    /// # Errors
    /// The journal is aborted.
    pub fn put_new_data(&mut self, b: BlockNo, image: Image) -> Result<(), Touch> {
        self.put(b, image)?;
        self.core.running.new_data.insert(b);
        Ok(())
    }

    /// Writable zeros (`len` bytes) for a block of metadata that was newly allocated. Joins the transaction.
    ///
    /// # Errors
    /// The journal is aborted.
    pub fn put_zeroed(&mut self, b: BlockNo, len: usize) -> Result<&mut Buf, Touch> {
        self.replace(b, Arc::new(Buf::zeroed(len)))?.data = false;
        Ok(self.core.cache.make_mut(b).expect("just put"))
    }

    fn replace(&mut self, b: BlockNo, image: Image) -> Result<&mut Undo, Touch> {
        if self.core.aborted.is_some() {
            return Err(Touch::Aborted);
        }
        self.remember(b);
        self.core.cache.set(b, image, None);
        self.core.join(b);
        Ok(self.undo.get_mut(&b).expect("remembered"))
    }

    /// The transaction names data that was written in place, complete at `stamp`: that has to be durable first (Q5).
    pub fn after_data(&mut self, stamp: Epoch) {
        self.after = self.after.max(Some(stamp));
    }

    /// A block was freed: it leaves the transaction and the cache; if a record of it is in the log, or on its way
    /// there, it is revoked.
    pub fn forget(&mut self, b: BlockNo) {
        let live = self.core.is_live(b);
        if !live && !self.core.cache.contains(b) {
            return;
        }
        self.remember(b);
        if self.core.running.blocks.remove(&b) {
            self.core.cache.unpin(b);
        }
        self.core.cache.remove(b);
        if live {
            self.core.running.revokes.insert(b);
        }
    }

    /// True if a record of this block is in the log or will be, so that an in-place write must not happen.
    #[must_use]
    pub fn is_journaled(&self, b: BlockNo) -> bool {
        self.core.is_live(b) || self.core.running.blocks.contains(&b)
    }

    /// The transaction that this handle will join.
    #[must_use]
    pub fn tid(&self) -> Tid {
        self.core.running.tid
    }

    /// Blocks that this handle has changed.
    #[must_use]
    pub fn touched(&self) -> usize {
        self.undo.len()
    }

    /// True if nothing may change any more; it stays as it is while the handle lives.
    #[must_use]
    pub fn is_aborted(&self) -> bool {
        self.core.aborted.is_some()
    }

    /// True if the transaction has room for what this handle has changed so far, and for changes of `more` blocks.
    #[must_use]
    pub fn has_room_for(&self, more: usize) -> bool {
        let running = &self.core.running;
        share(running.blocks.len() + more, running.revokes.len()) <= self.limit
    }

    fn remember(&mut self, b: BlockNo) -> &mut Undo {
        let core = &self.core;
        self.undo.entry(b).or_insert_with(|| Undo {
            saved: core.cache.save(b),
            in_running: core.running.blocks.contains(&b),
            revoked: core.running.revokes.contains(&b),
            data: core.running.data.contains(&b),
        })
    }

    /// Notes for the commit what the records of the changed blocks may be written over.
    fn note_bases(&mut self) {
        let core = &mut *self.core;
        for (b, u) in std::mem::take(&mut self.undo) {
            if !core.running.blocks.contains(&b) {
                core.running.data.remove(&b);
                core.running.bases.remove(&b);
                continue;
            }
            if u.data {
                core.running.data.insert(b);
            } else {
                core.running.data.remove(&b);
            }
            if !u.in_running && core.running.bases.len() < core.keep_bases && !core.is_live(b) {
                // No transaction had changed it: it is what lies at home (Q3).
                core.running.bases.extend(u.saved.map(|s| (b, s.into_image())));
            }
        }
    }

    /// Ends the handle; its changes are part of the transaction that is returned.
    ///
    /// # Errors
    /// The transaction has no room; every image has been brought back.
    pub fn stop(mut self) -> Result<Tid, Full> {
        if self.undo.is_empty() {
            self.core.running.after = self.core.running.after.max(self.after);
            return Ok(self.core.running.tid);
        }
        if !self.has_room_for(0) {
            let running = &self.core.running;
            // Blocks that it only forgets take no room.
            let blocks = self.undo.keys().filter(|b| running.blocks.contains(b)).count();
            let revokes = self.undo.keys().filter(|b| running.revokes.contains(b)).count();
            let mine = share(blocks, revokes);
            return Err(Full { never_fits: mine > self.limit, blocks: mine });
        }
        self.note_bases();
        self.core.running.after = self.core.running.after.max(self.after);
        self.core.running.handles += 1;
        Ok(self.core.running.tid)
    }
}

/// Room that blocks and revokes take in a transaction, in blocks.
fn share(blocks: usize, revokes: usize) -> usize {
    blocks + revokes / 64
}

impl Drop for Handle<'_> {
    /// Brings back what was, unless [`Handle::stop`] has made it so. What it has read may be evicted from now on.
    fn drop(&mut self) {
        let core = &mut *self.core;
        for (b, u) in std::mem::take(&mut self.undo) {
            core.cache.restore(b, u.saved);
            if u.in_running {
                core.running.blocks.insert(b);
            } else {
                core.running.blocks.remove(&b);
            }
            if u.revoked {
                core.running.revokes.insert(b);
            } else {
                core.running.revokes.remove(&b);
            }
        }
        core.cache.evict();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_device::sync::{Mutex, lock};

    #[test]
    fn what_a_handle_has_found_in_memory_stays_there_while_it_lasts() {
        let image = || Image::new(Buf::zeroed(1024));
        let mut core = Core::new(64, Tid(1));
        for n in 0..300 {
            core.cache.set(BlockNo(n), image(), None);
            core.join(BlockNo(n));
        }
        let txn = core.close(std::time::Duration::ZERO);
        core.committed(&txn, 301, None);
        core.cache.insert_clean(BlockNo(1000), image());
        assert!(core.image(BlockNo(1000)).is_some());
        // More than the cache has room for, of which the log has the images.
        for round in 0..3 {
            (0..300).for_each(|n| assert!(core.image(BlockNo(n)).is_some(), "{n}"));
            assert!(core.cache.contains(BlockNo(1000)), "round {round}");
        }
        assert!(core.cache.len() > 300);
        let core = Mutex::new(core);
        drop(Handle::new(lock(&core), 100));
        assert!(lock(&core).cache.len() <= 64, "then the bound holds again");
    }
}
