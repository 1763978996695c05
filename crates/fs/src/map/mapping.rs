//! What a map says of a run of file blocks, and how far a removal has come.

use quire_layout::{BlockNo, FileBlock};

/// The place of a run of file blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mapping {
    /// No block; reads as zeros. More of the hole may follow.
    Hole { len: u32 },
    /// On disk; if `unwritten`, it reads as zeros all the same.
    Mapped { phys: BlockNo, len: u32, unwritten: bool },
}

impl Mapping {
    /// The number of file blocks in the run, at least one.
    #[must_use]
    #[allow(clippy::len_without_is_empty)]
    pub(crate) fn len(&self) -> u32 {
        match self {
            Mapping::Hole { len } | Mapping::Mapped { len, .. } => *len,
        }
    }

    /// The disk block of the first file block, if it holds data.
    #[must_use]
    pub(crate) fn written(&self) -> Option<BlockNo> {
        match self {
            Mapping::Mapped { phys, unwritten: false, .. } => Some(*phys),
            _ => None,
        }
    }
}

/// How far a removal has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Removed {
    /// The blocks from the start of the range to before this one remain; `None`: no block remains.
    pub next: Option<FileBlock>,
}
