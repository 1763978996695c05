//! One file's pending data, and who may do what to the file at the same time.
//!
//! ```text
//! clean ──write──> dirty ──taken by a round──> under write-back ──round ends──> clean
//!                    ^                               │
//!                    └────────── write (copies) ─────┘
//! ```
//! Guarantees (docs/invariants.md):
//! - F1: a page that is here is newer than what the disk holds; a reader sees it;
//! - F2: one round at a time writes a file back; what changes the block map under pages (truncate, punch, collapse,
//!   insert) runs while no round and no reader is on the file;
//! - F3: bytes of a page past the end of the file are zero.

use quire_cache::Image;
use quire_device::FlushGate;
use quire_device::sync::atomic::{AtomicBool, Ordering};
use quire_device::sync::{Arc, Condvar, Mutex, MutexGuard, lock, wait};
use quire_layout::inode::Timestamp;
use quire_layout::{FileBlock, Ino};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// One block of a file that is newer than the disk.
#[derive(Clone)]
pub(super) struct Page {
    pub image: Image,
    /// Changed since a round last took it; otherwise it is under write-back.
    pub dirty: bool,
    /// A block is reserved for it: it has none on disk yet.
    pub reserved: bool,
    /// Its sequence of updates is journaled (`selective`).
    pub logged: bool,
}

/// Times that the inode on disk is to get.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Times {
    pub mtime: Timestamp,
    pub ctime: Timestamp,
}

/// What is pending of one file.
#[derive(Default)]
pub(super) struct FileState {
    pages: BTreeMap<FileBlock, Page>,
    /// Pages that are `dirty`.
    dirty: usize,
    /// Pages that are `reserved`.
    reserved: usize,
    /// Blocks of pointers that an indirect map may need for the reserved pages, each by the slots that lead to it. One
    /// block is reserved for each. (For extent trees the volume keeps a reserve.)
    pointers: BTreeSet<Vec<usize>>,
    /// Size in bytes, if the inode on disk does not have it yet.
    pub size: Option<u64>,
    pub times: Option<Times>,
    /// Place in the queue of files that have something to write back.
    pub mark: Option<u64>,
    /// A round writes this file back.
    writing: bool,
    /// It may be waiting for nothing but somebody's flush.
    awaits_flush: bool,
    /// Readers and direct writes of the file's blocks.
    readers: u32,
    /// Blocks that are being written directly (F19).
    direct: Vec<Range<FileBlock>>,
    /// Callers that wait for rounds and readers to leave.
    waiting: u32,
}

impl FileState {
    /// True if nothing is pending and nobody is at work.
    pub(super) fn is_idle(&self) -> bool {
        self.pages.is_empty()
            && self.size.is_none()
            && self.times.is_none()
            && !self.writing
            && self.readers == 0
            && self.waiting == 0
    }

    /// True if any of these blocks is being written directly.
    fn is_direct(&self, blocks: &Range<FileBlock>) -> bool {
        self.direct.iter().any(|d| d.start < blocks.end && blocks.start < d.end)
    }

    /// Pages that are not clean.
    pub(super) fn pages(&self) -> usize {
        self.pages.len()
    }

    pub(super) fn has_pages(&self) -> bool {
        !self.pages.is_empty()
    }

    /// True if there are pages that no round has taken.
    pub(super) fn has_dirty_pages(&self) -> bool {
        self.dirty > 0
    }

    pub(super) fn has_pages_before(&self, b: FileBlock) -> bool {
        self.pages.range(..b).next().is_some()
    }

    /// Pages that no round has taken and whose blocks exist.
    pub(super) fn overwrites(&self) -> usize {
        self.dirty - self.reserved
    }

    /// The first page that no round has taken.
    pub(super) fn first_dirty(&self) -> Option<FileBlock> {
        self.pages.iter().find(|(_, p)| p.dirty).map(|(b, _)| *b)
    }

    /// Data blocks reserved for pages that no round has taken.
    pub(super) fn reserved(&self) -> u64 {
        self.reserved as u64
    }

    /// True if a block is reserved for the block of pointers that these slots lead to.
    pub(super) fn has_pointers(&self, slots: &[usize]) -> bool {
        self.pointers.contains(slots)
    }

