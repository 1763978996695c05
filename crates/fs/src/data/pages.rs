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

use quire_cache::Image;
use quire_layout::FileBlock;
use quire_layout::inode::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// One block of a file that is newer than the disk.
#[derive(Clone)]
pub(in crate::data) struct Page {
    pub image: Image,
    /// Changed since writeback last collected it. A page that is not dirty is under writeback.
    pub dirty: bool,
    /// A block is reserved for the page, because it has none on disk yet.
    pub reserved: bool,
    /// The page belongs to an update sequence that is journaled (`selective`).
    pub logged: bool,
}

/// Pending times of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::data) struct Times {
    pub mtime: Timestamp,
    pub ctime: Timestamp,
}

/// Pages that a truncate has taken out of a file, and the file's reservations of pointer blocks, until it is certain
/// that they go.
pub(in crate::data) struct Behind {
    pages: BTreeMap<FileBlock, Page>,
    pointers: BTreeSet<Vec<usize>>,
}

impl Behind {
    /// The number of pages.
    pub(in crate::data) fn pages(&self) -> usize {
        self.pages.len()
    }

    fn dirty(&self) -> usize {
        self.pages.values().filter(|p| p.dirty).count()
    }

    fn reserved_pages(&self) -> usize {
        self.pages.values().filter(|p| p.reserved).count()
    }

    /// The number of blocks reserved for data and for pointer blocks.
    pub(in crate::data) fn reserved(&self) -> u64 {
        (self.reserved_pages() + self.pointers.len()) as u64
    }
}

/// The pending data of one file, and who works on the file.
#[derive(Default)]
pub(in crate::data) struct FileState {
    pages: BTreeMap<FileBlock, Page>,
    /// Pages that are `dirty`.
    dirty: usize,
    /// Pages that are `reserved`.
    reserved: usize,
    /// Pointer blocks that an indirect map may need for the reserved pages, each by the slots that lead to it. One
    /// block is reserved for each. (For extent trees the allocator keeps a reserve.)
    pointers: BTreeSet<Vec<usize>>,
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
        self.dirty - self.reserved
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
        self.reserved as u64
    }

    /// True if a block is reserved for the pointer block that these slots lead to.
    pub(in crate::data) fn has_pointers(&self, slots: &[usize]) -> bool {
        self.pointers.contains(slots)
    }

    pub(in crate::data) fn add_pointers(&mut self, more: BTreeSet<Vec<usize>>) {
        self.pointers.extend(more);
    }

    /// Takes the reservations of pointer blocks once no page needs them any more; returns how many the caller must give
    /// back.
    pub(in crate::data) fn take_pointers(&mut self) -> u64 {
        if self.reserved > 0 { 0 } else { std::mem::take(&mut self.pointers).len() as u64 }
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

    /// Adds a dirty page where there is none.
    pub(in crate::data) fn add_page(&mut self, b: FileBlock, image: Image, reserved: bool) {
        let old = self.pages.insert(b, Page { image, dirty: true, reserved, logged: false });
        assert!(old.is_none(), "{b} has a page already");
        self.dirty += 1;
        self.reserved += usize::from(reserved);
    }

    /// A block has been reserved for this dirty page, which had none.
    pub(in crate::data) fn reserve_page(&mut self, b: FileBlock) {
        let p = self.pages.get_mut(&b).filter(|p| p.dirty && !p.reserved);
        p.expect("dirty and not reserved").reserved = true;
        self.reserved += 1;
    }

    /// Marks the update sequence that this page has begun as journaled.
    pub(in crate::data) fn log_page(&mut self, b: FileBlock) {
        if let Some(p) = self.pages.get_mut(&b) {
            p.logged = true;
        }
    }

    /// Collects up to `max` dirty pages from `from` on, with their reservations.
    pub(in crate::data) fn collect_dirty(&mut self, from: FileBlock, max: usize) -> (Vec<(FileBlock, Image)>, u64) {
        let mut reserved = 0usize;
        let mut collected = Vec::with_capacity(max.min(self.dirty));
        for (b, p) in self.pages.range_mut(from..).filter(|(_, p)| p.dirty).take(max) {
            collected.push((*b, p.image.clone()));
            p.dirty = false;
            reserved += usize::from(std::mem::take(&mut p.reserved));
        }
        self.dirty -= collected.len();
        self.reserved -= reserved;
        (collected, reserved as u64)
    }

    /// Writeback of a page has ended: the page leaves, unless it was changed meanwhile. Returns true if it left.
    pub(in crate::data) fn written(&mut self, b: FileBlock) -> bool {
        let clean = self.pages.get(&b).is_some_and(|p| !p.dirty);
        if clean {
            self.pages.remove(&b);
        }
        clean
    }

    /// Takes out the pages from `from` on. With them go all reservations of pointer blocks: the pages before may be
    /// written back meanwhile, and those that were taken out need them if they come back.
    pub(in crate::data) fn take_out(&mut self, from: FileBlock) -> Behind {
        let behind = Behind { pages: self.pages.split_off(&from), pointers: std::mem::take(&mut self.pointers) };
        self.dirty -= behind.dirty();
        self.reserved -= behind.reserved_pages();
        behind
    }

    /// Brings back what was taken out. Returns the number of reservations that the caller must give back, because no
    /// page needs them.
    pub(in crate::data) fn put_back(&mut self, behind: Behind) -> u64 {
        self.dirty += behind.dirty();
        self.reserved += behind.reserved_pages();
        self.pages.extend(behind.pages);
        self.pointers.extend(behind.pointers);
        self.take_pointers()
    }

    /// Drops the pages from `from` to before `to`. Returns their number and their reservations.
    pub(in crate::data) fn drop_range(&mut self, from: FileBlock, to: FileBlock) -> (usize, u64) {
        let gone: Vec<_> = self.range(from, to).map(|(b, p)| (b, p.dirty, p.reserved)).collect();
        let mut reservations = 0;
        for (b, dirty, reserved) in &gone {
            self.pages.remove(b);
            self.dirty -= usize::from(*dirty);
            reservations += usize::from(*reserved);
        }
        self.reserved -= reservations;
        (gone.len(), reservations as u64 + self.take_pointers())
    }
}
