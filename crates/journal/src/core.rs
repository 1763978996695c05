//! What is in memory: images, the running transaction, and what is live in the log.
//!
//! Guarded by one lock, held for memory work only, never across I/O. Guarantees:
//! - J1: an image that a transaction or the log still needs is never evicted or lost;
//! - J2: a committed image is never changed: a later change of the block copies first;
//! - J3: a block that a load brings from disk never replaces a newer image.
//!
//! Sets that are walked are ordered, so that a run repeats itself block by block.

use crate::error::Error;
use quire_cache::{BlockCache, Image};
use quire_device::Mutant;
use quire_device::sync::thread::ThreadId;
use quire_layout::{BlockNo, Tid};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The open transaction.
pub(crate) struct Running {
    pub tid: Tid,
    /// Blocks whose image in the cache belongs to this transaction.
    pub blocks: BTreeSet<BlockNo>,
    /// Blocks freed here whose records in the log must not be replayed.
    pub revokes: BTreeSet<BlockNo>,
    /// Threads that keep it open over several operations; it is not closed while there are any.
    pub holders: Vec<ThreadId>,
    /// Operations that joined.
    pub handles: u64,
}

impl Running {
    fn new(tid: Tid) -> Self {
        Running { tid, blocks: BTreeSet::new(), revokes: BTreeSet::new(), holders: Vec::new(), handles: 0 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.revokes.is_empty()
    }
}

/// A closed transaction on its way to the log. Its images do not change any more.
pub struct InFlight {
    pub tid: Tid,
    /// Blocks and their images, by block number.
    pub blocks: Vec<(BlockNo, Image)>,
    /// Revoked blocks, in order.
    pub revokes: Vec<BlockNo>,
    /// Operations it holds.
    pub handles: u64,
}

/// A block whose newest committed record is in the log.
struct Live {
    /// Transaction of that record.
    tid: Tid,
    image: Image,
}

/// A committed transaction whose records are in the log.
pub(crate) struct Committed {
    pub tid: Tid,
    pub blocks: Vec<BlockNo>,
    /// Log blocks it occupies.
    pub log_blocks: u32,
}

/// Figures about memory and the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CoreStats {
    pub cached: usize,
    pub pinned: usize,
    pub running_blocks: usize,
    pub running_handles: u64,
    /// Blocks with a record in the log that the tail has not passed.
    pub live: usize,
    /// Committed transactions in the log.
    pub in_log: usize,
    /// Committed images that never had to be written home, because a newer one came or the block was freed.
    pub never_written_home: u64,
}

pub(crate) struct Core {
    pub cache: BlockCache,
    pub running: Running,
    /// The transaction that a commit holds now, with its blocks.
    committing: Option<(Tid, BTreeSet<BlockNo>)>,
    live: BTreeMap<BlockNo, Live>,
    /// Oldest first.
    pub committed: VecDeque<Committed>,
    /// Loads under way, and of each the blocks whose homes have not changed since it began (J3).
    loads: BTreeMap<u64, BTreeSet<BlockNo>>,
    next_load: u64,
    /// Set when nothing may change any more.
    pub aborted: Option<Error>,
    never_written_home: u64,
}

impl Core {
    pub(crate) fn new(cache_blocks: usize, first: Tid) -> Self {
        Core {
            cache: BlockCache::new(cache_blocks),
            running: Running::new(first),
            committing: None,
            live: BTreeMap::new(),
            committed: VecDeque::new(),
            loads: BTreeMap::new(),
            next_load: 0,
            aborted: None,
            never_written_home: 0,
        }
    }

    /// The newest image of a block in memory: the cache's, else the log's.
    pub(crate) fn image(&mut self, b: BlockNo) -> Option<Image> {
        if let Some(i) = self.cache.get(b) {
            return Some(i.clone());
        }
        let image = self.live.get(&b)?.image.clone();
        self.cache.insert_clean(b, image.clone());
        Some(image)
    }

    /// True if a record of this block is in the log, or on its way there.
    pub(crate) fn is_live(&self, b: BlockNo) -> bool {
        self.live.contains_key(&b) || self.committing.as_ref().is_some_and(|(_, blocks)| blocks.contains(&b))
    }

    /// Makes a block's image part of the running transaction.
    pub(crate) fn join(&mut self, b: BlockNo) {
        if self.running.blocks.insert(b) {
            self.cache.pin(b);
        }
        self.running.revokes.remove(&b);
    }

