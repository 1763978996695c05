//! Zeroing bytes of one block in a page; [`crate::map`] zeroes them as part of an operation.
//!
//! *Guarantees* F3: what a file grows over reads as zeros.

use super::blocks::{Base, base_of, load_base};
use super::context::Data;
use super::pages::{FileState, MapChange};
use crate::error::Result;
use crate::map;
use crate::records;
use quire_device::Mutant;
use quire_device::sync::{Arc, lock};
use quire_layout::{FileBlock, Ino};

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

/// Zeroes bytes of one block of a file whose data is not journaled: in its page, if the block holds data. The page then
/// holds zeros behind the file's end, too.
///
/// # Errors
/// Corrupt; I/O.
pub(super) fn zero_bytes(d: &Data, ino: Ino, s: &mut FileState, b: FileBlock, from: u64, to: u64) -> Result<()> {
    let start = u64::from(b.0) << d.block_size().bits();
    let index = |at: u64| usize::try_from(at - start).expect("within a block");
    let range = index(from)..index(to);
    if s.page(b).is_none() {
        let (base, size) = d.engine.run(|op| {
            let inode = records::inode(op, ino)?;
            let run = map::lookup(op, ino, &inode, b, 1)?;
            Ok((base_of(op, &run, 0), s.size.unwrap_or(inode.size())))
        })?;
        if let Base::Zeros = base {
            return Ok(());
        }
        // A page holds zeros behind the end of the file, also where the block does not.
        let (image, was_cut) = load_base(d, ino, b, &base, size)?;
        if !was_cut && image[range.clone()].iter().all(|b| *b == 0) {
            lock(&d.files.clean).insert(ino, b, image);
            return Ok(());
        }
        s.add_page(b, image, MapChange::None);
        d.files.count_pages(1);
    }
    let image = s.page_mut(b).expect("just added");
    Arc::make_mut(image)[range].fill(0);
    d.files.queue(ino, s, d.engine.clock.monotonic());
    Ok(())
}
