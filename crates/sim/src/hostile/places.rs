//! Where a base image has metadata, and of what kind.

use quire_layout::{BlockNo, GroupNo, Ino};

/// What lies at a place, and what its checksum depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Superblock,
    Descriptor(GroupNo),
    BlockBitmap(GroupNo),
    InodeBitmap(GroupNo),
    Inode(Ino),
    ExtentNode(Ino),
    IndirectBlock(Ino),
    DirLeaf(Ino),
    HtreeRoot(Ino),
    HtreeNode(Ino),
    Xattrs,
    OrphanFile(Ino),
    /// The ext4 superblock of a log's own device.
    JournalDevice,
    JournalSuperblock,
    LogDescriptor,
    LogRevoke,
    LogCommit,
    /// A logged image; its checksum is in the tag at byte `tag` of the image.
    LogImage {
        tag: u64,
        tid: u32,
    },
}

impl Kind {
    /// A word for it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Kind::Superblock => "superblock",
            Kind::Descriptor(_) => "descriptor",
            Kind::BlockBitmap(_) => "block bitmap",
            Kind::InodeBitmap(_) => "inode bitmap",
            Kind::Inode(_) => "inode",
            Kind::ExtentNode(_) => "extent node",
            Kind::IndirectBlock(_) => "indirect block",
            Kind::DirLeaf(_) => "directory block",
            Kind::HtreeRoot(_) => "htree root",
            Kind::HtreeNode(_) => "htree node",
            Kind::Xattrs => "attribute block",
            Kind::OrphanFile(_) => "orphan file",
            Kind::JournalDevice => "journal device",
            Kind::JournalSuperblock => "journal superblock",
            Kind::LogDescriptor => "log descriptor",
            Kind::LogRevoke => "log revoke block",
            Kind::LogCommit => "log commit block",
            Kind::LogImage { .. } => "log image",
        }
    }

    /// The order in which checksums are mended: what is covered by another's first.
    #[must_use]
    pub(super) fn order(self) -> u8 {
        match self {
            Kind::Descriptor(_) | Kind::LogDescriptor => 1,
            Kind::Superblock => 2,
            _ => 0,
        }
    }
}

/// One metadata structure of a base image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// Byte of the image.
    pub at: u64,
    /// In bytes.
    pub len: usize,
    /// The block that it lies in.
    pub block: BlockNo,
    pub kind: Kind,
}

impl Place {
    #[must_use]
    pub fn end(&self) -> u64 {
        self.at + self.len as u64
    }
}
