//! What is in memory: images, the running transaction, and what is live in the log.
//!
//! Guarded by one lock, held for memory work only, never across I/O. Guarantees:
//! - J1: an image that a transaction or the log still needs is never evicted or lost;
//! - J2: a committed image is never changed: a later change of the block copies first;
//! - J3: a block that a load brings from disk never replaces a newer image;
//! - Q3: an image in the cache of a block that no transaction holds and that is not live is what lies at the block's
//!   home. So the image that a handle first touches may be the base of a range record, once it is durable there.
//!
//! Sets that are walked are ordered, so that a run repeats itself block by block.

mod passing;

use crate::error::Error;
use crate::policy::NEW_DATA_REMEMBERED;
use quire_cache::{BlockCache, Image};
use quire_device::sync::thread::ThreadId;
use quire_device::{Epoch, Mutant};
use quire_layout::{BlockNo, Tid};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

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
    /// What lies at home of blocks that were not live when this transaction first touched them, where that is known.
    pub bases: BTreeMap<BlockNo, Image>,
    /// Those of its blocks that hold file data.
    pub data: BTreeSet<BlockNo>,
    /// Those of its blocks that hold data new to its file, which could have gone in place.
    pub new_data: BTreeSet<BlockNo>,
    /// Data in place that has to be durable before this transaction.
    pub after: Option<Epoch>,
}

impl Running {
    fn new(tid: Tid) -> Self {
        Running {
            tid,
            blocks: BTreeSet::new(),
            revokes: BTreeSet::new(),
            holders: Vec::new(),
            handles: 0,
            bases: BTreeMap::new(),
            data: BTreeSet::new(),
            new_data: BTreeSet::new(),
            after: None,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty() && self.revokes.is_empty()
    }
}

/// A closed transaction on its way to the log. Its images do not change any more.
pub struct InFlight {
    pub tid: Tid,
    /// When it was closed, by the monotonic clock.
    pub closed: Duration,
    /// Blocks and their images, by block number.
    pub blocks: Vec<(BlockNo, Image)>,
    /// Revoked blocks, in order.
    pub revokes: Vec<BlockNo>,
    /// Operations it holds.
    pub handles: u64,
    /// Those of its blocks that hold file data.
    pub data: BTreeSet<BlockNo>,
    /// Those that could have gone in place.
    new_data: BTreeSet<BlockNo>,
    /// Data in place that has to be durable first.
    pub after: Option<Epoch>,
}

/// A block whose newest committed record is in the log.
struct Live {
    /// Transaction of that record.
    tid: Tid,
    /// The oldest transaction whose record the image needs: the self-contained one, or the first over the image at
    /// home.
    chain: Tid,
    image: Image,
    /// A checkpoint is passing the record that its chain of deltas begins with: the next one must be self-contained
    /// (Q6).
    whole_next: bool,
    /// The image is at home, too, and durable there when a flush has followed.
    at_home: bool,
    /// It could have gone there in the first place, and it is not known yet what that would have saved.
    is_new_data: bool,
}

/// What became of data that rode in a commit though it could have gone in place, in blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoggedNewData {
    /// Had to be written home.
    pub home: u64,
    /// Was overwritten or freed before.
    pub died: u64,
}

impl LoggedNewData {
    fn ended(&mut self, home: bool) {
        if home {
            self.home += 1;
        } else {
            self.died += 1;
        }
        if self.home + self.died > NEW_DATA_REMEMBERED {
            (self.home, self.died) = (self.home / 2, self.died / 2);
        }
    }
}

/// What a record may be written over.
#[derive(Clone)]
pub(crate) struct Base {
    pub image: Image,
    /// It is the image logged last, and its record is live; else it lies at home, durable.
    pub in_log: bool,
    /// A delta may be written over it (Q6).
    pub chains: bool,
}

/// The transaction that a commit holds now.
struct Committing {
    blocks: BTreeSet<BlockNo>,
    bases: BTreeMap<BlockNo, Image>,
}

