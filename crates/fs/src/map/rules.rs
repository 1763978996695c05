//! The rules that both kinds of map share: limits, which blocks a file may own, and what `i_blocks` counts.

use crate::error::{Error, Result};
use crate::tables::Zones;
use crate::txn::Op;
use quire_device::sync::Arc;
use quire_layout::features::{compat, ro_compat};
use quire_layout::inode::Inode;
use quire_layout::superblock::Superblock;
use quire_layout::{BlockNo, BlockSize, Corrupt, FileBlock, Ino, Structure, extent, indirect as imap};

/// Metadata blocks that a single step of a removal or a shift may change beyond its budget, at most.
#[cfg(test)]
pub(crate) const STEP_BLOCKS: usize = 16;

/// File blocks that an inode's kind of map can address.
#[must_use]
pub(crate) fn max_blocks(sb: &Superblock, uses_extents: bool) -> u64 {
    if uses_extents { extent::FILE_BLOCKS } else { imap::file_blocks(sb.block_size()) }
}

/// The largest size of a file with this kind of map, in bytes; as the kernel's.
#[must_use]
pub(crate) fn max_size(sb: &Superblock, uses_extents: bool) -> u64 {
    let (bs, blocks) = (sb.block_size(), max_blocks(sb, uses_extents));
    let most = match max_counted(sb) {
        None => blocks,
        Some(counted) if uses_extents => blocks.min(counted),
        Some(counted) if blocks + pointer_blocks(bs, blocks) <= counted => blocks,
        Some(counted) => counted - pointer_blocks(bs, counted),
    };
    most * bs.bytes64()
}

/// Without `huge_file`: the most blocks that an inode can count, in 2^32 - 1 sectors.
fn max_counted(sb: &Superblock) -> Option<u64> {
    let sectors = u64::from(u32::MAX);
    (!sb.features().has_ro_compat(ro_compat::HUGE_FILE)).then_some(sectors >> (sb.block_size().bits() - 9))
}

/// Blocks of pointers of an indirect map for the first `blocks` file blocks; they reach beyond its first level.
fn pointer_blocks(bs: BlockSize, blocks: u64) -> u64 {
    let (single, double) = (imap::span(bs, 1), imap::span(bs, 2));
    let behind_single = blocks - u64::from(imap::DIRECT) - single;
    match behind_single.checked_sub(double) {
        None => 2 + behind_single.div_ceil(single),
        Some(triple) => 3 + single + triple.div_ceil(single) + triple.div_ceil(double),
    }
}

/// True if an inode can count `more` blocks besides those that it has, and those by which its map may grow with them:
/// one each, in a tree whose leaves and nodes are split, and a few for its height.
pub(crate) fn can_count(op: &Op<'_>, inode: &Inode, more: usize) -> bool {
    const HEIGHT_BLOCKS: u64 = 8;
    let (f, bs) = (op.sb().features(), op.sb().block_size().bytes64());
    max_counted(op.sb())
        .is_none_or(|most| inode.sectors(f, bs).div_ceil(bs / 512) + 2 * (more as u64) + HEIGHT_BLOCKS <= most)
}

/// Which blocks a file may map: none of a system zone, unless the inode is reserved for the file system itself, or is
/// the journal's. `tune2fs -j` on a mounted ext2 makes that one a file with a name, which may be read.
pub(super) struct Legal {
    zones: Option<Arc<Zones>>,
    blocks: u64,
}

impl Legal {
    pub(super) fn of(op: &Op<'_>, ino: Ino) -> Self {
        let zones = op.tables().space.zones();
        let sb = op.sb();
        let is_journal = sb.features().has_compat(compat::HAS_JOURNAL) && ino == sb.journal_ino();
        let reserved = is_journal || ino != Ino::ROOT && ino < sb.first_ino();
        // Before recovery the groups are not known; only the journal's own inode is mapped then.
        let zones = (!reserved && zones.is_loaded()).then_some(zones);
        Legal { zones, blocks: sb.blocks_count() }
    }

    pub(super) fn allows(&self, b: BlockNo, len: u64) -> bool {
        match &self.zones {
            Some(z) => z.legal(b, len),
            None => b.0 > 0 && b.0.checked_add(len).is_some_and(|end| end <= self.blocks),
        }
    }
}

/// Seed of the checksums of an inode's tree blocks, with `metadata_csum`.
pub(super) fn seed(op: &Op<'_>, ino: Ino, inode: &Inode) -> Option<u32> {
    op.context.inode_seed.map(|fs| inode.checksum_seed(ino, fs))
}

/// Adds blocks to `i_blocks` (E4).
pub(super) fn charge(op: &Op<'_>, ino: Ino, inode: &mut Inode, blocks: i64) -> Result<()> {
    let (f, bs) = (op.sb().features(), op.sb().block_size().bytes64());
    let sectors = i128::from(inode.sectors(f, bs)) + i128::from(blocks) * i128::from(bs / 512);
    let Ok(sectors) = u64::try_from(sectors) else {
        return Err(Corrupt::new(Structure::Inode, "counts fewer blocks than it has").of(ino.0).into());
    };
    if inode.set_sectors(f, bs, sectors) { Ok(()) } else { Err(Error::TooLarge) }
}

/// The end of a run, if the map can address it.
pub(super) fn checked_end(bs: BlockSize, uses_extents: bool, at: FileBlock, len: u32) -> Result<FileBlock> {
    let end = u64::from(at.0) + u64::from(len);
    let max = if uses_extents { extent::FILE_BLOCKS } else { imap::file_blocks(bs) };
    if end > max {
        return Err(Error::TooLarge);
    }
    Ok(FileBlock(u32::try_from(end).expect("at most 2^32 - 1")))
}

/// The end of the disk blocks that an inode's map can point at; requests for the inode's data carry it.
#[must_use]
pub(crate) fn below(inode: &Inode) -> BlockNo {
    BlockNo(if inode.uses_extents() { 1 << 48 } else { 1 << 32 })
}
