//! What the metadata mutex guards besides block images.
//!
//! Nothing here may change inside an operation except in ways that survive its being undone (hints); what must
//! follow an operation's success is collected in [`Deferred`] and applied by `Op::stop`.

use quire_layout::{BlockNo, Ino, Tid};
use std::collections::HashMap;

/// In-memory state of a volume. Guarded by the metadata mutex (lock 2 of docs/design.md).
#[derive(Default)]
pub(crate) struct FsState {
    /// Users' references on inodes (lookups, open files). An inode without links lives until this is gone.
    pub refs: HashMap<Ino, u64>,
    /// Free blocks (clusters), free inodes: sums over the groups.
    pub free_blocks: u64,
    pub free_inodes: u64,
}

/// What an operation does beyond block images, applied when it succeeds.
#[derive(Default)]
pub(crate) struct Deferred {
    /// Runs freed, not reusable before the transaction is durable.
    pub freed: Vec<(BlockNo, u32)>,
    pub free_blocks: i64,
    pub free_inodes: i64,
    /// References to add to inodes.
    pub refs: Vec<Ino>,
}

impl FsState {
    /// Applies what an operation that joined `tid` has collected.
    pub(crate) fn apply(&mut self, d: Deferred, _tid: Tid) {
        self.free_blocks = self.free_blocks.saturating_add_signed(d.free_blocks);
        self.free_inodes = self.free_inodes.saturating_add_signed(d.free_inodes);
        for ino in d.refs {
            *self.refs.entry(ino).or_default() += 1;
        }
    }
}
