//! Writing to a file whose data is journaled: each request is one operation.
//!
//! The operation allocates blocks at once. The images of the data join the transaction with the extents, the size and
//! the times that belong to them. The block cache holds the data; there are no pages.
//!
//! *Guarantees* F14: after a crash all requests up to some moment are there, each whole, and none after it.

use super::blocks::{Base, Request, base_of, blocks_of, runs, used_bytes};
use super::context::Data;
use super::file::File;
use super::flags::WriteFlags;
use super::settle::settle_pages;
use crate::error::Result;
use crate::inode::drop_privileges;
use crate::map::{self, Mapping};
use crate::records;
use crate::tables::Pool;
use crate::txn::Op;
use quire_cache::Image;
use quire_device::Buf;
use quire_device::sync::{Arc, lock};
use quire_layout::inode::{Inode, Time};
use quire_layout::{BlockNo, FileBlock, Ino};

/// Writes one request (F14, F18); returns where it ends in the file. The caller does not hold the file's lock.
///
/// # Errors
/// No space; corrupt; I/O; read-only.
pub(super) fn write_journaled(d: &Data, pool: Pool, file: &File, r: Request<'_>, flags: WriteFlags) -> Result<u64> {
    let mut s = file.lock();
    if s.has_pages() || s.size.is_some() {
        // They are from a time when the file's data was not journaled.
        drop(s);
        s = file.exclusive();
        settle_pages(d, file.ino, &mut s)?;
    }
    lock(&d.files.clean).drop_from(file.ino, FileBlock(0));
    let in_place = d.files.unflushed(file.ino);
    let (end, _) = d.engine.run_as(pool, |op| {
        let mut inode = records::inode(op, file.ino)?;
        let at = if flags.append { inode.size() } else { r.at };
        let r = Request { at, ..r };
        put_data(op, file.ino, &mut inode, r)?;
        if r.end() > inode.size() {
            inode.set_size(r.end());
            // Zeros behind the old end may have gone in place while the file's data was not journaled (F3).
            in_place.into_iter().for_each(|epoch| op.after_data(epoch));
        }
        if !flags.keep_times {
            inode.set_time(Time::Modify, op.now());
            inode.set_time(Time::Change, op.now());
        }
        drop_privileges(op, file.ino, &mut inode, flags.privileges)?;
        records::put_inode(op, file.ino, &mut inode)?;
        records::note_change(op, file.ino, true);
        Ok(r.end())
    })?;
    drop(s);
    Ok(end)
}

/// Puts bytes into a file's blocks as part of the operation, and allocates missing blocks.
pub(super) fn put_data(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, r: Request<'_>) -> Result<()> {
    let bs = op.sb().block_size();
    let size = inode.size();
    if r.at > size && bs.file_block(r.at) != bs.file_block(size) {
        map::zero_tail(op, ino, inode, r.at)?;
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
    op.want_data(missing)?;
    let images = images.into_iter().map(|i| i.expect("all bases are in memory"));
    let homes = homes(op, ino, inode, first, last)?;
    for (home, image) in homes.into_iter().zip(images) {
        op.block_put(home, image)?;
    }
    Ok(())
}

/// The disk blocks of a range, all mapped and written; missing ones are allocated.
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