/// A committed transaction whose records are in the log.
pub(crate) struct Committed {
    pub tid: Tid,
    pub blocks: Vec<BlockNo>,
    /// Log blocks it occupies.
    pub log_blocks: u32,
    /// When it was closed, by the monotonic clock.
    pub closed: Duration,
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
    /// Blocks that operations looked for and found in memory, and blocks that were read from the device for them.
    pub hits: u64,
    pub misses: u64,
    /// Callers that wait for a commit without a thread.
    pub suspended: usize,
}

pub(crate) struct Core {
    pub cache: BlockCache,
    pub running: Running,
    committing: Option<Committing>,
    /// The committing transaction's records have been chosen: until it ends, no chain of deltas may be passed (Q6).
    pub chosen: bool,
    /// A checkpoint that ends chains waits for that transaction: those that choose later begin new ones, and are not
    /// waited for (J15).
    pub ending_chains: bool,
    /// A delta may be written over images whose chains begin with this transaction or later: the first of the region
    /// (V6).
    pub chain_from: Option<Tid>,
    /// Images that were logged before the last ones: only a broken engine looks at them.
    stale: BTreeMap<BlockNo, Image>,
    /// Bases at home that a transaction may keep; 0: no record needs them.
    pub keep_bases: usize,
    unflushed: Unflushed,
    live: BTreeMap<BlockNo, Live>,
    /// Oldest first.
    pub committed: VecDeque<Committed>,
    /// Of the blocks that loads are reading: the loads under way since whose begin the home has not changed (J3).
    loading: BTreeMap<BlockNo, Vec<u64>>,
    next_load: u64,
    /// Set when nothing may change any more.
    pub aborted: Option<Error>,
    never_written_home: u64,
    pub logged_new_data: LoggedNewData,
    pub hits: u64,
    pub misses: u64,
}

impl Core {
    pub(crate) fn new(cache_blocks: usize, first: Tid) -> Self {
        Core {
            cache: BlockCache::new(cache_blocks),
            running: Running::new(first),
            committing: None,
            chosen: false,
            ending_chains: false,
            chain_from: None,
            stale: BTreeMap::new(),
            keep_bases: 0,
            unflushed: Unflushed::default(),
            live: BTreeMap::new(),
            committed: VecDeque::new(),
            loading: BTreeMap::new(),
            next_load: 0,
            aborted: None,
            never_written_home: 0,
            hits: 0,
            misses: 0,
            logged_new_data: LoggedNewData::default(),
        }
    }

    /// The newest image of a block in memory: the cache's, else the log's. Evicts nothing: what a handle has found in
    /// memory stays there until it ends, and only then the bound holds again.
    pub(crate) fn image(&mut self, b: BlockNo) -> Option<Image> {
        if let Some(i) = self.cache.get(b) {
            return Some(i.clone());
        }
        let image = self.live.get(&b)?.image.clone();
        self.cache.set(b, image.clone(), None);
        Some(image)
    }

    /// True if a record of this block is in the log, or on its way there.
    pub(crate) fn is_live(&self, b: BlockNo) -> bool {
        self.live.contains_key(&b) || self.committing.as_ref().is_some_and(|c| c.blocks.contains(&b))
    }

    /// Makes a block's image part of the running transaction.
    pub(crate) fn join(&mut self, b: BlockNo) {
        if self.running.blocks.insert(b) {
            self.cache.pin(b);
        }
        self.running.revokes.remove(&b);
    }

    /// Closes the running transaction and opens the next, at time `now`. The images are shared, not copied.
    pub(crate) fn close(&mut self, now: Duration) -> InFlight {
        assert!(self.committing.is_none(), "commits are serial");
        assert!(self.running.holders.is_empty(), "a held transaction is not closed");
        let next = Running::new(self.running.tid.next());
        let old = std::mem::replace(&mut self.running, next);
        let blocks: Vec<_> =
            (old.blocks.iter()).map(|b| (*b, self.cache.get(*b).expect("a joined block is pinned").clone())).collect();
        self.committing = Some(Committing { blocks: old.blocks, bases: old.bases });
        InFlight {
            tid: old.tid,
            closed: now,
            blocks,
            revokes: old.revokes.into_iter().collect(),
            handles: old.handles,
            data: old.data,
            new_data: old.new_data,
            after: old.after,
        }
    }

