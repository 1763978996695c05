//! The attributes that `stat` reports.

use quire_layout::inode::{Inode, Time, Timestamp};
use quire_layout::superblock::Superblock;
use quire_layout::{Ino, inline_data};

/// Bytes of the unit of `st_blocks`.
const SECTOR: u64 = 512;

/// Attributes of an inode, with what is pending in memory included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr {
    pub ino: Ino,
    pub generation: u32,
    /// File type and permissions.
    pub mode: u16,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    /// Major and minor number of a device node.
    pub device: (u32, u32),
    pub size: u64,
    /// Space used, in 512-byte units.
    pub sectors: u64,
    pub block_size: u32,
    /// `i_flags`.
    pub flags: u32,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// Creation time, where the inode has room for it.
    pub crtime: Option<Timestamp>,
}

impl Attr {
    /// What the on-disk inode says.
    #[must_use]
    pub fn of(sb: &Superblock, ino: Ino, i: &Inode) -> Self {
        let time = |t| i.time(t).unwrap_or_default();
        Attr {
            ino,
            generation: i.generation(),
            mode: i.mode(),
            links: u32::from(i.links()),
            uid: i.uid(),
            gid: i.gid(),
            device: quire_layout::inode::device_number(i.block_area()),
            size: i.size(),
            sectors: sectors(sb, i),
            block_size: u32::try_from(sb.block_size().bytes()).expect("at most 64 KiB"),
            flags: i.flags(),
            atime: time(Time::Access),
            mtime: time(Time::Modify),
            ctime: time(Time::Change),
            crtime: i.time(Time::Create),
        }
    }
}

/// Space used. A file in its inode counts its size, as with the kernel: with none, cp(1) and tar(1) would take all of
/// it for a hole.
fn sectors(sb: &Superblock, i: &Inode) -> u64 {
    let counted = i.sectors(sb.features(), sb.block_size().bytes64());
    let inline = i.is_file() && inline_data::is_inline(i);
    if inline { counted.saturating_add(i.size().div_ceil(SECTOR)) } else { counted }
}
