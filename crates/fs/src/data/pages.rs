//! The pending data of one file.
//!
//! ```text
//! clean ──write──> dirty ──collected by writeback──> under writeback ──batch ends──> clean
//!                    ^                                     │
//!                    └──────────── write (copies) ─────────┘
//! ```
//! *Guarantees* (docs/invariants.md):
//! - F1: a page is newer than the disk; readers see it;
//! - F3: bytes of a page past the end of the file are zero.

use crate::tables::Reservation;
use quire_cache::Image;
use quire_layout::FileBlock;
use quire_layout::inode::{Inode, Time, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// What the writeback of a page does to the file's map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::data) enum MapChange {
    /// Nothing: the page's block holds data, or the batch that has collected the page changes the map.
    None,
    /// Its block is unwritten and becomes written. The first one of a run of such pages stands for the whole run, which
    /// cuts one extent in three, or one at each end.
    Convert { first: bool },
    /// The page has no block yet; one is reserved.
    Insert,
}

impl MapChange {
    /// Extents that the map gets with it, at most.
    pub(in crate::data) fn entries(self) -> u64 {
        match self {
            MapChange::None | MapChange::Convert { first: false } => 0,
            MapChange::Convert { first: true } => ENTRIES_OF_CONVERSION,
            MapChange::Insert => 1,
        }
    }
}

/// Extents that the map gets at most when a run of unwritten blocks becomes written.
pub(in crate::data) const ENTRIES_OF_CONVERSION: u64 = 2;

/// One block of a file that is newer than the disk.
#[derive(Clone)]
pub(in crate::data) struct Page {
    pub image: Image,
    /// Changed since writeback last collected it. A page that is not dirty is under writeback.
    pub dirty: bool,
    pub change: MapChange,
    /// The page belongs to an update sequence that is journaled (`selective`).
    pub logged: bool,
}

/// Pending times of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::data) struct Times {
    pub mtime: Timestamp,
    pub ctime: Timestamp,
}

impl Times {
    /// Puts them into an inode, which holds what it has room for. A later change of the inode counts, too.
    pub(in crate::data) fn put(&self, inode: &mut Inode) {
        inode.set_time(Time::Modify, self.mtime);
        let ctime = inode.time(Time::Change).unwrap_or_default().max(self.ctime);
        inode.set_time(Time::Change, ctime);
    }
}

/// Pages that a truncate has taken out of a file, and what the file has reserved for its map, until it is certain that
/// they go.
pub(in crate::data) struct Behind {
    pages: BTreeMap<FileBlock, Page>,
    map: MapBlocks,
}

/// Blocks reserved for a file's map.
#[derive(Default)]
struct MapBlocks {
    /// Pointer blocks that an indirect map may need for the pages without a block, each by the slots that lead to it.
    pointers: BTreeSet<Vec<usize>>,
    /// The number of nodes that an extent tree may need.
    tree: u64,
}

impl MapBlocks {
    fn count(&self) -> u64 {
        self.pointers.len() as u64 + self.tree
    }

    fn add(&mut self, more: MapBlocks) {
        self.pointers.extend(more.pointers);
        self.tree += more.tree;
    }
}

impl Behind {
    /// The number of pages.
    pub(in crate::data) fn pages(&self) -> usize {
        self.pages.len()
    }

    fn dirty(&self) -> usize {
        self.pages.values().filter(|p| p.dirty).count()
    }

    fn without_block(&self) -> usize {
        self.pages.values().filter(|p| p.change == MapChange::Insert).count()
    }

    fn entries(&self) -> u64 {
        self.pages.values().map(|p| p.change.entries()).sum()
    }

    /// What is reserved.
    pub(in crate::data) fn reserved(&self) -> Reservation {
        Reservation { data: self.without_block() as u64, map: self.map.count() }
    }
}

/// The pending data of one file, and who works on the file.
#[derive(Default)]
pub(in crate::data) struct FileState {
    pages: BTreeMap<FileBlock, Page>,
    /// Pages that are `dirty`.
    dirty: usize,
    /// Dirty pages without a block.
    without_block: usize,
    /// Extents that the map gets at most when the dirty pages are written back.
    entries: u64,
    /// The same of the pages that a batch has collected.
    entries_under_way: u64,
    map: MapBlocks,
    /// The pending size in bytes; `None` if the inode on disk has the size.
    pub size: Option<u64>,
    pub times: Option<Times>,
    /// The file's number in the queue of files that have something to write back.
    pub queued_as: Option<u64>,
    /// A batch writes this file back.
    pub(super) writing: bool,
    /// Blocks under direct writes (F19).
    pub(super) direct: Vec<Range<FileBlock>>,
}