    /// What the records of the committing transaction may be written over, block by block. From now to its end
    /// checkpoints leave chains of deltas as they are.
    pub(crate) fn choose_bases(&mut self, txn: &InFlight, is_durable: impl Fn(Epoch) -> bool) -> Vec<Option<Base>> {
        let ends = self.ending_chains;
        self.chosen = !ends;
        self.unflushed.forget_durable(&is_durable);
        let mut at_home = std::mem::take(&mut self.committing.as_mut().expect("a commit is under way").bases);
        let mut base_of = |b: &BlockNo| match self.live.get(b) {
            Some(l) => {
                let kept = Mutant::NvramStateKept.is_on();
                let chains = !(l.whole_next || ends) || Mutant::StaleBase.is_on() || kept;
                let here = self.chain_from.is_none_or(|first| l.chain.at_or_after(first)) || kept;
                let image = self.stale.get(b).unwrap_or(&l.image).clone();
                Some(Base { image, in_log: true, chains: chains && here })
            }
            None => {
                let may_be_lost = self.unflushed.covers(*b) && !Mutant::UnflushedBase.is_on();
                let image = at_home.remove(b).filter(|_| !may_be_lost)?;
                Some(Base { image, in_log: false, chains: false })
            }
        };
        txn.blocks.iter().map(|(b, _)| base_of(b)).collect()
    }

    /// The transaction is durable: its images are live in the log, its revokes hold. `self_contained` says of each
    /// block whether its record is self-contained; without it all are.
    pub(crate) fn committed(&mut self, txn: &InFlight, log_blocks: u32, self_contained: Option<&[bool]>) {
        self.end_commit();
        for b in &txn.revokes {
            let old = self.live.remove(b);
            self.never_written_home += u64::from(old.is_some());
            if old.is_some_and(|l| l.is_new_data) {
                self.logged_new_data.ended(false);
            }
            // Its image may have come into the cache from the log, and is not what lies at home (Q3).
            if !self.running.blocks.contains(b) {
                self.cache.remove(*b);
            }
        }
        for (n, (b, image)) in txn.blocks.iter().enumerate() {
            let entry = self.live.entry(*b);
            let old = match &entry {
                Entry::Occupied(old) => Some(old.get()),
                Entry::Vacant(_) => None,
            };
            self.never_written_home += u64::from(old.is_some_and(|l| !l.at_home));
            if Mutant::NvramStaleBase.is_on() {
                self.stale.remove(b);
                self.stale.extend(old.filter(|_| self_contained.is_some_and(|a| !a[n])).map(|l| (*b, l.image.clone())));
            }
            if old.is_some_and(|l| l.is_new_data) {
                self.logged_new_data.ended(false);
            }
            let chain = match (self_contained.is_none_or(|a| a[n]), old) {
                (false, Some(l)) => l.chain,
                _ => txn.tid,
            };
            let (image, is_new_data) = (image.clone(), txn.new_data.contains(b));
            let live = Live { tid: txn.tid, chain, image, whole_next: false, at_home: false, is_new_data };
            match entry {
                Entry::Occupied(mut old) => *old.get_mut() = live,
                Entry::Vacant(new) => {
                    new.insert(live);
                }
            }
        }
        let blocks = txn.blocks.iter().map(|(b, _)| *b).collect();
        self.committed.push_back(Committed { tid: txn.tid, blocks, log_blocks, closed: txn.closed });
        self.cache.set_elsewhere(self.live.len());
        self.cache.evict();
    }

    /// The transaction's images are at home (there is no log).
    pub(crate) fn written_home(&mut self, txn: &InFlight) {
        self.end_commit();
        for (b, _) in &txn.blocks {
            self.loading.remove(b);
        }
        self.cache.evict();
    }

    fn end_commit(&mut self) {
        let c = self.committing.take().expect("a commit is under way");
        for b in c.blocks {
            self.cache.unpin(b);
        }
    }

    /// What lies durable at home of a block that a transaction holds: the base of its next record.
    fn keep_base(&mut self, b: BlockNo, image: Image) {
        if self.keep_bases == 0 {
            return;
        }
        match &mut self.committing {
            Some(c) if c.blocks.contains(&b) => drop(c.bases.insert(b, image)),
            _ if self.running.blocks.contains(&b) => drop(self.running.bases.insert(b, image)),
            _ => {}
        }
    }