    pub(super) fn add_pointers(&mut self, more: BTreeSet<Vec<usize>>) {
        self.pointers.extend(more);
    }

    /// The blocks of pointers reserved, once no page needs them any more: the caller gives them back.
    pub(super) fn take_pointers(&mut self) -> u64 {
        if self.reserved > 0 { 0 } else { std::mem::take(&mut self.pointers).len() as u64 }
    }

    pub(super) fn page(&self, b: FileBlock) -> Option<&Page> {
        self.pages.get(&b)
    }

    /// The pages from `from` to before `to`.
    pub(super) fn range(&self, from: FileBlock, to: FileBlock) -> impl Iterator<Item = (FileBlock, &Page)> {
        self.pages.range(from..to.max(from)).map(|(b, p)| (*b, p))
    }

    /// The bytes of a page, to be changed; it becomes dirty. A round that holds it keeps what it took.
    pub(super) fn page_mut(&mut self, b: FileBlock) -> Option<&mut Image> {
        let p = self.pages.get_mut(&b)?;
        self.dirty += usize::from(!p.dirty);
        p.dirty = true;
        Some(&mut p.image)
    }

    /// Adds a dirty page where there is none.
    pub(super) fn add_page(&mut self, b: FileBlock, image: Image, reserved: bool) {
        let old = self.pages.insert(b, Page { image, dirty: true, reserved, logged: false });
        assert!(old.is_none(), "{b} has a page already");
        self.dirty += 1;
        self.reserved += usize::from(reserved);
    }

    /// The sequence of updates that this page has begun is journaled.
    pub(super) fn log_page(&mut self, b: FileBlock) {
        if let Some(p) = self.pages.get_mut(&b) {
            p.logged = true;
        }
    }

    /// Takes up to `max` dirty pages from `from` on for a round; their reservations go with them.
    pub(super) fn take_dirty(&mut self, from: FileBlock, max: usize) -> (Vec<(FileBlock, Image)>, u64) {
        let mut reserved = 0usize;
        let mut taken = Vec::with_capacity(max.min(self.dirty));
        for (b, p) in self.pages.range_mut(from..).filter(|(_, p)| p.dirty).take(max) {
            taken.push((*b, p.image.clone()));
            p.dirty = false;
            reserved += usize::from(std::mem::take(&mut p.reserved));
        }
        self.dirty -= taken.len();
        self.reserved -= reserved;
        (taken, reserved as u64)
    }

    /// A round is done with a page: it is clean, unless it was changed meanwhile. True if it is gone from here.
    pub(super) fn written(&mut self, b: FileBlock) -> bool {
        let clean = self.pages.get(&b).is_some_and(|p| !p.dirty);
        if clean {
            self.pages.remove(&b);
        }
        clean
    }

    /// Drops the pages from `from` to before `to`. Returns how many, and the reservations they had.
    pub(super) fn drop_range(&mut self, from: FileBlock, to: FileBlock) -> (usize, u64) {
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

/// A file with pending data, or in use.
pub(crate) struct File {
    pub(super) ino: Ino,
    state: Mutex<FileState>,
    /// A round or a reader left.
    left: Condvar,
    /// Somebody waits for the round that is under way. Set and cleared under the lock of `state`, read without.
    wanted: AtomicBool,
    /// Where that round may be waiting for a flush.
    gate: Arc<FlushGate>,
}

impl File {
    pub(super) fn new(ino: Ino, gate: Arc<FlushGate>) -> Self {
        let state = Mutex::new(FileState::default());
        File { ino, state, left: Condvar::new(), wanted: AtomicBool::new(false), gate }
    }

    /// Locks the file: no other writer. Rounds and readers may be under way.
    pub(super) fn lock(&self) -> MutexGuard<'_, FileState> {
        lock(&self.state)
    }

    /// Locks the file when no round and no reader is on it: nobody else looks at its blocks (F2).
    pub(super) fn exclusive(&self) -> MutexGuard<'_, FileState> {
        self.exclusive_by(Self::wait_to_leave)
    }

