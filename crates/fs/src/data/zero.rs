//! Zeroing bytes of one block: as part of an operation, or in a page.
//!
//! *Guarantees* F3: what a file grows over reads as zeros.

use super::blocks::{Base, base_of, load_base};
use super::context::Data;
use super::pages::FileState;
use crate::error::Result;
use crate::map;
use crate::records;
use crate::txn::Op;
use quire_device::Mutant;
use quire_device::sync::{Arc, lock};
use quire_layout::inode::Inode;
use quire_layout::{FileBlock, Ino};

/// Before a file grows to hold byte `at`, zeroes the bytes behind its end in its last block, as part of the operation.
///
/// # Errors
/// Corrupt; miss.
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
///
/// # Errors
/// Corrupt; miss.
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

/// Zeroes the bytes behind byte `size` in its block, as part of the operation, if the block holds data.
///
/// # Errors
/// Corrupt; miss.
pub(super) fn clear_tail(op: &mut Op<'_>, ino: Ino, inode: &Inode, size: u64) -> Result<()> {
    let bs = op.sb().block_size();
    let Some(b) = bs.file_block(size).filter(|_| !size.is_multiple_of(bs.bytes64())) else { return Ok(()) };
    let end = (u64::from(b.0) + 1) << bs.bits();
    put_zeros(op, ino, inode, b, size, end)
}

/// An operation is about to zero bytes of the block that holds byte `at`: no clean page tells what it held (F7). The
/// caller has the file for itself.
pub(super) fn forget_clean(d: &Data, ino: Ino, at: u64) {
    if let Some(b) = d.block_size().file_block(at).filter(|_| !Mutant::CleanPageKept.is_on()) {
        lock(&d.files.clean).take(ino, b);
    }
}

/// Zeroes the bytes behind byte `size` in its block, in a page, if the block holds data.
///
/// # Errors
/// Corrupt; I/O.
pub(super) fn zero_behind(d: &Data, ino: Ino, s: &mut FileState, size: u64) -> Result<()> {
    let bs = d.block_size();
    let Some(b) = bs.file_block(size).filter(|_| !size.is_multiple_of(bs.bytes64())) else { return Ok(()) };
    let end = (u64::from(b.0) + 1) << bs.bits();
    zero_bytes(d, ino, s, b, size, end)
}

/// Zeroes bytes of one block of a file whose data is not journaled: in its page, if the block holds data.
///
/// # Errors
/// Corrupt; I/O.
pub(super) fn zero_bytes(d: &Data, ino: Ino, s: &mut FileState, b: FileBlock, from: u64, to: u64) -> Result<()> {
    let start = u64::from(b.0) << d.block_size().bits();
    let index = |at: u64| usize::try_from(at - start).expect("within a block");
    let range = index(from)..index(to);
    if s.page(b).is_none() {
        let base = d.engine.run(|op| {
            let inode = records::inode(op, ino)?;
            let run = map::lookup(op, ino, &inode, b, 1)?;
            Ok(base_of(op, &run, 0))
        })?;
        if let Base::Zeros = base {
            return Ok(());
        }
        let (image, _) = load_base(d, ino, b, &base, u64::MAX)?;
        if image[range.clone()].iter().all(|b| *b == 0) {
            lock(&d.files.clean).insert(ino, b, image);
            return Ok(());
        }
        s.add_page(b, image, false);
        d.files.count_pages(1);
    }
    let image = s.page_mut(b).expect("just added");
    Arc::make_mut(image)[range].fill(0);
    d.files.queue(ino, s, d.engine.clock.monotonic());
    Ok(())
}
