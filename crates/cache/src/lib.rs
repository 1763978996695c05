//! Block images by block number.
//!
//! Guarantees: at most `capacity` images stay that nothing pins; a pinned image is never evicted. Relies on its
//! owner to say what is pinned (a block of a transaction, or live in the log) and guards nothing itself: it
//! lives inside the journal's core, under that lock.
//!
//! An image is an `Arc`: whoever clones it keeps these bytes; a change made through [`BlockCache::make_mut`]
//! then copies. Eviction is the clock algorithm: one reference bit, one queue.
#![forbid(unsafe_code)]

use quire_device::Buf;
use quire_device::sync::Arc;
use quire_layout::BlockNo;
use quire_layout::number_map::NumberMap;
use std::collections::VecDeque;

/// The bytes of a block at one point in time.
pub type Image = Arc<Buf>;

struct Entry {
    image: Image,
    /// Reasons why this may not be evicted.
    pins: u32,
    /// Used since the clock hand last passed.
    used: bool,
    /// What the owner has checked these bytes to be.
    verified: Option<BlockKind>,
}

/// A kind of structure, by a number of the owner's: a block that was checked as one kind is not thereby one of another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockKind(pub u8);

/// An entry taken out of the cache, to be put back as it was.
pub struct Saved {
    image: Image,
    pins: u32,
    verified: Option<BlockKind>,
}

impl Saved {
    /// The bytes as they were.
    #[must_use]
    pub fn into_image(self) -> Image {
        self.image
    }
}

/// Images by block number, bounded.
pub struct BlockCache {
    entries: NumberMap<BlockNo, Entry>,
    /// The clock. Each entry stands here at least once; what stands here without an entry is stale.
    queue: VecDeque<BlockNo>,
    capacity: usize,
    pinned: usize,
    /// Images that the owner holds besides.
    elsewhere: usize,
}

