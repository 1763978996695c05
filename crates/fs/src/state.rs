//! What the metadata mutex guards besides block images.
//!
//! Nothing here may change inside an operation except in ways that survive its being undone (hints); what must
//! follow an operation's success is collected in [`Deferred`] and applied by `Op::stop`.

use crate::alloc::{AllocState, Delta};
use quire_layout::{Ino, Tid};
use std::collections::HashMap;

/// In-memory state of a volume. Guarded by the metadata mutex (lock 2 of docs/design.md).
#[derive(Default)]
pub(crate) struct FsState {
    /// Users' references on inodes (lookups, open files). An inode without links lives until this is gone.
    pub refs: HashMap<Ino, u64>,
    /// Free space, and who has claimed or reserved some of it.
    pub alloc: AllocState,
}

/// What an operation does beyond block images, applied when it succeeds.
#[derive(Default)]
pub(crate) struct Deferred {
    /// Blocks and inodes taken, freed, claimed and reserved.
    pub alloc: Delta,
    /// References to add to inodes.
    pub refs: Vec<Ino>,
}

impl FsState {
    /// Applies what an operation that joined `tid` has collected.
    pub(crate) fn apply(&mut self, d: Deferred, tid: Tid) {
        self.alloc.apply(d.alloc, tid);
        for ino in d.refs {
            *self.refs.entry(ino).or_default() += 1;
        }
    }
}
