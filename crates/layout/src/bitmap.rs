//! Block and inode bitmaps: one bit per block (cluster) or inode of a group, least significant bit first, 1 = in use.
//!
//! Guarantees: searches go word by word; a search never sees past the bits of the group. Also here: the checksums,
//! and what the bitmap of a group is before anything was allocated in it (`BLOCK_UNINIT`, `INODE_UNINIT`).
//! Source: kernel documentation, "ext4: block and inode bitmaps", "lazy block group initialization".

use crate::bytes::{le64, lo32};
use crate::checksum::crc32c;
use crate::features::incompat;
use crate::superblock::Superblock;
use crate::units::{BlockNo, GroupNo};

const WORD: u32 = u64::BITS;

#[must_use]
pub fn is_set(bits: &[u8], i: u32) -> bool {
    bits[byte_of(i)] >> (i % 8) & 1 != 0
}

/// Sets bits `from` to before `to`.
pub fn set(bits: &mut [u8], from: u32, to: u32) {
    for_bytes(bits, from, to, |b, mask| *b |= mask);
}

/// Clears bits `from` to before `to`.
pub fn clear(bits: &mut [u8], from: u32, to: u32) {
    for_bytes(bits, from, to, |b, mask| *b &= !mask);
}

/// True if every bit from `from` to before `to` is set.
#[must_use]
pub fn all_set(bits: &[u8], from: u32, to: u32) -> bool {
    Free::new(bits, None, to).next_free(from).is_none()
}

/// True if no bit from `from` to before `to` is set.
#[must_use]
pub fn none_set(bits: &[u8], from: u32, to: u32) -> bool {
    from >= to || Free::new(bits, None, to).next_used(from) == to
}

/// Clear bits among the first `n`.
#[must_use]
pub fn count_free(bits: &[u8], n: u32) -> u32 {
    let free = Free::new(bits, None, n);
    (0..n.div_ceil(WORD)).map(|w| free.free_word(w).count_ones()).sum()
}

fn byte_of(i: u32) -> usize {
    usize::try_from(i / 8).expect("bitmaps are small")
}

fn for_bytes(bits: &mut [u8], from: u32, to: u32, change: impl Fn(&mut u8, u8)) {
    let mut at = from;
    while at < to {
        let end = to.min((at / 8 + 1) * 8);
        let mask = (0xFFu8 << (at % 8)) & (0xFFu8 >> (7 - (end - 1) % 8));
        change(&mut bits[byte_of(at)], mask);
        at = end;
    }
}

/// A run of free bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeRun {
    pub start: u32,
    pub len: u32,
}

/// The free bits among the first `end` of a bitmap, minus those that are busy for a reason that is not on disk.
#[derive(Clone, Copy)]
pub struct Free<'a> {
    bits: &'a [u8],
    busy: Option<&'a [u64]>,
    end: u32,
}

impl<'a> Free<'a> {
    /// `bits` and `busy` (words of 64 bits) hold at least `end` bits each.
    #[must_use]
    pub fn new(bits: &'a [u8], busy: Option<&'a [u64]>, end: u32) -> Self {
        assert!(byte_of(end.div_ceil(8) * 8) <= bits.len(), "bitmap of {} bytes for {end} bits", bits.len());
        Free { bits, busy, end }
    }

    /// Word `w` with 1 for free; bits at and after `end` are not.
    fn free_word(&self, w: u32) -> u64 {
        let at = byte_of(w * WORD);
        let mut word = match self.bits.get(at..at + 8) {
            Some(b) => le64(b, 0),
            None => {
                let mut b = [0xFF; 8];
                b[..self.bits.len() - at].copy_from_slice(&self.bits[at..]);
                u64::from_le_bytes(b)
            }
        };
        if let Some(busy) = self.busy {
            word |= busy[at / 8];
        }
        let left = self.end - w * WORD;
        if left < WORD { !word & ((1 << left) - 1) } else { !word }
    }