impl FileState {
    /// True if nothing is pending and no batch, reader or caller uses the file.
    pub(in crate::data) fn is_idle(&self) -> bool {
        self.pages.is_empty() && self.size.is_none() && self.times.is_none() && !self.writing
    }

    /// True if any of these blocks is under a direct write.
    pub(super) fn is_direct(&self, blocks: &Range<FileBlock>) -> bool {
        self.direct.iter().any(|d| d.start < blocks.end && blocks.start < d.end)
    }

    /// True if a direct write is under way.
    pub(super) fn has_direct(&self) -> bool {
        !self.direct.is_empty()
    }

    /// The number of pages that are not clean.
    pub(in crate::data) fn pages(&self) -> usize {
        self.pages.len()
    }

    pub(in crate::data) fn has_pages(&self) -> bool {
        !self.pages.is_empty()
    }

    /// True if there are dirty pages.
    pub(in crate::data) fn has_dirty_pages(&self) -> bool {
        self.dirty > 0
    }

    pub(in crate::data) fn has_pages_before(&self, b: FileBlock) -> bool {
        self.pages.range(..b).next().is_some()
    }

    /// The number of dirty pages whose blocks exist.
    pub(in crate::data) fn overwrites(&self) -> usize {
        self.dirty - self.without_block
    }

    /// The first dirty page.
    pub(in crate::data) fn first_dirty(&self) -> Option<FileBlock> {
        self.pages.iter().find(|(_, p)| p.dirty).map(|(b, _)| *b)
    }

    /// The block after the last dirty page.
    pub(in crate::data) fn dirty_end(&self) -> FileBlock {
        let last = self.pages.iter().rev().find(|(_, p)| p.dirty);
        last.map_or(FileBlock(0), |(b, _)| b.plus(1))
    }

    /// The number of data blocks reserved for dirty pages.
    pub(in crate::data) fn reserved(&self) -> u64 {
        self.without_block as u64
    }

    /// Extents that the map gets at most by all that is pending or under way: pages, a batch, direct writes.
    pub(in crate::data) fn entries(&self) -> u64 {
        let direct = |d: &Range<FileBlock>| u64::from(d.end.0 - d.start.0) + ENTRIES_OF_CONVERSION;
        self.entries + self.entries_under_way + self.direct.iter().map(direct).sum::<u64>()
    }

    /// True if a block is reserved for the pointer block that these slots lead to.
    pub(in crate::data) fn has_pointers(&self, slots: &[usize]) -> bool {
        self.map.pointers.contains(slots)
    }

    /// Nodes reserved for the extent tree.
    pub(in crate::data) fn tree(&self) -> u64 {
        self.map.tree
    }

    /// These have been reserved for the map.
    pub(in crate::data) fn add_map(&mut self, pointers: BTreeSet<Vec<usize>>, tree: u64) {
        self.map.add(MapBlocks { pointers, tree });
    }

    /// Takes what is reserved for the map once no page needs it any more; returns how many blocks the caller must give
    /// back.
    pub(in crate::data) fn take_map(&mut self) -> u64 {
        if self.entries > 0 { 0 } else { std::mem::take(&mut self.map).count() }
    }

    pub(in crate::data) fn page(&self, b: FileBlock) -> Option<&Page> {
        self.pages.get(&b)
    }

    /// The pages from `from` to before `to`.
    pub(in crate::data) fn range(&self, from: FileBlock, to: FileBlock) -> impl Iterator<Item = (FileBlock, &Page)> {
        self.pages.range(from..to.max(from)).map(|(b, p)| (*b, p))
    }

    /// The bytes of a page, for changes; the page becomes dirty. A batch keeps the image that it has collected.
    pub(in crate::data) fn page_mut(&mut self, b: FileBlock) -> Option<&mut Image> {
        let p = self.pages.get_mut(&b)?;
        self.dirty += usize::from(!p.dirty);
        p.dirty = true;
        Some(&mut p.image)
    }