    /// Closes the running transaction and opens the next. The images are shared, not copied.
    pub(crate) fn close(&mut self) -> InFlight {
        assert!(self.committing.is_none(), "commits are serial");
        assert!(self.running.holders.is_empty(), "a held transaction is not closed");
        let next = Running::new(self.running.tid.next());
        let old = std::mem::replace(&mut self.running, next);
        let blocks: Vec<_> =
            (old.blocks.iter()).map(|b| (*b, self.cache.get(*b).expect("a joined block is pinned").clone())).collect();
        self.committing = Some((old.tid, old.blocks));
        InFlight { tid: old.tid, blocks, revokes: old.revokes.into_iter().collect(), handles: old.handles }
    }

    /// The transaction is durable: its images are live in the log, its revokes hold.
    pub(crate) fn committed(&mut self, txn: &InFlight, log_blocks: u32) {
        self.end_commit();
        for b in &txn.revokes {
            self.never_written_home += u64::from(self.live.remove(b).is_some());
        }
        for (b, image) in &txn.blocks {
            let old = self.live.insert(*b, Live { tid: txn.tid, image: image.clone() });
            self.never_written_home += u64::from(old.is_some());
        }
        let blocks = txn.blocks.iter().map(|(b, _)| *b).collect();
        self.committed.push_back(Committed { tid: txn.tid, blocks, log_blocks });
        self.cache.evict();
    }

    /// The transaction's images are at home (there is no log).
    pub(crate) fn written_home(&mut self, txn: &InFlight) {
        self.end_commit();
        self.home_changed(txn.blocks.iter().map(|(b, _)| *b));
        self.cache.evict();
    }

    fn end_commit(&mut self) {
        let (_, blocks) = self.committing.take().expect("a commit is under way");
        for b in blocks {
            self.cache.unpin(b);
        }
    }

    /// What a checkpoint of all transactions up to `upto` must write home: the newest committed image of each
    /// block whose newest record lies there. A newer record makes an older image needless.
    pub(crate) fn home_writes(&mut self, upto: Tid) -> Vec<(BlockNo, Image)> {
        if Mutant::UncommittedHome.is_on() {
            let (live, cache) = (&self.live, &mut self.cache);
            let newest = |(b, l): (&BlockNo, &Live)| (*b, cache.get(*b).unwrap_or(&l.image).clone());
            return live.iter().filter(|(_, l)| upto.at_or_after(l.tid)).map(newest).collect();
        }
        (self.live.iter()).filter(|(_, l)| upto.at_or_after(l.tid)).map(|(b, l)| (*b, l.image.clone())).collect()
    }

    /// The durable tail has passed all transactions up to `upto`: their records are dead.
    pub(crate) fn tail_passed(&mut self, upto: Tid) {
        while self.committed.front().is_some_and(|c| upto.at_or_after(c.tid)) {
            let c = self.committed.pop_front().expect("looked at");
            for b in &c.blocks {
                if self.live.get(b).is_some_and(|l| upto.at_or_after(l.tid)) {
                    self.live.remove(b);
                }
            }
            self.home_changed(c.blocks);
        }
    }

    /// Notes a load of these blocks.
    pub(crate) fn begin_load(&mut self, blocks: &[BlockNo]) -> u64 {
        self.next_load += 1;
        self.loads.insert(self.next_load, blocks.iter().copied().collect());
        self.next_load
    }

    /// What a load has read comes into the cache, unless something newer is there or in the log. Returns the blocks whose
    /// homes have changed under the read: to be read again (J3).
    pub(crate) fn end_load(&mut self, load: u64, images: Vec<(BlockNo, Image)>) -> Vec<BlockNo> {
        let unchanged = self.loads.remove(&load).unwrap_or_default();
        let mut changed = Vec::new();
        for (b, image) in images {
            if !unchanged.contains(&b) && !Mutant::StaleLoadKept.is_on() {
                changed.push(b);
            } else if !self.is_live(b) {
                self.cache.insert_clean(b, image);
            }
        }
        changed
    }

    /// The homes of these blocks are not what they were.
    fn home_changed(&mut self, blocks: impl IntoIterator<Item = BlockNo>) {
        if self.loads.is_empty() {
            return;
        }
        for b in blocks {
            for load in self.loads.values_mut() {
                load.remove(&b);
            }
        }
    }

    /// File data was written to the home of a block: an image of what it held before leaves memory.
    pub(crate) fn written_in_place(&mut self, b: BlockNo) {
        if !self.is_live(b) && !self.running.blocks.contains(&b) {
            self.cache.remove(b);
        }
        self.home_changed([b]);
    }

    pub(crate) fn stats(&self) -> CoreStats {
        CoreStats {
            cached: self.cache.len(),
            pinned: self.cache.pinned(),
            running_blocks: self.running.blocks.len(),
            running_handles: self.running.handles,
            live: self.live.len(),
            in_log: self.committed.len(),
            never_written_home: self.never_written_home,
        }
    }
}
