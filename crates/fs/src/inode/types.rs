//! What callers say about inodes: the object to make, the attributes to change, and who asks.

use crate::error::{Error, Result};
use crate::tables::Pool;
use crate::txn::{Context, Op};
use quire_layout::inode::{Timestamp, is_device_number, mode};

/// Permission bits with set-user-id, set-group-id and sticky.
pub(super) const PERMISSIONS: u16 = 0o7777;
pub(super) const SETUID: u16 = 0o4000;
pub(super) const SETGID: u16 = 0o2000;

/// The user and group of whoever makes an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cred {
    pub uid: u32,
    pub gid: u32,
}

impl Cred {
    /// The account on which blocks for this user are taken.
    pub(crate) fn pool(self, op: &Op<'_>) -> Pool {
        if self.may_use_reserve(op.context) { Pool::Root } else { op.pool() }
    }

    /// True for root, and for the user and the group (but not root's) that the mount or else the superblock names.
    pub(crate) fn may_use_reserve(self, context: &Context) -> bool {
        let (uid, gid) = context.sb.reserved_for();
        let uid = context.options.reserve_uid.unwrap_or(uid.into());
        let gid = context.options.reserve_gid.unwrap_or(gid.into());
        self.uid == 0 || self.uid == uid || (gid != 0 && self.gid == gid)
    }
}

/// The kind of an object to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NewKind<'a> {
    File,
    Dir,
    /// A symbolic link with this target.
    Symlink(&'a [u8]),
    /// A pipe, socket or device (`file_type`: `S_IFMT` bits); devices have a major and a minor number.
    Node {
        file_type: u16,
        device: (u32, u32),
    },
}

/// An object to make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct New<'a> {
    pub kind: NewKind<'a>,
    /// Permissions asked for.
    pub mode: u16,
    /// Permissions that are removed, unless the directory has a default ACL.
    pub umask: u16,
    pub cred: Cred,
}

/// What a new object takes from its directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Inherit {
    /// As the kernel's ext4 has it: the group (set-group-id, `grpid`), flags, the default ACL, the journaling mode.
    All,
    /// Nothing: it is as the caller says.
    Nothing,
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    Now,
    At(Timestamp),
}

/// What a change of a file's content or owner does to the privileges that the file gives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Privileges {
    #[default]
    Keep,
    /// Removes capabilities alone: whoever changes the file may set the ids.
    DropCapabilities,
    /// Removes set-user-id, set-group-id if the group may execute the file, and capabilities.
    Drop,
    /// Removes set-group-id in any case, because the caller is not in the file's group.
    DropAll,
}

/// Attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetAttr {
    pub mode: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime: Option<SetTime>,
    pub mtime: Option<SetTime>,
    /// For a cache above that keeps times itself; `None` stands for the time of the change.
    pub ctime: Option<Timestamp>,
    /// What becomes of set-user-id, set-group-id and capabilities, for a change of size by a user other than root. A
    /// change of owner removes them anyway.
    pub privileges: Privileges,
    /// The times are those of writes that a cache above has taken: an append-only or immutable file takes them, if
    /// nothing else is to change.
    pub of_earlier_writes: bool,
}

impl New<'_> {
    pub(super) fn file_type(&self) -> Result<u16> {
        match self.kind {
            NewKind::File => Ok(mode::REG),
            NewKind::Dir => Ok(mode::DIR),
            NewKind::Symlink(_) => Ok(mode::LNK),
            NewKind::Node { file_type, device } => match file_type & mode::FMT {
                mode::CHR | mode::BLK if !is_device_number(device) => {
                    Err(Error::Invalid("ext4 stores device numbers up to major 4095 and minor 1048575"))
                }
                t @ (mode::REG | mode::FIFO | mode::SOCK | mode::CHR | mode::BLK) => Ok(t),
                _ => Err(Error::Invalid("not a type of node")),
            },
        }
    }
}
