//! Writing: bytes go into pages; blocks are chosen when the pages are written back (delayed allocation).
//!
//! ```text
//! file lock ─> operation: where is what, reserve what has no block ─> read the edges ─> pages, size, times ─> unlock ─> throttle
//! ```
//! Guarantees (docs/invariants.md):
//! - F3: when the file grows, what lies between its old end and the new bytes is zero, whatever the old last block held;
//! - F13: a page without a block has a reservation, so that its write-back does not run out of space.
//!
//! A request of at most [`REQUEST`] bytes is done under one lock: appends do not mix. Files whose data is journaled go
//! another way: see [`super::journaled`].

use super::read::check_file;
use super::state::{FileState, Times};
use crate::alloc;
use crate::error::{Error, Result};
use crate::flags::is_sync;
use crate::inode_ops::{Privileges, drop_privileges};
use crate::map::{self, Mapping};
use crate::mode::{self, FileMode};
use crate::namei::live;
use crate::op::Op;
use crate::options::Route;
use crate::volume::Volume;
use quire_cache::Image;
use quire_device::sync::{Arc, lock};
use quire_device::{Buf, Mutant, Region};
use quire_layout::features::ro_compat;
use quire_layout::inode::{Inode, flags};
use quire_layout::{BlockNo, BlockSize, FileBlock, Ino, indirect};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::Range;

/// Bytes that are written at once; a longer write is split.
pub(super) const REQUEST: usize = 1 << 20;

/// How a write is meant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteFlags {
    /// At the end of the file, wherever that is.
    pub append: bool,
    /// `O_SYNC`: as if an fsync followed.
    pub sync: bool,
    /// `O_DSYNC`: as if an fdatasync followed.
    pub dsync: bool,
    /// What becomes of set-user-id, set-group-id and capabilities.
    pub privileges: Privileges,
    /// From the kernel's writeback cache: times are the kernel's matter, and it was allowed when it was done.
    pub from_cache: bool,
}

/// Bytes to be written at a place that is known.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub at: u64,
    pub data: &'a [u8],
}

/// Where the old bytes of a block come from.
pub(super) enum Base {
    Zeros,
    Memory(Image),
    Device(BlockNo),
}

/// What a write finds.
struct Plan {
    at: u64,
    len: usize,
    /// The file's size before.
    size: u64,
    journaled: bool,
    /// The inode says that it is always written through.
    sync: bool,
    /// Blocks without a block on disk; each has got a reservation.
    unmapped: HashSet<FileBlock>,
    /// Blocks without a page whose updates are journaled from this one on (`selective`).
    logged: HashSet<FileBlock>,
    /// Blocks of pointers that their mapping may need; each has got a reservation.
    pointers: BTreeSet<Vec<usize>>,
    /// Blocks without a page that are written in part.
    edges: Vec<(FileBlock, Base)>,
    /// The last block of a file that grows behind it, if it has no page.
    tail: Option<(FileBlock, Base)>,
}

impl Plan {
    /// Blocks that were reserved.
    fn reserved(&self) -> u64 {
        (self.unmapped.len() + self.pointers.len()) as u64
    }
}

