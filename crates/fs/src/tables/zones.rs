//! System zones: the blocks that hold the file system itself. These are the superblock, the group descriptors and the
//! blocks reserved for more of them, the bitmaps, the inode tables, and the journal.
//!
//! *Guarantees*: no file maps a block of a zone (the journal maps its own), and the allocator neither hands one out nor
//! frees one (A1, A4). No two structures have a block in common: an image where they do is not opened (A11).

use quire_layout::group_desc::GroupDesc;
use quire_layout::superblock::Superblock;
use quire_layout::{BlockNo, Corrupt, GroupNo, Structure};

/// What is wrong with a structure whose block another one has.
pub(crate) const SHARED: &str = "has a block that another structure of the file system has, too";

/// The system zones of an image, as disjoint runs in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Zones {
    /// Start and end (exclusive).
    runs: Vec<(u64, u64)>,
    first: u64,
    blocks: u64,
}

impl Zones {
    /// Collects the zones of all groups. Touching ones become one.
    ///
    /// # Errors
    /// Corrupt: two structures have a block in common.
    pub(crate) fn collect(sb: &Superblock, groups: &[GroupDesc]) -> Result<Self, Corrupt> {
        let mut zones = Zones { runs: Vec::new(), first: sb.first_data_block().0, blocks: sb.blocks_count() };
        let mut all = Vec::with_capacity(groups.len() * 4);
        for (g, d) in (0..).map(GroupNo).zip(groups) {
            let (start, len) = sb.base_metadata(g);
            all.push((start.0, start.0 + u64::from(len)));
            all.push((d.block_bitmap().0, d.block_bitmap().0 + 1));
            all.push((d.inode_bitmap().0, d.inode_bitmap().0 + 1));
            all.push((d.inode_table().0, d.inode_table().0 + u64::from(sb.inode_table_blocks())));
        }
        zones.merge(all).map_err(|b| Corrupt::new(Structure::GroupDescriptor, SHARED).at(b))?;
        Ok(zones)
    }

    /// False before the groups of the image have been read.
    #[must_use]
    pub(crate) fn is_loaded(&self) -> bool {
        self.blocks > 0
    }

    /// Adds more runs: the journal's.
    ///
    /// # Errors
    /// A block that is in a zone already, or twice in these runs.
    pub(crate) fn protect(&mut self, more: impl IntoIterator<Item = (BlockNo, u32)>) -> Result<(), BlockNo> {
        let mut all = std::mem::take(&mut self.runs);
        all.extend(more.into_iter().map(|(b, n)| (b.0, b.0.saturating_add(u64::from(n)))));
        self.merge(all)
    }

    /// The file system has got more blocks, and these runs of them are its own.
    pub(crate) fn grow(&mut self, blocks: u64, own: impl IntoIterator<Item = (BlockNo, u32)>) {
        self.blocks = blocks;
        self.protect(own).expect("a growth takes blocks that are free");
    }

    /// All of these are the zones. The error is the first block that two of them have.
    fn merge(&mut self, mut all: Vec<(u64, u64)>) -> Result<(), BlockNo> {
        all.retain(|(start, end)| start < end);
        all.sort_unstable();
        let mut shared = None;
        for (start, end) in all {
            match self.runs.last_mut() {
                Some(last) if start < last.1 => {
                    shared = shared.or(Some(BlockNo(start)));
                    last.1 = last.1.max(end);
                }
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => self.runs.push((start, end)),
            }
        }
        self.runs.shrink_to_fit();
        shared.map_or(Ok(()), Err)
    }

    /// The zones that touch `start` to before `end`, clipped to it.
    pub(crate) fn within(&self, start: BlockNo, end: BlockNo) -> impl Iterator<Item = (BlockNo, BlockNo)> + '_ {
        let i = self.runs.partition_point(|(_, e)| *e <= start.0);
        (self.runs[i..].iter())
            .take_while(move |(s, _)| *s < end.0)
            .map(move |(s, e)| (BlockNo(*s.max(&start.0)), BlockNo(*e.min(&end.0))))
    }

    /// True if a file may own these blocks: inside the file system, and none of its own.
    #[must_use]
    pub(crate) fn legal(&self, start: BlockNo, len: u64) -> bool {
        let Some(end) = start.0.checked_add(len) else { return false };
        start.0 > self.first && end <= self.blocks && self.within(start, BlockNo(end)).next().is_none()
    }

    /// Blocks in all zones.
    #[must_use]
    pub(crate) fn total(&self) -> u64 {
        self.runs.iter().map(|(s, e)| e - s).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_merge_and_answer() {
        let mut z = Zones { runs: Vec::new(), first: 0, blocks: 100 };
        z.merge(vec![(10, 20), (0, 3), (20, 22), (50, 51), (60, 60)]).unwrap();
        assert_eq!(z.runs, [(0, 3), (10, 22), (50, 51)]);
        assert_eq!(z.total(), 16);
        assert!(z.legal(BlockNo(3), 7) && z.legal(BlockNo(22), 28) && z.legal(BlockNo(51), 49));
        for (b, n) in [(0, 1), (2, 2), (9, 2), (21, 1), (5, 90), (50, 1), (99, 2), (u64::MAX, 2)] {
            assert!(!z.legal(BlockNo(b), n), "{b}+{n}");
        }
        let clipped: Vec<_> = z.within(BlockNo(2), BlockNo(12)).map(|(a, b)| (a.0, b.0)).collect();
        assert_eq!(clipped, [(2, 3), (10, 12)]);
        z.protect([(BlockNo(30), 5)]).unwrap();
        assert!(!z.legal(BlockNo(34), 1) && z.legal(BlockNo(35), 1));
        assert_eq!(z.protect([(BlockNo(40), 2), (BlockNo(33), 2), (BlockNo(41), 2)]), Err(BlockNo(33)));
        assert_eq!(z.protect([(BlockNo(36), 1)]), Ok(()), "between two");
    }
}