    /// The first free bit at or after `from`.
    #[must_use]
    pub fn next_free(&self, from: u32) -> Option<u32> {
        if from >= self.end {
            return None;
        }
        let mut w = from / WORD;
        let mut word = self.free_word(w) & (u64::MAX << (from % WORD));
        while word == 0 {
            w += 1;
            if w * WORD >= self.end {
                return None;
            }
            word = self.free_word(w);
        }
        Some(w * WORD + word.trailing_zeros())
    }

    /// The first bit at or after `from` that is not free; `end` if there is none.
    #[must_use]
    pub fn next_used(&self, from: u32) -> u32 {
        if from >= self.end {
            return self.end;
        }
        let mut w = from / WORD;
        let mut word = !self.free_word(w) & (u64::MAX << (from % WORD));
        while word == 0 {
            w += 1;
            if w * WORD >= self.end {
                return self.end;
            }
            word = !self.free_word(w);
        }
        (w * WORD + word.trailing_zeros()).min(self.end)
    }

    /// The run that starts at the first free bit at or after `from`.
    #[must_use]
    pub fn next_run(&self, from: u32) -> Option<FreeRun> {
        let start = self.next_free(from)?;
        Some(FreeRun { start, len: self.next_used(start) - start })
    }

    /// The first run of at least `want` bits at or after `from`, then from the start; if there is none, the longest.
    #[must_use]
    pub fn find(&self, from: u32, want: u32) -> Option<FreeRun> {
        let behind = self.find_behind(from, want);
        if behind.is_some_and(|run| run.len >= want) {
            return behind;
        }
        let before = self.find_between(0, self.next_used(from), want);
        behind.into_iter().chain(before).reduce(|a, b| if a.len < b.len { b } else { a })
    }

    /// The first run of at least `want` bits at or after `from`; if there is none, the longest there.
    #[must_use]
    pub fn find_behind(&self, from: u32, want: u32) -> Option<FreeRun> {
        self.find_between(from, self.end, want)
    }

    /// The same of the runs that start before `end`.
    fn find_between(&self, from: u32, end: u32, want: u32) -> Option<FreeRun> {
        let (mut at, mut best) = (from, None::<FreeRun>);
        while let Some(run) = self.next_run(at).filter(|r| r.start < end) {
            if run.len >= want {
                return Some(run);
            }
            if best.is_none_or(|b| b.len < run.len) {
                best = Some(run);
            }
            at = run.start + run.len;
        }
        best
    }
}

/// Checksum of a group's block bitmap, over the bits of the group only.
#[must_use]
pub fn block_bitmap_checksum(sb: &Superblock, bitmap: &[u8]) -> u32 {
    crc32c(sb.checksum_seed(), bitmap.get(..byte_of(sb.clusters_per_group())).unwrap_or(bitmap))
}

/// Checksum of a group's inode bitmap, over the bits of the group only.
#[must_use]
pub fn inode_bitmap_checksum(sb: &Superblock, bitmap: &[u8]) -> u32 {
    crc32c(sb.checksum_seed(), bitmap.get(..byte_of(sb.inodes_per_group())).unwrap_or(bitmap))
}

/// Sets the bits from `used` to the end of the block: they stand for nothing, and are kept set.
pub fn pad(bitmap: &mut [u8], used: u32) {
    let end = u32::try_from(bitmap.len() * 8).expect("at most 64 KiB");
    set(bitmap, used.min(end), end);
}

impl Superblock {
    /// Blocks of a group: all groups are full but the last.
    #[must_use]
    pub fn blocks_in(&self, g: GroupNo) -> u32 {
        let left = self.blocks_count().saturating_sub(self.group_start(g).0);
        u32::try_from(left.min(u64::from(self.blocks_per_group()))).expect("no more than a full group")
    }

    /// Blocks of an inode table.
    #[must_use]
    pub fn inode_table_blocks(&self) -> u32 {
        let per_block = u32::try_from(self.block_size().bytes() / self.inode_size()).expect("small");
        self.inodes_per_group() / per_block
    }

    /// Blocks of descriptors of the whole file system.
    #[must_use]
    pub fn descriptor_blocks(&self) -> u32 {
        self.group_count().div_ceil(self.descriptors_per_block())
    }

    /// Descriptors in a block.
    #[must_use]
    pub fn descriptors_per_block(&self) -> u32 {
        u32::try_from(self.block_size().bytes() / self.desc_size()).expect("at most 2048")
    }

