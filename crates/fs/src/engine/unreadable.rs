//! Bitmaps that the device cannot read: operations go round their groups (A9), as in the kernel, as long as there is
//! room elsewhere. Then the device is asked again: it may have recovered.

use super::core::{Engine, Manner, Misses};
use crate::records;
use crate::tables::Pool;
use crate::txn::Bitmap;
use quire_device::{DeviceError, IoOp};
use quire_layout::{BlockNo, GroupNo};
use std::ops::Range;

impl Engine {
    /// After a read of metadata failed: operations go round the groups of which it should have read the bitmap.
    pub(super) fn avoid_unreadable(&self, e: &DeviceError) {
        if e.op != IoOp::Read {
            return;
        }
        let bits = self.context.block_size().bits();
        let last = e.at.saturating_add(e.len.saturating_sub(1));
        for (g, bitmap, at) in self.bitmaps_in(BlockNo(e.at >> bits)..BlockNo((last >> bits) + 1)) {
            // Neighbours were read at once: which of them is it?
            if self.journal.load(&[at]).is_ok() {
                continue;
            }
            let mut tables = self.tables();
            match bitmap {
                Bitmap::Blocks => tables.space.avoid_blocks(g),
                Bitmap::Inodes => tables.space.avoid_inodes(g),
            }
        }
    }

    /// The bitmaps among these blocks, of groups whose descriptors are in memory: whoever wants a bitmap has read its
    /// group's.
    fn bitmaps_in(&self, blocks: Range<BlockNo>) -> Vec<(GroupNo, Bitmap, BlockNo)> {
        let manner = Manner { pool: Pool::User, misses: Misses::Tell };
        let found = self.run_loop(manner, |op| {
            let mut found = Vec::new();
            for g in (0..op.sb().group_count()).map(GroupNo) {
                let Ok(d) = records::group(op, g) else { continue };
                found.extend([(g, Bitmap::Blocks, d.block_bitmap()), (g, Bitmap::Inodes, d.inode_bitmap())]);
            }
            found.retain(|(.., at)| blocks.contains(at));
            Ok(found)
        });
        found.map_or_else(|_| Vec::new(), |(found, _)| found)
    }
}
