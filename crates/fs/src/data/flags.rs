//! What a caller asks of a write, and what came of it.

use crate::inode::Privileges;

/// What a caller asks of a write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WriteFlags {
    /// At the current end of the file, whatever the offset.
    pub append: bool,
    /// `O_SYNC`: as if an fsync followed.
    pub sync: bool,
    /// `O_DSYNC`: as if an fdatasync followed.
    pub dsync: bool,
    /// What becomes of set-user-id, set-group-id and capabilities.
    pub privileges: Privileges,
    /// A cache above accepted the bytes earlier, and checked then that the write was allowed.
    pub deferred: bool,
    /// The caller sets the times itself.
    pub keep_times: bool,
    /// The caller makes the file durable itself, also if the inode asks for durable writes.
    pub caller_syncs: bool,
}

/// A request that was written.
pub(super) struct WriteDone {
    pub bytes: usize,
    /// Where it ends in the file.
    pub end: u64,
    /// The inode asks for durable writes.
    pub sync: bool,
}
