//! What calls that change a file's size or map share.

use super::checks::{check_file, max_size};
use super::context::Data;
use super::pages::FileState;
use crate::error::Result;
use crate::inode::flags::is_sync;
use crate::inode::journaling_mode::is_journaled_file;
use crate::inode::live;
use crate::tables::Pool;
use crate::txn::Op;
use quire_layout::inode::Inode;
use quire_layout::{FileBlock, Ino};

/// What a change of a file's size or map finds.
pub(super) struct Found {
    /// Size in bytes, pending or on disk.
    pub size: u64,
    /// Size in bytes on disk.
    pub disk_size: u64,
    /// Bytes of a block are zeroed as part of an operation, not in a page.
    pub journaled: bool,
    /// Largest size in bytes.
    pub max: u64,
    /// The inode asks for durable changes (N10).
    pub sync: bool,
}

impl Found {
    /// # Errors
    /// Not a regular file; stale; corrupt; miss.
    pub(super) fn look(op: &mut Op<'_>, ino: Ino, s: &FileState) -> Result<(Found, Inode)> {
        let inode = live(op, ino)?;
        check_file(&inode)?;
        let found = Found {
            size: s.size.unwrap_or(inode.size()),
            disk_size: inode.size(),
            journaled: is_journaled_file(op, ino, &inode)? || op.context.route.zeroes_in_operations(),
            max: max_size(op, &inode),
            sync: is_sync(&inode),
        };
        Ok((found, inode))
    }
}

/// Runs operations from block `at` on, until one has reached the end. Each returns the block to go on with.
///
/// # Errors
/// The operations'.
pub(super) fn in_steps(
    d: &Data,
    pool: Pool,
    at: FileBlock,
    mut step: impl FnMut(&mut Op<'_>, FileBlock) -> Result<Option<FileBlock>>,
) -> Result<()> {
    let mut next = Some(at);
    while let Some(at) = next {
        next = d.engine.run_as(pool, |op| step(op, at))?.0;
    }
    Ok(())
}
