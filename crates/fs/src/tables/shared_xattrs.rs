//! Extended attribute blocks by content, so that inodes with equal attributes share one (N4).
//!
//! *Guarantees*: an entry is a hint: its block is an attribute block, whose content the caller must compare.
//! A freed block is forgotten at once.
//!
//! *Relies on*: the metadata mutex.

use quire_layout::BlockNo;
use std::collections::HashMap;

/// Blocks that are remembered for sharing.
const REMEMBERED: usize = 4096;

/// Attribute blocks by content. Hints: what is found must be compared. A block that is freed is forgotten at once, so
/// what is found is an attribute block.
#[derive(Default)]
pub(crate) struct SharedXattrBlocks {
    by_key: HashMap<u32, BlockNo>,
    pub(crate) key_of: HashMap<BlockNo, u32>,
}

impl SharedXattrBlocks {
    pub(crate) fn find(&self, key: u32) -> Option<BlockNo> {
        self.by_key.get(&key).copied()
    }

    pub(crate) fn forget(&mut self, b: BlockNo) {
        if let Some(key) = self.key_of.remove(&b) {
            self.by_key.remove(&key);
        }
    }

    pub(crate) fn apply(&mut self, written: Vec<(u32, BlockNo)>) {
        for (key, b) in written {
            self.forget(b);
            if self.key_of.len() >= REMEMBERED {
                *self = SharedXattrBlocks::default();
            }
            if let Some(before) = self.by_key.insert(key, b) {
                self.key_of.remove(&before);
            }
            self.key_of.insert(b, key);
        }
    }
}