    /// As [`File::exclusive`], by who has time: the round under way may wait for a flush.
    pub(super) fn exclusive_patiently(&self) -> MutexGuard<'_, FileState> {
        self.exclusive_by(|file, s| wait(&file.left, s))
    }

    fn exclusive_by<'f>(
        &'f self,
        wait_to_leave: impl Fn(&'f File, MutexGuard<'f, FileState>) -> MutexGuard<'f, FileState>,
    ) -> MutexGuard<'f, FileState> {
        let mut s = self.lock();
        s.waiting += 1;
        while s.writing || s.readers > 0 {
            s = wait_to_leave(self, s);
        }
        s.waiting -= 1;
        self.left.notify_all();
        s
    }

    /// Locks the file to begin a round: waits for the one under way.
    pub(super) fn next_round(&self) -> MutexGuard<'_, FileState> {
        let mut s = self.lock();
        while s.writing || s.waiting > 0 {
            s = self.wait_to_leave(s);
        }
        s
    }

    /// Waits for those who are at the file's blocks; but a round does not keep it for the sake of somebody's flush.
    fn wait_to_leave<'f>(&'f self, s: MutexGuard<'f, FileState>) -> MutexGuard<'f, FileState> {
        self.wanted.store(true, Ordering::Relaxed);
        if s.awaits_flush {
            self.gate.look_again();
        }
        wait(&self.left, s)
    }

    /// The round that is under way is going to wait for a flush, as long as the file is not wanted.
    pub(super) fn await_flush(&self) {
        self.lock().awaits_flush = true;
    }

    /// True if somebody waits for the round that is under way.
    pub(super) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// As [`File::next_round`] if nobody else has the file.
    pub(super) fn try_round(&self) -> Option<MutexGuard<'_, FileState>> {
        let s = self.state.try_lock().ok()?;
        (!s.writing && s.waiting == 0).then_some(s)
    }

    /// Says that a round is under way; it ends with [`File::end_round`].
    pub(super) fn begin_round(&self, s: &mut FileState) {
        assert!(!s.writing, "one round at a time");
        (s.writing, s.awaits_flush) = (true, false);
        self.wanted.store(false, Ordering::Relaxed);
    }

    pub(super) fn end_round(&self, mut s: MutexGuard<'_, FileState>) {
        (s.writing, s.awaits_flush) = (false, false);
        drop(s);
        self.left.notify_all();
    }

    /// Registers a reader of the file's blocks.
    pub(super) fn reader(self: &Arc<Self>) -> (Reader, MutexGuard<'_, FileState>) {
        let mut s = self.lock();
        while s.waiting > 0 {
            // Who waits before it may have time.
            s = self.wait_to_leave(s);
        }
        s.readers += 1;
        (Reader { file: self.clone() }, s)
    }

    /// Registers a direct write, if nothing of the file is pending and nobody is in the way.
    pub(super) fn try_direct(
        self: &Arc<Self>,
        blocks: Range<FileBlock>,
    ) -> Option<(Direct, MutexGuard<'_, FileState>)> {
        let mut s = self.lock();
        if s.waiting > 0 || s.has_pages() || s.size.is_some() || s.is_direct(&blocks) {
            return None;
        }
        s.readers += 1;
        s.direct.push(blocks.clone());
        Some((Direct { reader: Reader { file: self.clone() }, blocks }, s))
    }

    /// Waits until no direct write of any of these blocks is under way.
    pub(super) fn after_direct<'f>(
        &'f self,
        mut s: MutexGuard<'f, FileState>,
        blocks: &Range<FileBlock>,
    ) -> MutexGuard<'f, FileState> {
        while s.is_direct(blocks) {
            s = wait(&self.left, s);
        }
        s
    }
}

/// While this lives, nobody else writes these blocks or changes their mapping (F19).
pub(super) struct Direct {
    /// Left last.
    reader: Reader,
    blocks: Range<FileBlock>,
}

impl Drop for Direct {
    fn drop(&mut self) {
        let file = &self.reader.file;
        let mut s = file.lock();
        let mine = s.direct.iter().position(|b| *b == self.blocks).expect("registered once");
        s.direct.swap_remove(mine);
        drop(s);
        file.left.notify_all();
    }
}

/// While this lives, the file's blocks stay its own.
pub(super) struct Reader {
    file: Arc<File>,
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut s = self.file.lock();
        s.readers -= 1;
        let last = s.readers == 0;
        drop(s);
        if last {
            self.file.left.notify_all();
        }
    }
}