impl BlockCache {
    /// A cache of `capacity` images besides the pinned ones.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        BlockCache {
            entries: NumberMap::default(),
            queue: VecDeque::new(),
            capacity: capacity.max(64),
            pinned: 0,
            elsewhere: 0,
        }
    }

    /// Images held, pinned ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Images that may not be evicted now.
    #[must_use]
    pub fn pinned(&self) -> usize {
        self.pinned
    }

    #[must_use]
    pub fn contains(&self, b: BlockNo) -> bool {
        self.entries.contains_key(&b)
    }

    /// The image of a block, if it is in memory.
    pub fn get(&mut self, b: BlockNo) -> Option<&Image> {
        let e = self.entries.get_mut(&b)?;
        e.used = true;
        Some(&e.image)
    }

    /// True if the bytes of a block have been checked to be this since they came into memory, and nothing else after
    /// that.
    #[must_use]
    pub fn is_verified(&self, b: BlockNo, kind: BlockKind) -> bool {
        self.entries.get(&b).is_some_and(|e| e.verified == Some(kind))
    }

    pub fn set_verified(&mut self, b: BlockNo, kind: BlockKind) {
        if let Some(e) = self.entries.get_mut(&b) {
            e.verified = Some(kind);
        }
    }

    /// Writable bytes of a block; copies them if someone else holds the image.
    pub fn make_mut(&mut self, b: BlockNo) -> Option<&mut Buf> {
        let e = self.entries.get_mut(&b)?;
        e.used = true;
        Some(Arc::make_mut(&mut e.image))
    }

    /// Puts an image read from disk into the cache, unless one is there already: that one is newer.
    pub fn insert_clean(&mut self, b: BlockNo, image: Image) {
        if !self.entries.contains_key(&b) {
            self.set(b, image, None);
            self.evict();
        }
    }

    /// Replaces (or adds) the image of a block. Pins stay.
    pub fn set(&mut self, b: BlockNo, image: Image, verified: Option<BlockKind>) {
        match self.entries.get_mut(&b) {
            Some(e) => {
                e.image = image;
                e.verified = verified;
                e.used = true;
            }
            None => {
                self.entries.insert(b, Entry { image, pins: 0, used: true, verified });
                self.queue.push_back(b);
            }
        }
    }

    /// What a block looks like now, to be [`BlockCache::restore`]d.
    #[must_use]
    pub fn save(&self, b: BlockNo) -> Option<Saved> {
        self.entries.get(&b).map(|e| Saved { image: e.image.clone(), pins: e.pins, verified: e.verified })
    }

    /// Brings back what [`BlockCache::save`] saw, pins included.
    pub fn restore(&mut self, b: BlockNo, saved: Option<Saved>) {
        self.remove(b);
        if let Some(s) = saved {
            self.set(b, s.image, s.verified);
            let e = self.entries.get_mut(&b).expect("just set");
            e.pins = s.pins;
            if s.pins > 0 {
                self.pinned += 1;
            }
        }
    }

    /// Forgets a block; its pins go with it.
    pub fn remove(&mut self, b: BlockNo) {
        if let Some(e) = self.entries.remove(&b)
            && e.pins > 0
        {
            self.pinned -= 1;
        }
        // The queue's entry goes when the hand meets it, or here when too many are stale.
        if self.queue.len() > 2 * self.entries.len() + 64 {
            let (entries, mut seen) = (&self.entries, std::collections::HashSet::new());
            self.queue.retain(|q| entries.contains_key(q) && seen.insert(*q));
        }
    }

    /// Adds a reason to keep a block. It must be in memory.
    pub fn pin(&mut self, b: BlockNo) {
        let e = self.entries.get_mut(&b).expect("only a block in memory is pinned");
        e.pins += 1;
        if e.pins == 1 {
            self.pinned += 1;
        }
    }

    /// Takes one reason back, if the block is still there.
    pub fn unpin(&mut self, b: BlockNo) {
        if let Some(e) = self.entries.get_mut(&b)
            && e.pins > 0
        {
            e.pins -= 1;
            if e.pins == 0 {
                self.pinned -= 1;
            }
        }
    }

    /// The owner holds so many images besides, some of them also here: they take memory, too, so up to three quarters
    /// of the capacity are given up for them, one for two.
    pub fn set_elsewhere(&mut self, images: usize) {
        self.elsewhere = images;
    }

    /// Evicts until the bound holds. Gives up after one round when nearly all is in use.
    pub fn evict(&mut self) {
        let mut steps = 2 * self.queue.len();
        let capacity = self.capacity - (self.elsewhere / 2).min(self.capacity / 4 * 3);
        while self.entries.len() - self.pinned > capacity && steps > 0 {
            steps -= 1;
            let Some(b) = self.queue.pop_front() else { return };
            let Some(e) = self.entries.get_mut(&b) else { continue };
            if e.pins > 0 || std::mem::take(&mut e.used) {
                self.queue.push_back(b);
            } else {
                self.entries.remove(&b);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(n: u8) -> Image {
        Arc::new(Buf::copy_of(&[n]))
    }

    #[test]
    fn pinned_images_stay_and_the_rest_is_bounded() {
        let mut c = BlockCache::new(64);
        for n in 0..1000u64 {
            c.insert_clean(BlockNo(n), image(1));
            if n < 10 {
                c.pin(BlockNo(n));
            }
        }
        assert_eq!(c.pinned(), 10);
        assert!(c.len() <= 64 + 10);
        assert!((0..10).all(|n| c.contains(BlockNo(n))));
    }

    #[test]
    fn what_is_held_elsewhere_takes_room_here() {
        let mut c = BlockCache::new(64);
        let fill = |c: &mut BlockCache| (0..1000u64).for_each(|n| c.insert_clean(BlockNo(n), image(1)));
        for (elsewhere, left) in [(0, 64), (40, 44), (1000, 16)] {
            c.set_elsewhere(elsewhere);
            fill(&mut c);
            c.evict();
            assert_eq!(c.len(), left, "{elsewhere} elsewhere");
        }
    }

    #[test]
    fn a_clone_keeps_its_bytes() {
        let mut c = BlockCache::new(64);
        c.set(BlockNo(1), image(1), Some(BlockKind(3)));
        assert!(c.is_verified(BlockNo(1), BlockKind(3)) && !c.is_verified(BlockNo(1), BlockKind(4)));
        let before = c.get(BlockNo(1)).unwrap().clone();
        let saved = c.save(BlockNo(1));
        c.make_mut(BlockNo(1)).unwrap()[0] = 2;
        assert_eq!((before[0], c.get(BlockNo(1)).unwrap()[0]), (1, 2));
        c.restore(BlockNo(1), saved);
        assert_eq!(c.get(BlockNo(1)).unwrap()[0], 1);
        c.restore(BlockNo(1), None);
        assert!(!c.contains(BlockNo(1)));
    }

    #[test]
    fn removing_and_adding_again_keeps_the_queue_short() {
        let mut c = BlockCache::new(64);
        for _ in 0..10_000 {
            c.set(BlockNo(1), image(1), None);
            c.remove(BlockNo(1));
            c.evict();
        }
        assert!(c.queue.len() < 200, "{}", c.queue.len());
    }
}
