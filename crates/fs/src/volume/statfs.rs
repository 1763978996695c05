//! What `statfs` reports.

use super::handle::Volume;
use super::maintenance::Maintenance;
use crate::engine::Engine;
use crate::names::evict;
use crate::tables::{Pool, Space};
use quire_layout::Ino;
use quire_layout::bytes::le64;

/// Longest name, in bytes.
const MAX_NAME_BYTES: u32 = 255;

/// How full a file system is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatFs {
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks for files and directories: without those of the file system's own structures, except with `minix_df`.
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

fn space(engine: &Engine) -> Space {
    let tables = engine.tables();
    tables.space.space(&tables.sb, engine.context.options.minix_df)
}

impl Volume {
    /// How full the file system is. Space that is reserved for data without blocks counts as used.
    #[must_use]
    pub fn statfs(&self) -> StatFs {
        let engine = &*self.inner.engine;
        // What is unlinked counts as free.
        if let Ok(_pass) = self.inner.try_enter() {
            evict::free_pending(engine);
        }
        let sb = &engine.context.sb;
        let space = space(engine);
        let uuid = sb.uuid();
        StatFs {
            block_size: u32::try_from(sb.block_size().bytes()).expect("at most 64 KiB"),
            blocks: space.blocks,
            free: space.free,
            available: space.available,
            inodes: space.inodes,
            free_inodes: space.free_inodes,
            name_max: MAX_NAME_BYTES,
            id: le64(&uuid, 0) ^ le64(&uuid, 8),
        }
    }
}

impl Maintenance<'_> {
    /// Free bytes that a write through this handle may take, and those that the file system has for files in all. As
    /// [`Volume::statfs`], but it only looks.
    #[must_use]
    pub fn free_bytes(&self) -> (u64, u64) {
        let engine = &*self.volume.inner.engine;
        let space = space(engine);
        let block = u64::try_from(engine.context.block_size().bytes()).expect("at most 64 KiB");
        let free = if self.volume.pool == Pool::User { space.available } else { space.free };
        (free.saturating_mul(block), space.blocks.saturating_mul(block))
    }

    /// The files that have no name any more and still have their space: each is in use, or is just being freed.
    #[must_use]
    pub fn unlinked(&self) -> Vec<Ino> {
        self.volume.inner.engine.tables().orphans.all()
    }
}
