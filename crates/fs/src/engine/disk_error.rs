//! An error of the disk, as the superblock records it.

use quire_layout::{BlockNo, Ino};

pub(crate) struct DiskError {
    /// 0: not known.
    pub ino: Ino,
    /// 0: not known.
    pub block: BlockNo,
    /// What the error says of itself.
    pub place: String,
}
