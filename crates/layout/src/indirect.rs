//! The block map of ext2 and ext3: twelve direct pointers in the inode, then blocks of pointers one, two and three
//! levels deep. Pointers have 32 bits; 0 is a hole.
//!
//! ```text
//! i_block[0..12] -> data     [12] -> P -> data     [13] -> P -> P -> data     [14] -> P -> P -> P -> data
//! ```
//! Source: kernel documentation, "ext4: direct/indirect block addressing".

use crate::bytes::{le32, put_le32};
use crate::error::{Corrupt, Structure};
use crate::units::{BlockNo, BlockSize, FileBlock};

/// Direct pointers in an inode.
pub const DIRECT: u32 = 12;
/// Slots in an inode.
pub const SLOTS: usize = 15;

/// The way to one file block: slots from the inode down. The last one points at the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Path {
    slots: [usize; 4],
    len: usize,
}

impl Path {
    #[must_use]
    pub fn slots(&self) -> &[usize] {
        &self.slots[..self.len]
    }
}

/// Pointers that a block holds.
#[must_use]
pub fn per_block(bs: BlockSize) -> usize {
    bs.bytes() / 4
}

/// File blocks under one pointer that has `levels` blocks of pointers below it.
#[must_use]
pub fn span(bs: BlockSize, levels: u32) -> u64 {
    (bs.bytes64() / 4).pow(levels)
}

/// File blocks that the map can address, at most 2^32 - 1.
#[must_use]
pub fn file_blocks(bs: BlockSize) -> u64 {
    let n = u64::from(DIRECT) + span(bs, 1) + span(bs, 2) + span(bs, 3);
    n.min(crate::extent::FILE_BLOCKS)
}

/// The way to a file block, or `None` past the end of the map.
#[must_use]
pub fn path(bs: BlockSize, at: FileBlock) -> Option<Path> {
    if u64::from(at.0) >= file_blocks(bs) {
        return None;
    }
    let small = |n: u64| usize::try_from(n).expect("an index in a block");
    let mut slots = [0; 4];
    if at.0 < DIRECT {
        slots[0] = small(u64::from(at.0));
        return Some(Path { slots, len: 1 });
    }
    let mut rel = u64::from(at.0 - DIRECT);
    for levels in 1..=3u32 {
        if rel >= span(bs, levels) {
            rel -= span(bs, levels);
            continue;
        }
        slots[0] = small(u64::from(DIRECT + levels - 1));
        for down in 0..levels {
            slots[small(u64::from(down)) + 1] = small(rel / span(bs, levels - 1 - down) % span(bs, 1));
        }
        return Some(Path { slots, len: small(u64::from(levels)) + 1 });
    }
    None
}

/// The pointer in slot `i`, or `None` for a hole.
#[must_use]
pub fn get(b: &[u8], i: usize) -> Option<BlockNo> {
    match le32(b, 4 * i) {
        0 => None,
        n => Some(BlockNo(u64::from(n))),
    }
}

/// Stores a pointer.
///
/// # Panics
/// If the block number has more than 32 bits: the allocator was told not to give one.
pub fn put(b: &mut [u8], i: usize, to: Option<BlockNo>) {
    let n = to.map_or(0, |b| u32::try_from(b.0).expect("blocks of a mapped file have 32-bit numbers"));
    put_le32(b, 4 * i, n);
}

/// Checks a block of pointers: each is a hole or `legal`.
///
/// # Errors
/// Corrupt, without the block.
pub fn check_block(b: &[u8], legal: impl Fn(BlockNo, u64) -> bool) -> Result<(), Corrupt> {
    for i in 0..b.len() / 4 {
        if get(b, i).is_some_and(|to| !legal(to, 1)) {
            return Err(Corrupt::new(Structure::IndirectBlock, "points outside the file system or at its metadata"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_at_the_edges_of_each_level() {
        let at = |n: u64| path(BlockSize::K1, FileBlock(u32::try_from(n).unwrap())).map(|p| p.slots().to_vec());
        assert_eq!(at(0), Some(vec![0]));
        assert_eq!(at(11), Some(vec![11]));
        assert_eq!(at(12), Some(vec![12, 0]));
        assert_eq!(at(12 + 255), Some(vec![12, 255]));
        assert_eq!(at(12 + 256), Some(vec![13, 0, 0]));
        assert_eq!(at(12 + 256 + 65535), Some(vec![13, 255, 255]));
        assert_eq!(at(12 + 256 + 65536), Some(vec![14, 0, 0, 0]));
        assert_eq!(at(12 + 256 + 65536 + (1 << 24) - 1), Some(vec![14, 255, 255, 255]));
        assert_eq!(at(12 + 256 + 65536 + (1 << 24)), None);
    }

    #[test]
    fn paths_count_up_one_by_one() {
        let mut last = None;
        for n in 0..200_000u32 {
            let p = path(BlockSize::K1, FileBlock(n)).unwrap();
            assert!(last.as_ref().is_none_or(|l: &Vec<usize>| l.as_slice() < p.slots()), "{n}");
            last = Some(p.slots().to_vec());
        }
    }

    #[test]
    fn pointers_into_metadata_are_refused() {
        let mut b = vec![0; 1024];
        put(&mut b, 3, Some(BlockNo(77)));
        assert_eq!(get(&b, 3), Some(BlockNo(77)));
        assert!(check_block(&b, |to, _| to.0 >= 77).is_ok());
        assert!(check_block(&b, |to, _| to.0 > 77).is_err());
    }
}
