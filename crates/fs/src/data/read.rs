//! Reading: pending pages first, then images in the cache, then the disk.
//!
//! ```text
//! file lock: clone the pages of the range ─> operation: extents, images of journaled blocks ─> read the rest in one batch
//! ```
//! A read that does not wait for the device is begun in [`super::begun`].
//!
//! *Guarantees* F11: a reader never gets what a block held before the file owned it, nor an old home under a live
//! record. Holes and unwritten extents are zeros.
//!
//! *Relies on*: the file's blocks stay its own while a reader is registered (F2).

use super::checks::check_file;
use super::context::Data;
use super::file::{File, Reader};
use super::pages::FileState;
use crate::engine::{Manner, Misses};
use crate::error::{Error, Result};
use crate::inode::live;
use crate::map;
use crate::policy::{BLOCKS_TO_REMEMBER, READ_BYTES_AT_ONCE};
use crate::tables::Pool;
use crate::txn::Op;
use quire_cache::Image;
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Buf, Io, Region};
use quire_layout::inline_data::{content, is_inline};
use quire_layout::{BlockNo, BlockSize, FileBlock, Ino};
use std::collections::BTreeMap;
use std::ops::Deref;

/// Where the bytes of a run of file blocks come from. Blocks that no source covers are zeros.
enum Source {
    Device { at: FileBlock, len: u32, phys: BlockNo },
    Memory { at: FileBlock, image: Image },
}

/// What a caller reads for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Intent {
    /// Nothing else.
    Read,
    /// It may change what it reads soon, as a cache above does that is asked to change a part of a page.
    Change,
}

/// The pending data of a file when the read began.
struct Pending {
    size: Option<u64>,
    pages: BTreeMap<FileBlock, Image>,
}

/// Where the bytes of a request come from.
#[derive(Default)]
pub(super) struct Found {
    /// Byte of the file at which the request begins.
    offset: u64,
    /// Bytes that there are.
    pub(super) len: usize,
    sources: Vec<Source>,
    /// Pages that are newer than the sources.
    pages: BTreeMap<FileBlock, Image>,
}

/// Reads from a file at `offset`; less than the buffer holds only at the end of the file.
///
/// # Errors
/// Not a regular file; stale; corrupt block map; I/O.
pub(crate) fn read(d: &Data, ino: Ino, offset: u64, buf: &mut [u8], intent: Intent) -> Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        let to = buf.len().min(done + READ_BYTES_AT_ONCE);
        let Some(at) = offset.checked_add(done as u64) else { break };
        let n = read_part(d, ino, at, &mut buf[done..to], intent)?;
        done += n;
        if done < to {
            break;
        }
    }
    Ok(done)
}

fn read_part(d: &Data, ino: Ino, offset: u64, buf: &mut [u8], intent: Intent) -> Result<usize> {
    let file = d.files.get(ino);
    let (_reader, found) = find(d, &file, (offset, buf.len()), intent, Misses::Load)?;
    found.read(d, buf)
}

/// Registers a reader, and finds where the bytes of a request come from.
pub(super) fn find(
    d: &Data,
    file: &Arc<File>,
    (offset, len): (u64, usize),
    intent: Intent,
    misses: Misses,
) -> Result<(Reader, Found)> {
    let (bs, ino) = (d.block_size(), file.ino);
    let (reader, s) = file.reader();
    let Some(from) = bs.file_block(offset) else { return Ok((reader, Found::default())) };
    let last = offset.saturating_add((len as u64).saturating_sub(1));
    let to = bs.file_block(last).unwrap_or(FileBlock(u32::MAX - 1)).plus(1);
    let pending = Pending { size: s.size, pages: pages_of(&s, from, to) };
    drop(s);
    let manner = Manner { misses, ..Pool::User.into() };
    let find = || d.engine.run_as(manner, |op| plan(op, ino, offset, len, &pending)).map(|(found, _)| found);
    let (len, mut sources) = find()?;
    if intent == Intent::Change && remember(d, &sources, misses)? {
        (_, sources) = find()?;
    }
    Ok((reader, Found { offset, len, sources, pages: pending.pages }))
}

impl Found {
    /// The run of the device that has all bytes: its first block, and its length in bytes.
    pub(super) fn only_run(&self, bs: BlockSize) -> Option<(BlockNo, usize)> {
        let [Source::Device { at, len, phys }] = self.sources.as_slice() else { return None };
        let bytes = usize::try_from(*len).expect("a request is small") * bs.bytes();
        (u64::from(at.0) << bs.bits() == self.offset && bytes >= self.len).then_some((*phys, bytes))
    }

    /// True if a part lies on the device.
    pub(super) fn is_on_device(&self) -> bool {
        self.sources.iter().any(|s| matches!(s, Source::Device { .. }))
    }

    /// The byte offset on the device, and the bytes, of each run there.
    pub(super) fn places(&self, bs: BlockSize) -> impl Iterator<Item = (u64, usize)> {
        device_runs(bs, &self.sources).map(|(_, at, bytes)| (at, bytes))
    }