    /// Blocks at the start of a group that hold the superblock (with what lies before it in group 0), descriptors, and
    /// room for more descriptors.
    #[must_use]
    pub fn base_metadata(&self, g: GroupNo) -> (BlockNo, u32) {
        let sb = u32::from(self.has_backup(g));
        let meta_bg = self.features().has_incompat(incompat::META_BG);
        let per = self.descriptors_per_block();
        let descriptors = if !meta_bg || g.0 / per < self.first_meta_bg() {
            let old =
                if meta_bg { self.first_meta_bg().min(self.descriptor_blocks()) } else { self.descriptor_blocks() };
            sb * (old + u32::from(self.reserved_gdt_blocks()))
        } else {
            // The first, the second and the last group of each meta group hold its one block of descriptors.
            u32::from([0, 1, per - 1].contains(&(g.0 % per)))
        };
        let boot = if g == GroupNo(0) { lo32(self.own_block().0 - self.first_data_block().0) } else { 0 };
        (self.group_start(g), boot + sb + descriptors)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn model(bits: &[u8], busy: &[u64], end: u32) -> Vec<bool> {
        (0..end).map(|i| !is_set(bits, i) && busy[usize::try_from(i / 64).unwrap()] >> (i % 64) & 1 == 0).collect()
    }

    fn sparse_bytes() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(prop_oneof![Just(0u8), Just(0xFF), any::<u8>()], 64)
    }

    proptest! {
        #[test]
        fn searches_agree_with_counting_one_by_one(
            bits in sparse_bytes(), busy in sparse_bytes(), end in 1u32..=512, from in 0u32..512, want in 1u32..80,
        ) {
            let busy: Vec<u64> = busy.chunks(8).map(|c| le64(c, 0)).collect();
            let f = Free::new(&bits, Some(&busy), end);
            let m = model(&bits, &busy, end);
            let from = from.min(end);
            let at = |i: u32| m[usize::try_from(i).unwrap()];
            prop_assert_eq!(f.next_free(from), (from..end).find(|i| at(*i)));
            prop_assert_eq!(f.next_used(from), (from..end).find(|i| !at(*i)).unwrap_or(end));
            let mut runs = Vec::new();
            let mut i = 0;
            while i < end {
                let len = (i..end).take_while(|j| at(*j)).count();
                let len = u32::try_from(len).unwrap();
                if len > 0 { runs.push(FreeRun { start: i, len }); }
                i += len.max(1);
            }
            let found = f.find(from, want);
            if let Some(run) = found {
                prop_assert!((run.start..run.start + run.len).all(at));
            }
            let longest = runs.iter().map(|r| r.len).max();
            match found {
                None => prop_assert_eq!(longest, None),
                Some(run) if run.len < want => prop_assert_eq!(Some(run.len), longest),
                Some(run) => {
                    // The nearest after `from` that is long enough wins.
                    let near = (from..end).find(|s| (*s == 0 || *s == from || !at(*s - 1))
                        && s + want <= end && (*s..*s + want).all(at));
                    if let Some(near) = near { prop_assert_eq!(run.start, near); }
                }
            }
        }

        #[test]
        fn ranges_agree_with_single_bits(bits in sparse_bytes(), a in 0u32..=512, b in 0u32..=512) {
            let (from, to) = (a.min(b), a.max(b));
            let (mut on, mut off) = (bits.clone(), bits.clone());
            set(&mut on, from, to);
            clear(&mut off, from, to);
            for i in 0..512 {
                let inside = (from..to).contains(&i);
                prop_assert_eq!(is_set(&on, i), inside || is_set(&bits, i));
                prop_assert_eq!(is_set(&off, i), !inside && is_set(&bits, i));
            }
            prop_assert_eq!(all_set(&bits, from, to), (from..to).all(|i| is_set(&bits, i)));
            prop_assert_eq!(none_set(&bits, from, to), (from..to).all(|i| !is_set(&bits, i)));
            prop_assert_eq!(count_free(&bits, to), u32::try_from((0..to).filter(|i| !is_set(&bits, *i)).count()).unwrap());
        }
    }
}