    /// Notes a load of these blocks.
    pub(crate) fn begin_load(&mut self, blocks: &[BlockNo]) -> u64 {
        self.next_load += 1;
        for b in blocks {
            self.loading.entry(*b).or_default().push(self.next_load);
        }
        self.next_load
    }

    /// What a load of these blocks has read comes into the cache, unless something newer is there or in the log;
    /// nothing does if it failed. Returns the blocks whose homes have changed under the read: to be read again (J3).
    pub(crate) fn end_load(&mut self, load: u64, blocks: &[BlockNo], images: Vec<(BlockNo, Image)>) -> Vec<BlockNo> {
        let (mut images, mut changed) = (images.into_iter(), Vec::new());
        for b in blocks.iter().copied() {
            let has_changed = !self.forget_load(b, load);
            let Some((_, image)) = images.next() else { continue };
            if has_changed && !Mutant::StaleLoadKept.is_on() {
                changed.push(b);
            } else if !self.is_live(b) {
                self.cache.insert_clean(b, image);
            }
        }
        changed
    }

    /// A load reads this block no longer. False if the home has changed under it.
    fn forget_load(&mut self, b: BlockNo, load: u64) -> bool {
        let Entry::Occupied(mut loads) = self.loading.entry(b) else { return false };
        let before = loads.get().len();
        loads.get_mut().retain(|l| *l != load);
        let was_there = loads.get().len() < before;
        if loads.get().is_empty() {
            loads.remove();
        }
        was_there
    }

    /// What lies at the home of a block comes into the cache, unless something newer is there or in the log.
    pub(crate) fn offer(&mut self, b: BlockNo, image: &Image) {
        if !self.is_live(b) {
            self.cache.insert_clean(b, image.clone());
        }
    }

    /// These images have been written to their homes, in whole or in part. A block that was freed meanwhile is not live
    /// any more: what a load has brought of it lay there before, and what lies there now is durable when a flush after
    /// `stamp` has returned (Q3).
    pub(crate) fn homes_written(&mut self, homes: &[(BlockNo, Image)], stamp: Epoch) {
        for (b, _) in homes {
            if !self.is_live(*b) {
                self.note_unflushed(*b, 1, stamp);
            }
            self.written_in_place(*b);
        }
    }

    /// What was written to a run of blocks is complete, and durable when a flush after `stamp` has returned.
    pub(crate) fn note_unflushed(&mut self, start: BlockNo, len: u32, stamp: Epoch) {
        if self.keep_bases > 0 {
            self.unflushed.add(start, len, stamp);
        }
    }

    /// The home of a block was written: an image of what it held before leaves memory, and loads under way read it
    /// again (J3).
    pub(crate) fn written_in_place(&mut self, b: BlockNo) {
        if !self.is_live(b) && !self.running.blocks.contains(&b) {
            self.cache.remove(b);
        }
        self.loading.remove(&b);
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
            hits: self.hits,
            misses: self.misses,
            suspended: 0,
        }
    }
}

/// Homes that were written in place, and when: an image there is no base before it is durable (Q3).
#[derive(Default)]
struct Unflushed {
    runs: Vec<(BlockNo, u32, Epoch)>,
    /// More runs than are worth remembering: any block may have been written up to here.
    all: Option<Epoch>,
}

impl Unflushed {
    const MOST: usize = 1024;

    fn add(&mut self, start: BlockNo, len: u32, stamp: Epoch) {
        if self.runs.len() < Self::MOST {
            return self.runs.push((start, len, stamp));
        }
        self.all = self.runs.drain(..).map(|(.., e)| e).chain([stamp]).chain(self.all).max();
    }

    fn forget_durable(&mut self, is_durable: impl Fn(Epoch) -> bool) {
        self.runs.retain(|(.., e)| !is_durable(*e));
        self.all = self.all.filter(|e| !is_durable(*e));
    }

    fn covers(&self, b: BlockNo) -> bool {
        let inside = |(start, len, _): &(BlockNo, u32, Epoch)| (start.0..start.0 + u64::from(*len)).contains(&b.0);
        self.all.is_some() || self.runs.iter().any(inside)
    }
}