    /// Adds a dirty page where there is none. What its change of the map takes is reserved.
    pub(in crate::data) fn add_page(&mut self, b: FileBlock, image: Image, change: MapChange) {
        let old = self.pages.insert(b, Page { image, dirty: true, change, logged: false });
        assert!(old.is_none(), "{b} has a page already");
        self.dirty += 1;
        self.count(change);
    }

    fn count(&mut self, change: MapChange) {
        self.without_block += usize::from(change == MapChange::Insert);
        self.entries += change.entries();
    }

    fn discount(&mut self, change: MapChange) {
        self.without_block -= usize::from(change == MapChange::Insert);
        self.entries -= change.entries();
    }

    /// The batch that has collected this page, which is dirty again, has not changed the map; what it takes is reserved
    /// again.
    pub(in crate::data) fn change_again(&mut self, b: FileBlock, change: MapChange) {
        let p = self.pages.get_mut(&b).filter(|p| p.dirty && p.change == MapChange::None);
        p.expect("dirty, and collected before").change = change;
        self.count(change);
    }

    /// Marks the update sequence that this page has begun as journaled.
    pub(in crate::data) fn log_page(&mut self, b: FileBlock) {
        if let Some(p) = self.pages.get_mut(&b) {
            p.logged = true;
        }
    }

    /// Collects up to `max` dirty pages from `from` on. Returns also how many blocks are reserved for their data.
    pub(in crate::data) fn collect_dirty(&mut self, from: FileBlock, max: usize) -> (Vec<(FileBlock, Image)>, u64) {
        let (mut without_block, mut entries) = (0, 0);
        let mut collected = Vec::with_capacity(max.min(self.dirty));
        for (b, p) in self.pages.range_mut(from..).filter(|(_, p)| p.dirty).take(max) {
            collected.push((*b, p.image.clone()));
            p.dirty = false;
            let change = std::mem::replace(&mut p.change, MapChange::None);
            without_block += usize::from(change == MapChange::Insert);
            entries += change.entries();
        }
        self.dirty -= collected.len();
        self.without_block -= without_block;
        self.entries -= entries;
        self.entries_under_way += entries;
        (collected, without_block as u64)
    }

    /// The batch has changed the map, or has failed.
    pub(in crate::data) fn batch_recorded(&mut self) {
        self.entries_under_way = 0;
    }

    /// Writeback of a page has ended: the page leaves, unless it was changed meanwhile. Returns true if it left.
    pub(in crate::data) fn written(&mut self, b: FileBlock) -> bool {
        let clean = self.pages.get(&b).is_some_and(|p| !p.dirty);
        if clean {
            self.pages.remove(&b);
        }
        clean
    }

    /// Takes out the pages from `from` on. With them goes all that is reserved for the map: the pages before may be
    /// written back meanwhile, and those that were taken out need it if they come back.
    pub(in crate::data) fn take_out(&mut self, from: FileBlock) -> Behind {
        let behind = Behind { pages: self.pages.split_off(&from), map: std::mem::take(&mut self.map) };
        self.dirty -= behind.dirty();
        self.without_block -= behind.without_block();
        self.entries -= behind.entries();
        behind
    }

    /// Brings back what was taken out. Returns what the caller must give back, because no page needs it.
    pub(in crate::data) fn put_back(&mut self, behind: Behind) -> Reservation {
        self.dirty += behind.dirty();
        self.without_block += behind.without_block();
        self.entries += behind.entries();
        self.pages.extend(behind.pages);
        self.map.add(behind.map);
        Reservation { data: 0, map: self.take_map() }
    }

    /// Drops the pages from `from` to before `to`. Returns their number and what was reserved for them.
    pub(in crate::data) fn drop_range(&mut self, from: FileBlock, to: FileBlock) -> (usize, Reservation) {
        let gone: Vec<_> = self.range(from, to).map(|(b, p)| (b, p.dirty, p.change)).collect();
        let before = self.without_block;
        for (b, dirty, change) in &gone {
            self.pages.remove(b);
            self.dirty -= usize::from(*dirty);
            self.discount(*change);
        }
        (gone.len(), Reservation { data: (before - self.without_block) as u64, map: self.take_map() })
    }
}
