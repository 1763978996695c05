//! The first step of a batch: dirty pages are cloned under the file's lock, and count as under writeback.

use crate::data::context::Data;
use crate::data::pages::{FileState, Times};
use crate::error::{Error, Result};
use crate::records;
use crate::space::Claim;
use quire_cache::Image;
use quire_device::{Epoch, Mutant};
use quire_layout::{BlockNo, FileBlock, Ino};
use std::collections::BTreeSet;
use std::ops::Range;

/// The place of a run of pages.
pub(in crate::data) enum Destination {
    /// Blocks that are mapped and hold data.
    Written(BlockNo),
    /// Blocks that are mapped but unwritten.
    Unwritten(BlockNo),
    /// Blocks chosen for the pages.
    Claimed(Claim),
}

impl Destination {
    pub(in crate::data) fn start(&self) -> BlockNo {
        match self {
            Destination::Written(b) | Destination::Unwritten(b) => *b,
            Destination::Claimed(c) => c.run().start,
        }
    }
}

/// A run of pages with the same destination and way.
pub(in crate::data) struct Piece {
    pub at: FileBlock,
    /// Index of its first page in [`Collected::pages`].
    pub first: usize,
    /// The number of its pages.
    pub len: usize,
    pub to: Destination,
    /// The pages join the transaction; otherwise they are written in place before it.
    pub journaled: bool,
    /// The pages are new data that could go in place, and are logged with the commit instead.
    pub new_data: bool,
}

impl Piece {
    pub(in crate::data) fn blocks(&self) -> u32 {
        u32::try_from(self.len).expect("a batch is smaller")
    }

    /// The block of the disk after the last.
    fn end(&self) -> BlockNo {
        self.to.start().plus(self.len as u64)
    }

    /// The blocks of the disk before this one, which lies in the piece.
    fn blocks_before(&self, b: BlockNo) -> u32 {
        u32::try_from(b.0 - self.to.start().0).expect("a batch is smaller")
    }

    /// True if an operation has to follow the data, or carries it.
    pub(super) fn is_recorded(&self) -> bool {
        self.journaled || !matches!(self.to, Destination::Written(_))
    }

    /// Keeps the first `n` pages; returns the rest.
    fn split_off(&mut self, n: u32) -> Piece {
        let pages = usize::try_from(n).expect("a batch is smaller");
        let to = match &mut self.to {
            Destination::Written(b) => Destination::Written(b.plus(u64::from(n))),
            Destination::Unwritten(b) => Destination::Unwritten(b.plus(u64::from(n))),
            Destination::Claimed(c) => Destination::Claimed(c.split_off(n)),
        };
        let rest = Piece { at: self.at.plus(n), first: self.first + pages, len: self.len - pages, to, ..*self };
        self.len = pages;
        rest
    }

    /// What the piece counts against `RECORDS_PER_OPERATION`.
    pub(super) fn cost(&self) -> usize {
        if self.journaled { self.len } else { 1 }
    }
}

/// A page as it was when a batch collected it.
pub(in crate::data) type CollectedPage = (FileBlock, Image);

/// What a batch collected of one file.
pub(in crate::data) struct Collected {
    pub ino: Ino,
    pub pages: Vec<CollectedPage>,
    /// Blocks reserved for data; claims replace the reservation. What of them is dropped is reserved again.
    pub(super) reserved: u64,
    /// Blocks reserved for the map; given back when it has what it needs.
    pub(super) map: u64,
    /// The size that the inode gets with these pages.
    pub(super) size: Option<u64>,
    /// The times that the inode gets with these pages.
    pub(super) times: Option<Times>,
    pub(super) pieces: Vec<Piece>,
    /// Pages of update sequences that are journaled (`selective`).
    pub(super) journaled: BTreeSet<FileBlock>,
    /// New blocks are logged with the commit if there are at most so many.
    pub(super) log_limit: usize,
    /// Pieces that could not be written, while others were.
    pub(super) lost: Vec<Piece>,
    /// The flush epoch in which the pages that went in place were complete.
    pub(super) written: Option<Epoch>,
    /// Nothing of this is recorded.
    pub(super) error: Option<Error>,
    /// `lost` is not recorded.
    pub(super) partial_error: Option<Error>,
}

impl Collected {
    /// Blocks without pages, written already: in the epoch of `written`, or not, with the error.
    pub(in crate::data) fn direct(ino: Ino, pieces: Vec<Piece>, size: Option<u64>, written: Result<Epoch>) -> Self {
        let (written, error) = match written {
            Ok(epoch) => (Some(epoch), None),
            Err(e) => (None, Some(e)),
        };
        Collected { size, pieces, written, error, ..Collected::nothing(ino) }
    }

