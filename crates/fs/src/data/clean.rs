//! Clean pages: what lies on disk, kept for writes of less than a block.
//!
//! The kernel has a page cache above us, so this is small: it spares an appender the reading of its last block.
//! Guarantees F7: a page here is what the file's block on disk holds. Whoever changes the block, or to which block the
//! file maps, takes the page out first.

use quire_cache::Image;
use quire_layout::{FileBlock, Ino};
use std::collections::{BTreeMap, VecDeque};

/// Clean pages of all files, the oldest leave first.
pub(super) struct CleanPages {
    pages: BTreeMap<(Ino, FileBlock), Entry>,
    /// Keys with the number under which each was put in; entries that are gone or newer are stale.
    order: VecDeque<(u64, Ino, FileBlock)>,
    next: u64,
    capacity: usize,
}

struct Entry {
    image: Image,
    number: u64,
}

impl CleanPages {
    pub(super) fn new(capacity: usize) -> Self {
        CleanPages { pages: BTreeMap::new(), order: VecDeque::new(), next: 0, capacity }
    }

    pub(super) fn insert(&mut self, ino: Ino, b: FileBlock, image: Image) {
        let number = self.next;
        self.next += 1;
        self.pages.insert((ino, b), Entry { image, number });
        self.order.push_back((number, ino, b));
        while self.pages.len() > self.capacity || self.order.len() > 2 * self.capacity {
            let (number, ino, b) = self.order.pop_front().expect("each page stands in the order");
            if self.pages.get(&(ino, b)).is_some_and(|e| e.number == number) {
                self.pages.remove(&(ino, b));
            }
        }
    }

    pub(super) fn has(&self, ino: Ino, b: FileBlock) -> bool {
        self.pages.contains_key(&(ino, b))
    }

    /// Takes a page out.
    pub(super) fn take(&mut self, ino: Ino, b: FileBlock) -> Option<Image> {
        self.pages.remove(&(ino, b)).map(|e| e.image)
    }

    /// Drops the pages of a file from `from` on.
    pub(super) fn drop_from(&mut self, ino: Ino, from: FileBlock) {
        self.drop_range(ino, from, FileBlock(u32::MAX));
    }

    /// Drops the pages of a file from `from` to before `to`.
    pub(super) fn drop_range(&mut self, ino: Ino, from: FileBlock, to: FileBlock) {
        if from >= to {
            return;
        }
        let keys: Vec<_> = self.pages.range((ino, from)..(ino, to)).map(|(k, _)| *k).collect();
        for k in keys {
            self.pages.remove(&k);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quire_device::Buf;
    use quire_device::sync::Arc;

    #[test]
    fn the_oldest_leave_and_ranges_are_dropped() {
        let mut c = CleanPages::new(4);
        let page = || Arc::new(Buf::zeroed(512));
        for n in 0..100 {
            c.insert(Ino(12), FileBlock(n % 6), page());
        }
        assert_eq!(c.pages.len(), 4);
        assert!(c.order.len() <= 8);
        assert!(c.has(Ino(12), FileBlock(3)) && !c.has(Ino(13), FileBlock(3)));
        assert!(c.take(Ino(12), FileBlock(3)).is_some() && c.take(Ino(12), FileBlock(3)).is_none());
        c.insert(Ino(13), FileBlock(0), page());
        c.drop_from(Ino(12), FileBlock(0));
        assert!(c.take(Ino(13), FileBlock(0)).is_some() && c.pages.is_empty());
    }
}
