//! The bytes of a file by block: where they lie now, and which of them a request touches.

use super::context::Data;
use crate::error::Result;
use crate::map::{self, Mapping};
use crate::txn::Op;
use quire_cache::Image;
use quire_device::sync::{Arc, lock};
use quire_device::{Buf, Region};
use quire_layout::inode::Inode;
use quire_layout::{BlockNo, BlockSize, FileBlock, Ino};
use std::ops::Range;

/// Bytes to be written at a known place.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub at: u64,
    pub data: &'a [u8],
}

impl Request<'_> {
    /// The byte behind the last.
    pub(super) fn end(&self) -> u64 {
        self.at + self.data.len() as u64
    }
}

/// Where the old bytes of a block come from.
pub(super) enum Base {
    Zeros,
    Memory(Image),
    Device(BlockNo),
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

/// The number of bytes of a block that lie before the end of the file.
pub(super) fn used_bytes(bs: BlockSize, b: FileBlock, size: u64) -> usize {
    let used = size.saturating_sub(u64::from(b.0) << bs.bits()).min(bs.bytes64());
    usize::try_from(used).expect("within a block")
}

/// The map of a range, run by run.
///
/// # Errors
/// Corrupt; miss.
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

/// The bytes of a block at home. Where updates are logged as ranges, they stay in memory as the base of the next record
/// (Q3).
fn read_block(d: &Data, b: BlockNo) -> Result<Image> {
    let bs = d.block_size();
    if d.engine.context.route.logs_ranges() {
        d.engine.journal.load(&[b])?;
        if let Some(image) = d.engine.run(|op| Ok(op.block_in_memory(b)))? {
            return Ok(image);
        }
        // Others have driven it out of memory already.
    }
    Ok(Arc::new(d.engine.journal.gate().device().read(bs.offset(b), bs.bytes(), Region::Data)?))
}

/// The bytes of a block, with zeros behind the end of the file, and whether these bytes were not zero before. Takes the
/// page from the clean ones.
///
/// # Errors
/// I/O.
pub(super) fn load_base(d: &Data, ino: Ino, at: FileBlock, base: &Base, size: u64) -> Result<(Image, bool)> {
    let bs = d.block_size();
    let clean = lock(&d.files.clean).take(ino, at);
    let mut image = match (base, clean) {
        (Base::Zeros, _) => return Ok((Arc::new(Buf::zeroed(bs.bytes())), false)),
        (Base::Memory(image), _) => image.clone(),
        (Base::Device(b), Some(image)) => {
            if d.engine.context.route.logs_ranges() {
                d.engine.journal.offer(*b, &image);
            }
            image
        }
        (Base::Device(b), None) => read_block(d, *b)?,
    };
    let used = used_bytes(bs, at, size);
    let dirty = image[used..].iter().any(|b| *b != 0);
    if dirty {
        Arc::make_mut(&mut image)[used..].fill(0);
    }
    Ok((image, dirty))
}