impl Volume {
    /// Writes to a file at `offset`; returns how many bytes. Less than all were written only if an error stopped it after
    /// some, or the file can grow no more.
    ///
    /// # Errors
    /// No space; too large; immutable or append-only; corrupt block map; the device failed; read-only.
    pub fn write(&self, ino: Ino, offset: u64, data: &[u8], flags: WriteFlags) -> Result<usize> {
        let mut done = 0;
        let mut through = flags.sync;
        while done < data.len() {
            let part = &data[done..data.len().min(done + self.request_bytes())];
            let at = offset.checked_add(done as u64).ok_or(Error::TooLarge)?;
            let r = Request { at, data: part };
            let mut written = self.write_part(ino, r, flags);
            if let Err(Error::NoSpace) = written {
                // Reservations are for the worst case: what they turn out to need may leave room.
                self.write_back_all();
                written = self.write_part(ino, r, flags);
            }
            match written {
                Ok((n, sync)) => {
                    done += n;
                    through |= sync;
                }
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
            self.throttle(ino);
        }
        if done > 0 && (through || flags.dsync) {
            self.fsync(ino, !through)?;
        }
        Ok(done)
    }

    /// Writes one request; returns how many bytes, and whether the inode wants them durable.
    fn write_part(&self, ino: Ino, r: Request<'_>, flags: WriteFlags) -> Result<(usize, bool)> {
        self.may_write()?;
        let file = self.inner.files.get(ino);
        if let Some(done) = self.write_direct(&file, r, flags)? {
            return Ok(done);
        }
        let s = self.lock_with_room(&file, r.data.len())?;
        let mut s = file.after_direct(s, &self.blocks_around(r, flags));
        // It passed the gate: a freeze that began since lets it end, with the file's lock that rounds need.
        let plan = self.run_in_round(|op| plan(op, ino, &s, r, flags))?;
        let r = Request { at: plan.at, data: &r.data[..plan.len] };
        if plan.journaled {
            drop(s);
            return Ok((self.write_journaled(&file, r, flags)?, plan.sync));
        }
        if let Err(e) = self.write_pages(ino, &mut s, r, &plan) {
            self.unreserve(plan.reserved());
            return Err(e);
        }
        s.add_pointers(plan.pointers);
        let end = plan.at + r.data.len() as u64;
        if end > plan.size {
            s.size = Some(end);
        }
        if !flags.from_cache {
            let now = self.inner.now();
            s.times = Some(Times { mtime: now, ctime: now });
        }
        self.inner.files.queue(ino, &mut s, self.inner.clock.monotonic());
        Ok((r.data.len(), plan.sync))
    }

    /// The blocks that a request may touch.
    fn blocks_around(&self, r: Request<'_>, flags: WriteFlags) -> Range<FileBlock> {
        let bs = self.inner.sb.block_size();
        let block = |at: u64| bs.file_block(at).unwrap_or(FileBlock(u32::MAX - 1));
        let end = block(r.at.saturating_add(r.data.len() as u64)).plus(1);
        // Behind an end that is not known; and the block of the old end gets zeros.
        if flags.append { FileBlock(0)..FileBlock(u32::MAX) } else { FileBlock(0)..end }
    }

    /// Puts bytes into pages. On an error nothing has changed.
    fn write_pages(&self, ino: Ino, s: &mut FileState, r: Request<'_>, plan: &Plan) -> Result<()> {
        let bs = self.inner.sb.block_size();
        let mut edges = BTreeMap::new();
        for (b, base) in &plan.edges {
            edges.insert(*b, self.load_base(ino, *b, base, plan.size)?.0);
        }
        let tail = match &plan.tail {
            Some((b, base)) => Some((*b, self.load_base(ino, *b, base, plan.size)?)),
            None => None,
        };
        let mut added = 0;
        let mut clean = lock(&self.inner.files.clean);
        for (b, range, bytes) in blocks_of(bs, r) {
            clean.take(ino, b);
            if let Some(image) = s.page_mut(b) {
                Arc::make_mut(image)[range].copy_from_slice(bytes);
                continue;
            }
            let image = match edges.remove(&b) {
                Some(mut image) => {
                    Arc::make_mut(&mut image)[range].copy_from_slice(bytes);
                    image
                }
                None => Arc::new(Buf::copy_of(bytes)),
            };
            s.add_page(b, image, plan.unmapped.contains(&b));
            if plan.logged.contains(&b) {
                s.log_page(b);
            }
            added += 1;
        }
        if let Some((b, (image, true))) = tail {
            s.add_page(b, image, false);
            // An update of less than a block.
            if self.inner.write_threshold().is_some() {
                s.log_page(b);
            }
            added += 1;
        }
        drop(clean);
        self.inner.files.count_pages(added);
        Ok(())
    }

    /// The bytes of a block, zero behind the end of the file; and whether something there had not been zero. The page
    /// is no longer among the clean ones.
    pub(super) fn load_base(&self, ino: Ino, at: FileBlock, base: &Base, size: u64) -> Result<(Image, bool)> {
        let bs = self.inner.sb.block_size();
        let mut image = match (base, lock(&self.inner.files.clean).take(ino, at)) {
            (Base::Zeros, _) => return Ok((Arc::new(Buf::zeroed(bs.bytes())), false)),
            (Base::Memory(image), _) => image.clone(),
            (Base::Device(_), Some(image)) => image,
            (Base::Device(b), None) => {
                Arc::new(self.inner.journal.gate().device().read(bs.offset(*b), bs.bytes(), Region::Data)?)
            }
        };
        let used = used_bytes(bs, at, size);
        let dirty = image[used..].iter().any(|b| *b != 0);
        if dirty {
            Arc::make_mut(&mut image)[used..].fill(0);
        }
        Ok((image, dirty))
    }
}

/// How many bytes of a block lie before the end of the file.
pub(super) fn used_bytes(bs: BlockSize, b: FileBlock, size: u64) -> usize {
    let used = size.saturating_sub(u64::from(b.0) << bs.bits()).min(bs.bytes64());
    usize::try_from(used).expect("within a block")
}

/// The blocks that a request touches: which bytes of each, and what they become.
pub(super) fn blocks_of(bs: BlockSize, r: Request<'_>) -> impl Iterator<Item = (FileBlock, Range<usize>, &[u8])> {
    let mut done = 0;
    std::iter::from_fn(move || {
        let at = r.at + done as u64;
        let b = bs.file_block(at).filter(|_| done < r.data.len())?;
        let from = usize::try_from(at % bs.bytes64()).expect("within a block");
        let n = (bs.bytes() - from).min(r.data.len() - done);
        done += n;
        Some((b, from..from + n, &r.data[done - n..done]))
    })
}

/// Checks that the write may be, and finds what it needs; reserves space for what has none.
fn plan(op: &mut Op<'_>, ino: Ino, s: &FileState, r: Request<'_>, flags: WriteFlags) -> Result<Plan> {
    let mut inode = live(op, ino)?;
    check_file(&inode)?;
    let size = s.size.unwrap_or(inode.size());
    let at = if flags.append { size } else { r.at };
    check_change(&inode, at < size, flags.from_cache)?;
    let max = max_size(op, &inode);
    if at >= max {
        return Err(Error::TooLarge);
    }
    let len = usize::try_from(max - at).unwrap_or(usize::MAX).min(r.data.len());
    let mut plan = Plan {
        at,
        len,
        size,
        journaled: is_journaled_file(op, ino, &inode)?,
        sync: is_sync(&inode),
        unmapped: HashSet::new(),
        logged: HashSet::new(),
        pointers: BTreeSet::new(),
        edges: Vec::new(),
        tail: None,
    };
    if plan.journaled {
        return Ok(plan);
    }
    lose_privileges(op, ino, &mut inode, flags.privileges)?;
    let bs = op.sb().block_size();
    let block = |at: u64| bs.file_block(at).ok_or(Error::TooLarge);
    let (first, last) = (block(at)?, block(at + len as u64 - 1)?);
    for (b, run) in runs(op, ino, &inode, first, last.plus(1))? {
        for n in (0..run.len()).filter(|n| s.page(b.plus(*n)).is_none()) {
            let b = b.plus(n);
            if matches!(run, Mapping::Hole { .. }) {
                plan.unmapped.insert(b);
            }
            let start = u64::from(b.0) << bs.bits();
            let update = (at + len as u64).min(start + bs.bytes64()) - at.max(start);
            if is_logged(op, &run, n, update) {
                plan.logged.insert(b);
            }
            if start < at || start + bs.bytes64() > at + len as u64 {
                plan.edges.push((b, base_of(op, &run, n)));
            }
        }
    }
    let behind =
        bs.file_block(size).filter(|b| !size.is_multiple_of(bs.bytes64()) && *b < first && s.page(*b).is_none());
    if let Some(b) = behind {
        let run = map::lookup(op, ino, &inode, b, 1)?;
        plan.tail = run.written().map(|_| (b, base_of(op, &run, 0)));
    }
    if !inode.uses_extents() {
        plan.pointers = pointers_of(bs, s, &plan.unmapped);
    }
    alloc::reserve(op, plan.reserved(), op.pool())?;
    Ok(plan)
}

/// F17: true if an update of so many bytes is journaled and begins or continues a sequence that is: see [`super::route`].
fn is_logged(op: &Op<'_>, run: &Mapping, n: u32, update: u64) -> bool {
    let Some(threshold) = op.vol.write_threshold() else { return false };
    let live = match run {
        Mapping::Mapped { phys, .. } => op.is_journaled(phys.plus(u64::from(n))) && !Mutant::SequenceEndsEarly.is_on(),
        Mapping::Hole { .. } => false,
    };
    live || update < threshold
}

/// What a write takes from a file besides its old bytes.
pub(super) fn lose_privileges(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, what: Privileges) -> Result<()> {
    if what == Privileges::Keep {
        return Ok(());
    }
    let before = inode.clone();
    drop_privileges(op, ino, inode, what)?;
    if *inode == before { Ok(()) } else { op.put_inode(ino, inode) }
}

/// The blocks of pointers on the way to blocks of an indirect map that nothing is reserved for yet.
fn pointers_of(bs: BlockSize, s: &FileState, unmapped: &HashSet<FileBlock>) -> BTreeSet<Vec<usize>> {
    let mut out = BTreeSet::new();
    for path in unmapped.iter().filter_map(|b| indirect::path(bs, *b)) {
        let slots = path.slots();
        let new = (1..slots.len()).map(|n| &slots[..n]).filter(|way| !s.has_pointers(way));
        out.extend(new.map(<[usize]>::to_vec));
    }
    out
}

/// The map of a range, run by run.
pub(super) fn runs(
    op: &mut Op<'_>,
    ino: Ino,
    inode: &Inode,
    from: FileBlock,
    to: FileBlock,
) -> Result<Vec<(FileBlock, Mapping)>> {
    let (mut at, mut out) = (from, Vec::new());
    while at < to {
        let run = map::lookup(op, ino, inode, at, to.0 - at.0)?;
        out.push((at, run));
        at = at.plus(run.len());
    }
    Ok(out)
}

/// Where the bytes of block `n` of a run are.
pub(super) fn base_of(op: &mut Op<'_>, run: &Mapping, n: u32) -> Base {
    match run.written().map(|b| b.plus(u64::from(n))) {
        None => Base::Zeros,
        Some(b) => op.block_in_memory(b).map_or(Base::Device(b), Base::Memory),
    }
}

/// The largest size that a file can have, in bytes.
pub(super) fn max_size(op: &Op<'_>, inode: &Inode) -> u64 {
    let max = map::max_size(op.sb(), inode.uses_extents()).min(i64::MAX.unsigned_abs());
    if op.sb().features().has_ro_compat(ro_compat::LARGE_FILE) { max } else { max.min(i32::MAX.unsigned_abs().into()) }
}

/// True if updates of this file's data go through the journal, request by request.
///
/// # Errors
/// Corrupt; miss.
pub(crate) fn is_journaled_file(op: &mut Op<'_>, ino: Ino, inode: &Inode) -> Result<bool> {
    Ok(match op.vol.options.route {
        Route::Journal => true,
        Route::None => false,
        Route::Adaptive => op.vol.journal.has_log() && mode::of(op, ino, inode)? == FileMode::Journal,
        _ => op.vol.journal.has_log() && inode.has(flags::JOURNAL_DATA),
    })
}

/// Refuses what the flags of an inode forbid. What the kernel's cache held was allowed earlier.
pub(super) fn check_change(inode: &Inode, overwrites: bool, from_cache: bool) -> Result<()> {
    match () {
        () if from_cache => Ok(()),
        () if inode.has(flags::IMMUTABLE) => Err(Error::NotPermitted("the file is immutable")),
        () if inode.has(flags::APPEND) && overwrites => Err(Error::NotPermitted("the file is append-only")),
        () => Ok(()),
    }
}
