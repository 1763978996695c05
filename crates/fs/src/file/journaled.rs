//! Writing to a file whose data is journaled: each request is one operation.
//!
//! Blocks are allocated at once; the images of the data join the transaction with the extents, the size and the times that
//! belong to them. Guarantees F14: after a crash all requests up to some moment are there, each whole, and none after
//! it. The block cache holds the data; there are no pages.

use super::state::File;
use super::write::{Base, Request, WriteFlags, base_of, blocks_of, runs, used_bytes};
use crate::error::Result;
use crate::inode_ops::drop_privileges;
use crate::map::{self, Mapping};
use crate::op::Op;
use crate::volume::Volume;
use quire_cache::Image;
use quire_device::Buf;
use quire_device::sync::{Arc, lock};
use quire_layout::inode::{Inode, Time};
use quire_layout::{BlockNo, FileBlock, Ino};

/// A write needs no more than this share of the largest transaction, which takes a quarter of the log and half of the cache at most.
const SHARE: usize = 2;

impl Volume {
    /// Bytes that one request writes at most: what is atomic where data is journaled.
    #[must_use]
    pub fn request_bytes(&self) -> usize {
        let blocks = (self.inner.journal.limit() / SHARE).max(1);
        super::write::REQUEST.min(blocks * self.inner.sb.block_size().bytes())
    }

    /// F14, F18: one request. The file's lock is not held.
    pub(super) fn write_journaled(&self, file: &File, r: Request<'_>, flags: WriteFlags) -> Result<usize> {
        let mut s = file.lock();
        if s.has_pages() || s.size.is_some() {
            // Left from a time when the file's data was not journaled.
            drop(s);
            s = file.exclusive();
            self.settle_pages(file.ino, &mut s)?;
        }
        lock(&self.inner.files.clean).drop_from(file.ino, FileBlock(0));
        self.run(|op| {
            let mut inode = op.inode(file.ino)?;
            let at = if flags.append { inode.size() } else { r.at };
            put_data(op, file.ino, &mut inode, Request { at, ..r })?;
            let end = at + r.data.len() as u64;
            if end > inode.size() {
                inode.set_size(end);
            }
            if !flags.from_cache {
                inode.set_time(Time::Modify, op.now());
                inode.set_time(Time::Change, op.now());
            }
            drop_privileges(op, file.ino, &mut inode, flags.privileges)?;
            op.put_inode(file.ino, &mut inode)?;
            op.note_change(file.ino, true);
            Ok(())
        })?;
        drop(s);
        Ok(r.data.len())
    }
}

/// Puts bytes into a file's blocks as part of the operation; blocks that are not there are allocated.
pub(super) fn put_data(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, r: Request<'_>) -> Result<()> {
    let bs = op.sb().block_size();
    let size = inode.size();
    if r.at > size && bs.file_block(r.at) != bs.file_block(size) {
        zero_tail(op, ino, inode, r.at)?;
    }
    let touched: Vec<_> = blocks_of(bs, r).collect();
    let (Some((first, ..)), Some((last, ..))) = (touched.first(), touched.last()) else { return Ok(()) };
    let (first, last) = (*first, *last);
    let mut missing = Vec::new();
    let mut images: Vec<Option<Image>> = Vec::with_capacity(touched.len());
    for (_, run) in runs(op, ino, inode, first, last.plus(1))? {
        for n in 0..run.len() {
            let (at, range, bytes) = &touched[images.len()];
            if range.len() == bs.bytes() {
                images.push(Some(Arc::new(Buf::copy_of(bytes))));
                continue;
            }
            let old = match base_of(op, &run, n) {
                Base::Zeros => Some(Arc::new(Buf::zeroed(bs.bytes()))),
                Base::Memory(image) => Some(image),
                Base::Device(b) => {
                    missing.push(b);
                    None
                }
            };
            images.push(old.map(|mut image| {
                let buf = Arc::make_mut(&mut image);
                buf[used_bytes(bs, *at, size)..].fill(0);
                buf[range.clone()].copy_from_slice(bytes);
                image
            }));
        }
    }
    op.want(missing)?;
    let images = images.into_iter().map(|i| i.expect("all bases are in memory"));
    let homes = homes(op, ino, inode, first, last)?;
    for (home, image) in homes.into_iter().zip(images) {
        op.block_put(home, image)?;
    }
    Ok(())
}

/// The disk blocks of a range; allocated where there are none, and written all.
fn homes(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, first: FileBlock, last: FileBlock) -> Result<Vec<BlockNo>> {
    let mut homes = Vec::new();
    let mut at = first;
    while at <= last {
        let left = last.0 - at.0 + 1;
        let (start, len) = match map::lookup(op, ino, inode, at, left)? {
            Mapping::Hole { len } => map::allocate(op, ino, inode, at, len, op.pool())?,
            Mapping::Mapped { phys, len, unwritten } => {
                if unwritten {
                    map::convert_written(op, ino, inode, at, len)?;
                }
                (phys, len)
            }
        };
        homes.extend((0..u64::from(len)).map(|n| start.plus(n)));
        at = at.plus(len);
    }
    Ok(homes)
}

/// Before a file grows to hold byte `at`: what lies behind its end in its last block becomes zero (F3).
pub(super) fn zero_tail(op: &mut Op<'_>, ino: Ino, inode: &Inode, at: u64) -> Result<()> {
    let (bs, size) = (op.sb().block_size(), inode.size());
    match bs.file_block(size) {
        Some(last) if at > size && !size.is_multiple_of(bs.bytes64()) => {
            put_zeros(op, ino, inode, last, size, (u64::from(last.0) + 1) << bs.bits())
        }
        _ => Ok(()),
    }
}

/// Zeroes bytes of one block as part of the operation, if the block holds data.
pub(super) fn put_zeros(op: &mut Op<'_>, ino: Ino, inode: &Inode, b: FileBlock, from: u64, to: u64) -> Result<()> {
    let start = u64::from(b.0) << op.sb().block_size().bits();
    let index = |at: u64| usize::try_from(at - start).expect("within a block");
    let Some(home) = map::lookup(op, ino, inode, b, 1)?.written() else { return Ok(()) };
    op.want([home])?;
    let mut image = op.block_in_memory(home).expect("wanted");
    let range = index(from)..index(to);
    if image[range.clone()].iter().any(|b| *b != 0) {
        Arc::make_mut(&mut image)[range].fill(0);
        op.block_put(home, image)?;
    }
    Ok(())
}