    fn nothing(ino: Ino) -> Self {
        Collected {
            ino,
            pages: Vec::new(),
            reserved: 0,
            map: 0,
            size: None,
            times: None,
            pieces: Vec::new(),
            journaled: BTreeSet::new(),
            log_limit: 0,
            lost: Vec::new(),
            written: None,
            error: None,
            partial_error: None,
        }
    }

    pub(in crate::data) fn into_error(self) -> Option<Error> {
        self.error.or(self.partial_error)
    }

    /// Pages could not be written to these blocks of the disk. The rest is recorded all the same if the file then shows
    /// zeros there: not where requests are whole (F16), nor where the blocks hold older bytes, because a size that is
    /// recorded could uncover them (F3).
    pub(super) fn lose(&mut self, blocks: &Range<BlockNo>, e: &Error, whole_requests: bool) {
        let hit = |p: &Piece| !p.journaled && p.to.start() < blocks.end && blocks.start < p.end();
        let overwrites = |p: &Piece| matches!(p.to, Destination::Written(_));
        if Mutant::LostPagesRecorded.is_on() {
            self.partial_error.get_or_insert_with(|| e.clone());
            return;
        }
        if whole_requests || self.pieces.iter().any(|p| hit(p) && overwrites(p)) {
            self.error.get_or_insert_with(|| e.clone());
            return;
        }
        for mut p in std::mem::take(&mut self.pieces) {
            if !hit(&p) {
                self.pieces.push(p);
                continue;
            }
            if p.end() > blocks.end {
                let rest = p.split_off(p.blocks_before(blocks.end));
                self.pieces.push(rest);
            }
            if p.to.start() < blocks.start {
                let bad = p.split_off(p.blocks_before(blocks.start));
                self.pieces.push(std::mem::replace(&mut p, bad));
            }
            self.lost.push(p);
            self.partial_error.get_or_insert_with(|| e.clone());
        }
        self.pieces.sort_unstable_by_key(|p| p.at);
    }

    /// The file block after the last page.
    pub(super) fn end(&self) -> FileBlock {
        self.pages.last().map_or(FileBlock(0), |(b, _)| b.plus(1))
    }

    /// A caller waits for the commit that this batch leads to: up to so many new blocks are logged with it.
    pub(super) fn with_log_limit(mut self, blocks: usize) -> Self {
        self.log_limit = blocks;
        self
    }

    /// True if an operation has to follow the data.
    pub(super) fn needs_record(&self) -> bool {
        self.size.is_some() || self.times.is_some() || self.pieces.iter().any(Piece::is_recorded)
    }
}

/// True if the page is dirty that holds the end of the file as its inode has it.
fn has_dirty_tail(d: &Data, ino: Ino, s: &FileState) -> bool {
    let bs = d.block_size();
    let Ok(size) = d.engine.run(|op| Ok(records::inode(op, ino)?.size())) else { return true };
    let tail = bs.file_block(size).filter(|_| !size.is_multiple_of(bs.bytes64()));
    Mutant::SizeHeldBack.is_on() || tail.and_then(|b| s.page(b)).is_some_and(|p| p.dirty)
}

/// Collects up to `max` dirty pages of a file from `from` on; all pages where requests are whole (F16). With `times`,
/// pending times without a page are collected, too. `None`: there is nothing to collect.
pub(super) fn collect(
    d: &Data,
    ino: Ino,
    s: &mut FileState,
    from: FileBlock,
    max: usize,
    times: bool,
) -> Option<Collected> {
    let (from, max) = if d.whole_requests() { (FileBlock(0), usize::MAX) } else { (from, max) };
    let (pages, reserved) = s.collect_dirty(from, max);
    let journaled = pages.iter().map(|(b, _)| *b).filter(|b| s.page(*b).is_some_and(|p| p.logged)).collect();
    let times = if times { s.times } else { None };
    let whole = !s.has_dirty_pages();
    let size = match (s.size, pages.last()) {
        (Some(size), _) if whole => Some(size),
        (Some(size), Some((last, _))) => {
            let end = last.plus(1);
            // Not over a dirty page that may hold the zeros behind the old end (F3). Any other that lies before was
            // written by an earlier batch, and has changed since: the blocks of this one would lie behind the size.
            let held_back = s.first_dirty().filter(|b| *b < end).filter(|_| has_dirty_tail(d, ino, s));
            Some(size.min(u64::from(held_back.unwrap_or(end).0) << d.block_size().bits()))
        }
        _ => None,
    };
    if whole && (s.times.is_none() || times.is_some()) {
        d.files.unqueue(s);
    }
    let any = !pages.is_empty() || times.is_some() || (whole && size.is_some());
    any.then(|| Collected { pages, reserved, map: s.take_map(), size, times, journaled, ..Collected::nothing(ino) })
}
