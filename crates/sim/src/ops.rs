//! Operations of a simulated workload.
//!
//! Files and directories are named by small numbers, so that operations meet: the same few names in the same few
//! directories are created, renamed over each other, removed and made again.

/// Where a name is: a directory (0 is the root, n is the top-level directory `d<n>`) and a name in it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub struct Place {
    pub dir: u8,
    pub name: u8,
}

impl Place {
    /// The name as bytes. Some are long, so that directories split early.
    #[must_use]
    pub fn bytes(self) -> Vec<u8> {
        let mut n = format!("f{}", self.name).into_bytes();
        if self.name % 4 == 3 {
            n.extend(std::iter::repeat_n(b'x', 180));
        }
        n
    }
}

/// One call of a workload. A call that the state refuses (no such file, exists) is legal and changes nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SimOp {
    Create(Place),
    Mkdir(u8),
    Rmdir(u8),
    Symlink(Place, u16),
    Mknod(Place),
    Unlink(Place),
    /// Unlinks a file that stays in use until [`SimOp::Release`].
    UnlinkOpen(Place),
    /// Ends the use of everything that was unlinked so.
    Release,
    /// Sends a file's data through the journal from now on, or no longer (`chattr +j`).
    JournalData(Place, bool),
    Rename(Place, Place),
    Exchange(Place, Place),
    Link(Place, Place),
    /// `len` bytes of `fill` at `offset`.
    Write {
        place: Place,
        offset: u32,
        len: u32,
        fill: u8,
        sync: bool,
    },
    /// Some bytes of a page change under a memory map: the kernel hands over the page, up to the end of the file.
    MapWrite {
        place: Place,
        page: u32,
        at: u32,
        len: u32,
        fill: u8,
    },
    /// `len` bytes of `fill` behind the end (O_APPEND).
    Append {
        place: Place,
        len: u32,
        fill: u8,
        sync: bool,
    },
    /// An atomic update of two ranges, which is undone unless it `commits`.
    Update {
        place: Place,
        first: (u32, u32),
        second: (u32, u32),
        fill: u8,
        commits: bool,
    },
    Truncate(Place, u32),
    Punch {
        place: Place,
        offset: u32,
        len: u32,
    },
    Allocate {
        place: Place,
        offset: u32,
        len: u32,
    },
    /// As [`SimOp::Allocate`], but the size stays.
    Reserve {
        place: Place,
        offset: u32,
        len: u32,
    },
    /// Zeros are read there, and there is space; the file grows to hold it.
    Zero {
        place: Place,
        offset: u32,
        len: u32,
    },
    /// Takes a range out; what follows moves down.
    Collapse {
        place: Place,
        offset: u32,
        len: u32,
    },
    /// Makes room; what follows moves up.
    Insert {
        place: Place,
        offset: u32,
        len: u32,
    },
    /// Bytes of one file, to another or elsewhere in it (`copy_file_range`).
    Copy {
        from: Place,
        at: u32,
        to: Place,
        offset: u32,
        len: u32,
    },
    /// A file that is written without a name and then gets one (`O_TMPFILE`, `linkat`).
    Unnamed {
        place: Place,
        len: u32,
        fill: u8,
    },
    /// A directory gets the name of another.
    RenameDir(u8, u8),
    Chmod(Place, u16),
    Chown(Place, u32),
    /// Sets both times of a file to one that the number stands for.
    Utimes(Place, u32),
    SetXattr(Place, u8, u16),
    RemoveXattr(Place, u8),
    Fsync(Place),
    Fdatasync(Place),
    FsyncDir(u8),
    Sync,
    /// Background work.
    Step,
    /// Everything in pages goes where it belongs. Nothing becomes durable.
    WriteBack,
    /// Everything committed goes home.
    Checkpoint,
    /// The image is made clean, and stays so until [`SimOp::Thaw`] or [`SimOp::Remount`].
    Freeze,
    Thaw,
    /// The volume is closed and mounted again.
    Remount,
}

impl SimOp {
    /// True if a frozen volume keeps the call waiting.
    #[must_use]
    pub fn waits_when_frozen(&self) -> bool {
        use SimOp::{Checkpoint, Fdatasync, Freeze, Fsync, FsyncDir, Release, Remount, Step, Sync, Thaw, WriteBack};
        let goes_on =
            matches!(self, Fsync(_) | Fdatasync(_) | FsyncDir(_) | Sync | Step | WriteBack | Checkpoint | Release);
        !goes_on && !matches!(self, Freeze | Thaw | Remount)
    }
}

/// The fill that stands for the magic number of the log, which must be escaped there.
pub const MAGIC_FILL: u8 = 0xC0;

/// `len` bytes of a fill, as they lie at `offset` of a file.
#[must_use]
pub fn pattern(fill: u8, offset: u32, len: u32) -> Vec<u8> {
    const MAGIC: [u8; 4] = [0xC0, 0x3B, 0x39, 0x98];
    let byte = |at: u32| if fill == MAGIC_FILL { MAGIC[(at % 4) as usize] } else { fill };
    (offset..offset + len).map(byte).collect()
}

/// Directories besides the root.
pub const DIRS: u8 = 3;
/// Names in a directory.
pub const NAMES: u8 = 7;
/// Files stay below this size, in bytes.
pub const MAX_SIZE: u32 = 96 << 10;
/// Bytes of a page of the kernel's cache.
pub const PAGE: u32 = 4096;
