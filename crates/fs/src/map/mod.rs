//! The block map of a file: which disk blocks hold which file blocks.
//!
//! ```text
//! inode i_block ─┬─ extents:  root (4 entries) ─> index nodes ─> leaves of (file block, length, disk block, unwritten?)
//!                └─ indirect: 12 pointers, and blocks of pointers one, two, three levels deep
//! ```
//! Guarantees (docs/invariants.md, E):
//! - E1: no two mappings of a file overlap, and a file maps only blocks that a file may own;
//! - E2: in an extent tree an index entry's key is its child's first key; only an empty file has an empty node;
//! - E3: blocks that leave the map are freed in the same operation, blocks of the tree included;
//! - E4: `i_blocks` is the data and tree blocks of the map (and what others charge: an xattr block);
//! - E5: every step costs O(depth) blocks; what may be long (`remove`, `shift`) stops at a budget and says where.
//!
//! All functions change the caller's [`Inode`]; write it with [`Op::put_inode`] before the operation ends, and forget it if one
//! fails: it may be half changed then, and the operation must fail, too.

mod extents;
mod indirect;
mod insert;
mod lookup;
mod remove;
mod shift;
#[cfg(test)]
mod tests;
mod tree;

pub use insert::{allocate, below, convert_written, insert, mark_unwritten};
pub use lookup::{Mapping, extents, goal, lookup};
pub use remove::{Removed, remove, remove_all};
pub use shift::{shift_left, shift_right};

use crate::alloc::Zones;
use crate::error::{Error, Result};
use crate::op::Op;
use quire_device::sync::Arc;
use quire_layout::extent::NodeMut;
use quire_layout::features::incompat;
use quire_layout::inode::{Inode, flags};
use quire_layout::superblock::Superblock;
use quire_layout::{BlockNo, BlockSize, Corrupt, FileBlock, Ino, Structure, extent, indirect as imap};

/// Most budget a single step of [`remove`] or a shift may need above what it was given, in blocks.
pub const STEP_BLOCKS: usize = 16;

/// Gives a new inode an empty map of the kind that the file system makes: extents where it can.
pub fn init(sb: &Superblock, inode: &mut Inode) {
    inode.block_area_mut().fill(0);
    if sb.features().has_incompat(incompat::EXTENTS) {
        inode.set_flags(inode.flags() | flags::EXTENTS);
        NodeMut::init(inode.block_area_mut(), 0);
    } else {
        inode.set_flags(inode.flags() & !flags::EXTENTS);
    }
}

/// File blocks that an inode's kind of map can address.
#[must_use]
pub fn max_blocks(sb: &Superblock, uses_extents: bool) -> u64 {
    if uses_extents { extent::FILE_BLOCKS } else { imap::file_blocks(sb.block_size()) }
}

/// The largest size of a file with this kind of map, in bytes.
#[must_use]
pub fn max_size(sb: &Superblock, uses_extents: bool) -> u64 {
    max_blocks(sb, uses_extents) * sb.block_size().bytes64()
}

/// Which blocks a file may map: none of the file system's own, unless the inode is one of the file system's own.
struct Legal {
    zones: Option<Arc<Zones>>,
    blocks: u64,
}

impl Legal {
    fn of(op: &Op<'_>, ino: Ino) -> Self {
        let zones = op.state().alloc.zones();
        let reserved = ino != Ino::ROOT && ino < op.sb().first_ino();
        // Before recovery the groups are not known; the journal's own inode is all that is mapped then.
        let zones = (!reserved && zones.is_loaded()).then_some(zones);
        Legal { zones, blocks: op.sb().blocks_count() }
    }

    fn ok(&self, b: BlockNo, len: u64) -> bool {
        match &self.zones {
            Some(z) => z.legal(b, len),
            None => b.0 > 0 && b.0.checked_add(len).is_some_and(|end| end <= self.blocks),
        }
    }
}

/// Seed of the checksums of an inode's tree blocks.
fn seed(op: &Op<'_>, ino: Ino, inode: &Inode) -> Option<u32> {
    op.vol.inode_seed.map(|fs| inode.checksum_seed(ino, fs))
}

/// Adds blocks to `i_blocks` (E4).
fn charge(op: &Op<'_>, ino: Ino, inode: &mut Inode, blocks: i64) -> Result<()> {
    let (f, bs) = (op.sb().features(), op.sb().block_size().bytes64());
    let sectors = i128::from(inode.sectors(f, bs)) + i128::from(blocks) * i128::from(bs / 512);
    let Ok(sectors) = u64::try_from(sectors) else {
        return Err(Corrupt::new(Structure::Inode, "counts fewer blocks than it has").of(ino.0).into());
    };
    if inode.set_sectors(f, bs, sectors) { Ok(()) } else { Err(Error::TooLarge) }
}

/// The end of a run, if the map can address it.
fn checked_end(bs: BlockSize, uses_extents: bool, at: FileBlock, len: u32) -> Result<FileBlock> {
    let end = u64::from(at.0) + u64::from(len);
    let max = if uses_extents { extent::FILE_BLOCKS } else { imap::file_blocks(bs) };
    if end > max {
        return Err(Error::TooLarge);
    }
    Ok(FileBlock(u32::try_from(end).expect("at most 2^32 - 1")))
}
