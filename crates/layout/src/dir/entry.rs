//! One entry of a directory, and the walk over a block of them.
//!
//! ```text
//! +0 inode u32 | +4 rec_len u16 | +6 name_len u8 | +7 file_type u8 | +8 name, padded to a multiple of 4
//! ```
//! Entries tile the block. Inode 0 means free space. Without `filetype`, byte 7 means nothing.
//! In blocks of 64 KiB, a `rec_len` of the whole block is stored as 0xFFFF (0 is read as well).

use crate::bytes::{le16, le32, put_le16, put_le32};
use crate::error::{Corrupt, Structure};
use crate::features::{incompat, ro_compat};
use crate::inode::{Inode, mode};
use crate::superblock::Superblock;
use crate::units::{BlockSize, Ino};

/// Bytes of an entry before its name.
const HEAD: usize = 8;
/// The shortest record: head and a name of one to four bytes.
const MIN_RECORD: usize = 12;

/// What an entry's inode is, as the entry says (`filetype`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FileType {
    /// Not recorded: the inode knows.
    #[default]
    Unknown,
    Regular,
    Directory,
    CharDevice,
    BlockDevice,
    Fifo,
    Socket,
    Symlink,
}

impl FileType {
    /// The number on disk.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            FileType::Unknown => 0,
            FileType::Regular => 1,
            FileType::Directory => 2,
            FileType::CharDevice => 3,
            FileType::BlockDevice => 4,
            FileType::Fifo => 5,
            FileType::Socket => 6,
            FileType::Symlink => 7,
        }
    }

    /// From the number on disk; numbers without a meaning are `Unknown`, as for the kernel.
    #[must_use]
    pub fn from_number(n: u8) -> Self {
        match n {
            1 => FileType::Regular,
            2 => FileType::Directory,
            3 => FileType::CharDevice,
            4 => FileType::BlockDevice,
            5 => FileType::Fifo,
            6 => FileType::Socket,
            7 => FileType::Symlink,
            _ => FileType::Unknown,
        }
    }

    /// From an inode's `i_mode`.
    #[must_use]
    pub fn from_mode(m: u16) -> Self {
        match m & mode::FMT {
            mode::REG => FileType::Regular,
            mode::DIR => FileType::Directory,
            mode::CHR => FileType::CharDevice,
            mode::BLK => FileType::BlockDevice,
            mode::FIFO => FileType::Fifo,
            mode::SOCK => FileType::Socket,
            mode::LNK => FileType::Symlink,
            _ => FileType::Unknown,
        }
    }
}

/// True if `name` may stand in a directory: 1 to 255 bytes, none of them NUL or a slash.
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    (1..=255).contains(&name.len()) && !name.iter().any(|c| matches!(c, 0 | b'/'))
}

/// True of the two names that every directory has, its own and its parent's.
#[must_use]
pub fn is_dot(name: &[u8]) -> bool {
    matches!(name, b"." | b"..")
}

/// How the blocks of one directory are written down.
#[derive(Clone, Copy, Debug)]
pub struct DirFormat {
    pub(super) block_size: BlockSize,
    /// Seed of the checksums of this directory's blocks; `None` without `metadata_csum`.
    pub(super) csum_seed: Option<u32>,
    pub(super) filetype: bool,
    /// Inodes of the file system: an entry's inode is at most this.
    pub(super) inodes: u32,
    /// Most levels of index nodes, the root included.
    pub(super) max_levels: u8,
}

impl DirFormat {
    /// The format of directory `ino`.
    #[must_use]
    pub fn of(sb: &Superblock, ino: Ino, inode: &Inode) -> Self {
        let f = sb.features();
        DirFormat {
            block_size: sb.block_size(),
            csum_seed: f.has_ro_compat(ro_compat::METADATA_CSUM).then(|| inode.checksum_seed(ino, sb.checksum_seed())),
            filetype: f.has_incompat(incompat::FILETYPE),
            inodes: sb.inodes_count(),
            max_levels: if f.has_incompat(incompat::LARGEDIR) { 3 } else { 2 },
        }
    }

