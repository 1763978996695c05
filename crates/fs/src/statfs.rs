//! What `statfs` tells.

use crate::error::Result;
use crate::volume::Volume;
use quire_device::sync::lock;
use quire_layout::bytes::le64;

/// How full a file system is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatFs {
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks for files and directories: what the file system itself takes is off, but with `minix_df`.
    pub blocks: u64,
    pub free: u64,
    /// Free blocks that a user without privilege may take.
    pub available: u64,
    pub inodes: u64,
    pub free_inodes: u64,
    /// Bytes in the longest name.
    pub name_max: u32,
    /// Made from the UUID, as the kernel does.
    pub id: u64,
}

impl Volume {
    /// How full the file system is. What is reserved for data not yet allocated counts as used.
    ///
    /// # Errors
    /// None at present.
    pub fn statfs(&self) -> Result<StatFs> {
        self.free_doomed();
        let sb = &self.inner.sb;
        let space = lock(&self.inner.state).alloc.space(sb, self.inner.options.minix_df);
        let uuid = sb.uuid();
        Ok(StatFs {
            block_size: u32::try_from(sb.block_size().bytes()).expect("at most 64 KiB"),
            blocks: space.blocks,
            free: space.free,
            available: space.available,
            inodes: space.inodes,
            free_inodes: space.free_inodes,
            name_max: 255,
            id: le64(&uuid, 0) ^ le64(&uuid, 8),
        })
    }
}
