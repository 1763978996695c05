//! What the file system knows of an object.

use crate::error::{Error, ErrorKind, Result};
use quire_fs::Attr;
use quire_layout::inode::mode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What an object is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum FileType {
    File,
    Dir,
    Symlink,
    CharDevice,
    BlockDevice,
    Fifo,
    Socket,
}

impl FileType {
    /// By the `S_IFMT` bits of a mode.
    #[must_use]
    pub fn from_mode(m: u32) -> Option<FileType> {
        let bits = u16::try_from(m & 0o170_000).ok()?;
        Some(match bits {
            mode::REG => FileType::File,
            mode::DIR => FileType::Dir,
            mode::LNK => FileType::Symlink,
            mode::CHR => FileType::CharDevice,
            mode::BLK => FileType::BlockDevice,
            mode::FIFO => FileType::Fifo,
            mode::SOCK => FileType::Socket,
            _ => return None,
        })
    }

    /// The `S_IFMT` bits.
    #[must_use]
    pub fn mode_bits(self) -> u16 {
        match self {
            FileType::File => mode::REG,
            FileType::Dir => mode::DIR,
            FileType::Symlink => mode::LNK,
            FileType::CharDevice => mode::CHR,
            FileType::BlockDevice => mode::BLK,
            FileType::Fifo => mode::FIFO,
            FileType::Socket => mode::SOCK,
        }
    }

    #[must_use]
    pub fn is_dir(self) -> bool {
        self == FileType::Dir
    }

    #[must_use]
    pub fn is_file(self) -> bool {
        self == FileType::File
    }

    #[must_use]
    pub fn is_symlink(self) -> bool {
        self == FileType::Symlink
    }

    /// The letter that `ls -l` shows.
    #[must_use]
    pub fn letter(self) -> char {
        match self {
            FileType::File => '-',
            FileType::Dir => 'd',
            FileType::Symlink => 'l',
            FileType::CharDevice => 'c',
            FileType::BlockDevice => 'b',
            FileType::Fifo => 'p',
            FileType::Socket => 's',
        }
    }
}

/// A time of a file: seconds since 1970, possibly before, and nanoseconds.
///
/// ext4 holds 1901 to 2446 (with inodes of 128 bytes: to 2038, in whole seconds); what lies outside is clamped.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Timestamp {
    pub secs: i64,
    /// Less than 1,000,000,000.
    pub nanos: u32,
}

impl Timestamp {
    #[must_use]
    pub fn new(secs: i64, nanos: u32) -> Self {
        Timestamp { secs, nanos: nanos.min(999_999_999) }
    }

    pub(crate) fn engine(self) -> quire_layout::inode::Timestamp {
        quire_layout::inode::Timestamp { secs: self.secs, nanos: self.nanos.min(999_999_999) }
    }
}

impl From<quire_layout::inode::Timestamp> for Timestamp {
    fn from(t: quire_layout::inode::Timestamp) -> Self {
        Timestamp { secs: t.secs, nanos: t.nanos }
    }
}

impl From<SystemTime> for Timestamp {
    fn from(t: SystemTime) -> Self {
        match t.duration_since(UNIX_EPOCH) {
            Ok(d) => Timestamp { secs: i64::try_from(d.as_secs()).unwrap_or(i64::MAX), nanos: d.subsec_nanos() },
            Err(before) => {
                let d = before.duration();
                let secs = i64::try_from(d.as_secs()).unwrap_or(i64::MAX);
                match d.subsec_nanos() {
                    0 => Timestamp { secs: -secs, nanos: 0 },
                    n => Timestamp { secs: -secs - 1, nanos: 1_000_000_000 - n },
                }
            }
        }
    }
}

impl From<Timestamp> for SystemTime {
    fn from(t: Timestamp) -> Self {
        let whole = Duration::from_secs(t.secs.unsigned_abs());
        let base = if t.secs < 0 { UNIX_EPOCH - whole } else { UNIX_EPOCH + whole };
        base + Duration::from_nanos(t.nanos.into())
    }
}

/// What `stat` tells of an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Metadata {
    /// Inode number.
    pub ino: u32,
    /// Type bits and permissions, as `st_mode`.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Names of the inode; of a directory, two and one for each directory in it.
    pub links: u32,
    /// Bytes.
    pub size: u64,
    /// Space taken, in bytes.
    pub allocated: u64,
    /// Major and minor number of a device; zeros for others.
    pub device: (u32, u32),
    /// The inode's flags, as `lsattr` shows them.
    pub flags: u32,
    pub accessed: Timestamp,
    pub modified: Timestamp,
    pub changed: Timestamp,
    /// Where the inode has room for it.
    pub created: Option<Timestamp>,
}

impl Metadata {
    pub(crate) fn of(a: &Attr) -> Self {
        Metadata {
            ino: a.ino.0,
            mode: a.mode.into(),
            uid: a.uid,
            gid: a.gid,
            links: a.links,
            size: a.size,
            allocated: a.sectors << 9,
            device: if matches!(a.mode & mode::FMT, mode::CHR | mode::BLK) { a.device } else { (0, 0) },
            flags: a.flags,
            accessed: a.atime.into(),
            modified: a.mtime.into(),
            changed: a.ctime.into(),
            created: a.crtime.map(Into::into),
        }
    }

    #[must_use]
    pub fn file_type(&self) -> FileType {
        // The engine refuses inodes of other types.
        FileType::from_mode(self.mode).unwrap_or(FileType::File)
    }

    #[must_use]
    pub fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    #[must_use]
    pub fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    #[must_use]
    pub fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// Permissions with set-user-id, set-group-id and sticky.
    #[must_use]
    pub fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }
}

/// How full a file system is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Usage {
    /// Bytes in a block.
    pub block_size: u32,
    /// Blocks for files and directories.
    pub blocks: u64,
    pub free_blocks: u64,
    /// Free blocks without root's reserve.
    pub available_blocks: u64,
    pub inodes: u64,
    pub free_inodes: u64,
}

/// Refuses an owner that no object can have.
///
/// # Errors
/// Invalid: (`uid_t`)-1, by which the kernel means none.
pub(crate) fn check_owner(uid: Option<u32>, gid: Option<u32>) -> Result<()> {
    let refused = |what: &str| {
        let why = format!("{} is no {what}: the kernel means none by it", u32::MAX);
        Err(Error::new(ErrorKind::InvalidInput, why))
    };
    match (uid, gid) {
        (Some(u32::MAX), _) => refused("user"),
        (_, Some(u32::MAX)) => refused("group"),
        _ => Ok(()),
    }
}

/// Permissions as the engine takes them.
pub(crate) fn permission_bits(permissions: u32) -> u16 {
    u16::try_from(permissions & 0o7777).expect("twelve bits")
}