    /// Bytes of a record with a name of `name_len` bytes.
    pub(super) fn record_len(name_len: usize) -> usize {
        (HEAD + name_len).next_multiple_of(4)
    }

    pub(super) fn get_rec_len(&self, block: &[u8], at: usize) -> usize {
        let stored = usize::from(le16(block, at + 4));
        match stored {
            0 | 0xFFFF if self.block_size.bytes() == 0x1_0000 => 0x1_0000,
            n => n,
        }
    }

    pub(super) fn put_rec_len(&self, block: &mut [u8], at: usize, len: usize) {
        debug_assert!(len.is_multiple_of(4) && at + len <= self.block_size.bytes());
        put_le16(block, at + 4, u16::try_from(len).unwrap_or(0xFFFF));
    }

    /// The entry at byte `at` of a block whose entries end at byte `end`.
    pub(super) fn entry<'a>(&self, block: &'a [u8], at: usize, end: usize) -> Result<DirEntry<'a>, Corrupt> {
        let bad = |why| Err(Corrupt::new(Structure::DirectoryBlock, why));
        if end > block.len() || at + MIN_RECORD > end {
            return bad("entries end too close to the end of the block");
        }
        let rec_len = self.get_rec_len(block, at);
        if rec_len < MIN_RECORD {
            return bad("entry too short");
        }
        if !rec_len.is_multiple_of(4) {
            return bad("entry length is not a multiple of 4");
        }
        if rec_len > end - at {
            return bad("entry leaves its block");
        }
        let name_len = usize::from(block[at + 6]);
        if HEAD + name_len > rec_len {
            return bad("name longer than its entry");
        }
        let ino = Ino(le32(block, at));
        if ino.0 > self.inodes {
            return bad("inode number out of range");
        }
        if ino.0 != 0 && name_len == 0 {
            return bad("entry without a name");
        }
        let file_type = if self.filetype { FileType::from_number(block[at + 7]) } else { FileType::Unknown };
        Ok(DirEntry { offset: at, rec_len, ino, file_type, name: &block[at + HEAD..at + HEAD + name_len] })
    }

    /// The entries in `start..end` of a block, free ones included.
    pub(super) fn walk<'a>(&self, block: &'a [u8], start: usize, end: usize) -> Entries<'a> {
        Entries { format: *self, block, at: start, end }
    }

    /// Writes an entry over `at..at + rec_len`, which is ours to write; the padding becomes zeros.
    pub(super) fn put_entry(
        &self,
        block: &mut [u8],
        (at, rec_len): (usize, usize),
        ino: Ino,
        ft: FileType,
        name: &[u8],
    ) {
        block[at..at + Self::record_len(name.len())].fill(0);
        put_le32(block, at, ino.0);
        self.put_rec_len(block, at, rec_len);
        block[at + 6] = u8::try_from(name.len()).expect("a name has at most 255 bytes");
        block[at + 7] = if self.filetype { ft.number() } else { 0 };
        block[at + HEAD..at + HEAD + name.len()].copy_from_slice(name);
    }
}

/// One record of a directory block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DirEntry<'a> {
    /// Byte in the block.
    pub offset: usize,
    /// Bytes up to the next record.
    pub rec_len: usize,
    /// 0: free space.
    pub ino: Ino,
    pub file_type: FileType,
    pub name: &'a [u8],
}

impl DirEntry<'_> {
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.ino.0 != 0
    }

    /// Bytes that the record needs; what `rec_len` has beyond is free.
    pub(super) fn needs(&self) -> usize {
        if self.is_used() { DirFormat::record_len(self.name.len()) } else { 0 }
    }
}

/// Walks over the records of a block; after an error it ends.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    format: DirFormat,
    block: &'a [u8],
    at: usize,
    end: usize,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<DirEntry<'a>, Corrupt>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.end {
            return None;
        }
        let entry = self.format.entry(self.block, self.at, self.end);
        self.at = entry.as_ref().map_or(self.end, |e| e.offset + e.rec_len);
        Some(entry)
    }
}
