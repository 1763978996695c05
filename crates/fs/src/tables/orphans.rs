//! Where each orphan is recorded on disk, so that one in the middle of the list is removed without a walk.
//!
//! *Relies on*: the metadata mutex, which guards the table; an operation collects its changes and
//! [`OrphanTable::apply`] applies them when the operation succeeds.

use quire_device::sync::Arc;
use quire_layout::number_map::NumberMap;
use quire_layout::{BlockNo, Ino};

/// Where an orphan is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum OrphanPlace {
    /// In the list; `prev` leads to it, or the superblock does.
    List { prev: Option<Ino> },
    /// In the orphan file.
    File { block: BlockNo, slot: usize },
}

/// The orphan file's blocks; they never move.
pub(crate) struct OrphanFile {
    pub(crate) blocks: Vec<BlockNo>,
    /// Seed of its blocks' checksums.
    pub(crate) seed: Option<u32>,
}

/// All orphans. Guarded by the metadata mutex; changed when an operation succeeds.
#[derive(Default)]
pub(crate) struct OrphanTable {
    pub(crate) places: NumberMap<Ino, OrphanPlace>,
    pub(crate) file: Option<Arc<OrphanFile>>,
    /// Slots in use of the orphan file.
    pub(crate) used: usize,
    /// Index of the orphan file's block that last had a free slot. A hint.
    pub(crate) block_with_room: usize,
}

impl OrphanTable {
    pub(crate) fn contains(&self, ino: Ino) -> bool {
        self.places.contains_key(&ino)
    }

    /// All orphans, in the order of their numbers.
    pub(crate) fn all(&self) -> Vec<Ino> {
        let mut all: Vec<Ino> = self.places.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// True if no slot of the orphan file is in use: then `orphan_present` may be cleared.
    pub(crate) fn file_is_empty(&self) -> bool {
        self.used == 0
    }

    /// Applies the changes of an operation, in their order.
    pub(crate) fn apply(&mut self, changes: Vec<(Ino, Option<OrphanPlace>)>) {
        for (ino, place) in changes {
            let is_slot = |p: &OrphanPlace| matches!(p, OrphanPlace::File { .. });
            let old = match place {
                Some(p) => {
                    self.used += usize::from(is_slot(&p));
                    self.places.insert(ino, p)
                }
                None => self.places.remove(&ino),
            };
            self.used -= usize::from(old.as_ref().is_some_and(is_slot));
        }
    }
}