    /// Fills the buffer; returns the bytes.
    pub(super) fn read(self, d: &Data, buf: &mut [u8]) -> Result<usize> {
        let (bs, device) = (d.block_size(), d.engine.journal.gate().device());
        if let Some((phys, bytes)) = self.only_run(bs)
            && bytes <= buf.len()
        {
            // The common case, without a copy.
            device.read_into(bs.offset(phys), &mut buf[..bytes], Region::Data)?;
            return Ok(self.len);
        }
        let reads = self.places(bs).map(|(at, bytes)| Io::Read { at, buf: Buf::zeroed(bytes), region: Region::Data });
        let reads: Vec<_> = reads.collect();
        let read = if reads.is_empty() { Vec::new() } else { device.run(reads)?.reads };
        self.put_together(bs, &read, &mut buf[..self.len]);
        Ok(self.len)
    }

    /// Fills the buffer from all sources: what was read of each run of the device, memory, and the pages.
    pub(super) fn put_together(&self, bs: BlockSize, read: &[impl Deref<Target = [u8]>], buf: &mut [u8]) {
        buf.fill(0);
        let mut put = |at: FileBlock, bytes: &[u8]| copy_block(buf, self.offset, u64::from(at.0) << bs.bits(), bytes);
        for source in &self.sources {
            if let Source::Memory { at, image } = source {
                put(*at, image);
            }
        }
        for ((at, ..), bytes) in device_runs(bs, &self.sources).zip(read) {
            put(at, bytes);
        }
        for (at, image) in &self.pages {
            put(*at, image);
        }
    }
}

/// The runs of the device among sources: the file's block, the byte offset on the device, and the bytes of each.
fn device_runs(bs: BlockSize, sources: &[Source]) -> impl Iterator<Item = (FileBlock, u64, usize)> {
    sources.iter().filter_map(move |source| match source {
        Source::Device { at, len, phys } => {
            Some((*at, bs.offset(*phys), usize::try_from(*len).expect("a request is small") * bs.bytes()))
        }
        Source::Memory { .. } => None,
    })
}

/// Loads what a read is going to take from the device into memory, where updates of it would be logged as ranges: what
/// is there is the base of their records (Q3). Returns true if it is there now.
///
/// # Errors
/// A miss, if it is to be told.
fn remember(d: &Data, sources: &[Source], misses: Misses) -> Result<bool> {
    if !d.engine.context.route.logs_ranges() {
        return Ok(false);
    }
    let runs =
        sources.iter().filter_map(|s| if let Source::Device { len, phys, .. } = s { Some((phys, len)) } else { None });
    let blocks: Vec<BlockNo> =
        runs.flat_map(|(phys, len)| (0..u64::from(*len)).map(|n| phys.plus(n))).take(BLOCKS_TO_REMEMBER + 1).collect();
    if !(1..=BLOCKS_TO_REMEMBER).contains(&blocks.len()) {
        return Ok(false);
    }
    match misses {
        Misses::Tell => Err(Error::Miss(blocks)),
        // An error is the read's to find.
        Misses::Load => Ok(d.engine.journal.load(&blocks).is_ok()),
    }
}

fn pages_of(s: &FileState, from: FileBlock, to: FileBlock) -> BTreeMap<FileBlock, Image> {
    s.range(from, to).map(|(b, p)| (b, p.image.clone())).collect()
}

/// Copies the part of `bytes`, which lie in the file at `at`, that falls into `buf`, which begins at `offset`.
fn copy_block(buf: &mut [u8], offset: u64, at: u64, bytes: &[u8]) {
    let end = offset + buf.len() as u64;
    let (from, to) = (at.max(offset), (at + bytes.len() as u64).min(end));
    if from < to {
        let index = |n: u64| usize::try_from(n).expect("inside a buffer");
        buf[index(from - offset)..index(to - offset)].copy_from_slice(&bytes[index(from - at)..index(to - at)]);
    }
}

/// The number of bytes to read, and their sources.
fn plan(op: &mut Op<'_>, ino: Ino, offset: u64, len: usize, pending: &Pending) -> Result<(usize, Vec<Source>)> {
    let inode = live(op, ino)?;
    check_file(&inode)?;
    let size = pending.size.unwrap_or(inode.size());
    let len = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX).min(len);
    let mut sources = Vec::new();
    if len == 0 {
        return Ok((0, sources));
    }
    if is_inline(&inode) {
        let image = Image::new(Buf::copy_of(&content(ino, &inode)?));
        sources.push(Source::Memory { at: FileBlock(0), image });
        return Ok((len, sources));
    }
    let bs = op.sb().block_size();
    let block = |at: u64| bs.file_block(at).ok_or(Error::TooLarge);
    let (mut at, end) = (block(offset)?, block(offset + len as u64 - 1)?.plus(1));
    while at < end {
        let run = map::lookup(op, ino, &inode, at, end.0 - at.0)?;
        if let Some(phys) = run.written() {
            for n in 0..run.len() {
                let (at, b) = (at.plus(n), phys.plus(u64::from(n)));
                if !pending.pages.contains_key(&at) {
                    add(&mut sources, at, b, op.block_in_memory(b));
                }
            }
        }
        at = at.plus(run.len());
    }
    Ok((len, sources))
}

/// Adds one block to what is to be read.
fn add(sources: &mut Vec<Source>, at: FileBlock, b: BlockNo, image: Option<Image>) {
    if let Some(image) = image {
        sources.push(Source::Memory { at, image });
        return;
    }
    match sources.last_mut() {
        Some(Source::Device { at: first, len, phys }) if first.plus(*len) == at && phys.plus(u64::from(*len)) == b => {
            *len += 1;
        }
        _ => sources.push(Source::Device { at, len: 1, phys: b }),
    }
}
