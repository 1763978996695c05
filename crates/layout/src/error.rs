//! Errors of decoding: corrupt, or not supported. Both name what they saw.

use crate::units::BlockNo;
use std::fmt;

/// A kind of on-disk structure, for error messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Structure {
    Superblock,
    GroupDescriptor,
    BlockBitmap,
    InodeBitmap,
    Inode,
    BlockMap,
    ExtentNode,
    IndirectBlock,
    DirectoryBlock,
    HtreeNode,
    XattrBlock,
    InlineXattr,
    InlineData,
    Symlink,
    Acl,
    OrphanList,
    OrphanFile,
    JournalSuperblock,
    JournalInode,
    JournalBlock,
    FastCommitBlock,
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Structure::Superblock => "superblock",
            Structure::GroupDescriptor => "group descriptor",
            Structure::BlockBitmap => "block bitmap",
            Structure::InodeBitmap => "inode bitmap",
            Structure::Inode => "inode",
            Structure::BlockMap => "block map",
            Structure::ExtentNode => "extent node",
            Structure::IndirectBlock => "indirect block",
            Structure::DirectoryBlock => "directory block",
            Structure::HtreeNode => "htree node",
            Structure::XattrBlock => "extended attribute block",
            Structure::InlineXattr => "in-inode extended attributes",
            Structure::InlineData => "inline data",
            Structure::Symlink => "symbolic link",
            Structure::Acl => "access control list",
            Structure::OrphanList => "orphan list",
            Structure::OrphanFile => "orphan file",
            Structure::JournalSuperblock => "journal superblock",
            Structure::JournalInode => "journal inode",
            Structure::JournalBlock => "journal block",
            Structure::FastCommitBlock => "fast-commit block",
        })
    }
}

/// A structure that breaks its own rules. The caller that knows where the bytes came from adds the block
/// and the object ([`Corrupt::at`], [`Corrupt::of`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Corrupt {
    pub structure: Structure,
    /// Where the bytes were, if the decoder's caller has said so.
    pub block: Option<BlockNo>,
    /// The number of the object (inode, group, log block), if it has one.
    pub object: Option<u64>,
    /// What is wrong, in a few words.
    pub why: &'static str,
}

impl Corrupt {
    #[must_use]
    pub fn new(structure: Structure, why: &'static str) -> Self {
        Corrupt { structure, block: None, object: None, why }
    }

    /// Adds the block the bytes came from, unless one is named already.
    #[must_use]
    pub fn at(mut self, block: BlockNo) -> Self {
        self.block.get_or_insert(block);
        self
    }

    /// Adds the number of the object, unless one is named already.
    #[must_use]
    pub fn of(mut self, object: impl Into<u64>) -> Self {
        self.object.get_or_insert(object.into());
        self
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "corrupt {}", self.structure)?;
        if let Some(n) = self.object {
            write!(f, " {n}")?;
        }
        if let Some(b) = self.block {
            write!(f, " in {b}")?;
        }
        write!(f, ": {}", self.why)
    }
}

impl std::error::Error for Corrupt {}

/// Something legal that this version does not do. `what` names the feature.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unsupported: {what}")]
pub struct Unsupported {
    pub what: String,
}

impl Unsupported {
    pub fn new(what: impl Into<String>) -> Self {
        Unsupported { what: what.into() }
    }
}
