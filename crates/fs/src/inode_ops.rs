//! Inodes: made, looked at, changed.
//!
//! A new inode takes group, flags and ACL from its directory as ext4's does; see `make`.

use crate::acl;
use crate::alloc::{self, Pool};
use crate::attr::{Attr, Seen};
use crate::error::{Error, Result};
use crate::flags::{inherited, is_sync, may_change};
use crate::kinds;
use crate::map::{self, Mapping};
use crate::namei::live;
use crate::op::Op;
use crate::options::Atime;
use crate::volume::{Inner, Volume};
use crate::xattr;
use quire_layout::checksum::{crc32c, crc32c_le32};
use quire_layout::extent::NodeMut;
use quire_layout::features::{incompat, ro_compat};
use quire_layout::inode::{Inode, Time, Timestamp, flags, mode};
use quire_layout::xattr::Namespace;
use quire_layout::{Corrupt, FileBlock, Ino, Structure};

/// Permission bits with set-user-id, set-group-id and sticky.
const PERMISSIONS: u16 = 0o7777;
const SETUID: u16 = 0o4000;
const SETGID: u16 = 0o2000;
const GROUP_EXECUTE: u16 = 0o010;
/// Bytes of `i_block`; a shorter target of a symbolic link lives there.
const FAST_SYMLINK: usize = 60;
/// Bytes of the extended part that this implementation knows.
const KNOWN_EXTRA: u16 = 32;
/// With relatime, an access time older than this is renewed.
const RELATIME_SECS: i64 = 24 * 60 * 60;

/// Who makes an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Cred {
    pub uid: u32,
    pub gid: u32,
}

impl Cred {
    /// On whose account this user's blocks are taken.
    pub(crate) fn pool(self, op: &Op<'_>) -> Pool {
        if self.may_use_reserve(op.vol) { Pool::Root } else { op.pool() }
    }

    /// True for root, and for the user and the group (but not root's) that the mount or else the superblock names.
    pub(crate) fn may_use_reserve(self, vol: &Inner) -> bool {
        let (uid, gid) = vol.sb.reserved_for();
        let uid = vol.options.reserve_uid.unwrap_or(uid.into());
        let gid = vol.options.reserve_gid.unwrap_or(gid.into());
        self.uid == 0 || self.uid == uid || (gid != 0 && self.gid == gid)
    }
}

/// What to make.
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
    /// Taken off them, unless the directory has a default ACL.
    pub umask: u16,
    pub cred: Cred,
}

/// A time to set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SetTime {
    Now,
    At(Timestamp),
}

/// What a change of a file's content does to the privileges that the file gives.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum Privileges {
    #[default]
    Keep,
    /// Set-user-id, set-group-id of what its group may execute, and capabilities go.
    Drop,
    /// Set-group-id goes in any case: the caller is not in the file's group.
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
    /// Only for a cache that keeps times itself; otherwise the time of the change.
    pub ctime: Option<Timestamp>,
    /// Who asks. Permissions are the caller's to check; nothing here depends on it yet.
    pub cred: Option<Cred>,
    /// What becomes of set-user-id, set-group-id and capabilities (a change of size by one who is not root). A change of
    /// owner takes them off anyway.
    pub privileges: Privileges,
}

impl New<'_> {
    fn file_type(&self) -> Result<u16> {
        match self.kind {
            NewKind::File => Ok(mode::REG),
            NewKind::Dir => Ok(mode::DIR),
            NewKind::Symlink(_) => Ok(mode::LNK),
            NewKind::Node { file_type, .. } => match file_type & mode::FMT {
                t @ (mode::REG | mode::FIFO | mode::SOCK | mode::CHR | mode::BLK) => Ok(t),
                _ => Err(Error::Invalid("not a type of node")),
            },
        }
    }
}

/// True if a symbolic link's target is in the inode.
pub(crate) fn is_fast_symlink(inode: &Inode) -> bool {
    let short = usize::try_from(inode.size()).is_ok_and(|n| n < FAST_SYMLINK);
    inode.is_symlink() && short && !inode.uses_extents()
}

/// Makes an inode under a directory and writes its record; its links are set, the name is for the caller to add.
///
/// # Errors
/// No inodes, no space; name too long (a symbolic link's target); invalid; corrupt; miss.
pub(crate) fn make(op: &mut Op<'_>, parent: Ino, dir: &Inode, new: &New<'_>) -> Result<(Ino, Inode)> {
    let file_type = new.file_type()?;
    let ino = alloc::alloc_inode(op, parent, file_type)?;
    let sb = op.sb();
    let extra = if sb.features().has_ro_compat(ro_compat::EXTRA_ISIZE) { sb.want_extra_isize() } else { 0 };
    let mut inode = Inode::new(sb.inode_size(), extra.max(KNOWN_EXTRA));
    let permissions = if file_type == mode::LNK { 0o777 } else { new.mode & PERMISSIONS };
    inode.set_mode(file_type | permissions);
    inode.set_generation(generation(op, ino));
    inode.set_links(if file_type == mode::DIR { 2 } else { 1 });
    own(op, dir, &mut inode, new.cred);
    let mapped = matches!(file_type, mode::REG | mode::DIR | mode::LNK);
    let extents = if mapped && sb.features().has_incompat(incompat::EXTENTS) { flags::EXTENTS } else { 0 };
    inode.set_flags(inherited(dir, file_type) | extents);
    if extents != 0 {
        NodeMut::init(inode.block_area_mut(), 0);
    }
    for t in [Time::Access, Time::Change, Time::Modify, Time::Create] {
        inode.set_time(t, op.now());
    }
    inode.set_version(1);
    acl::inherit(op, (parent, dir), (ino, &mut inode), new.umask)?;
    match new.kind {
        NewKind::Symlink(target) => write_target(op, ino, &mut inode, target, new.cred)?,
        NewKind::Node { device, .. } if matches!(file_type, mode::CHR | mode::BLK) => {
            inode.set_device(device.0, device.1)
        }
        _ => {}
    }
    op.put_inode(ino, &mut inode)?;
    Ok((ino, inode))
}

/// Owner and group: a directory with set-group-id, or the option `grpid`, gives its group.
fn own(op: &Op<'_>, dir: &Inode, inode: &mut Inode, cred: Cred) {
    inode.set_uid(cred.uid);
    if op.vol.options.grpid {
        inode.set_gid(dir.gid());
    } else if dir.mode() & SETGID != 0 {
        inode.set_gid(dir.gid());
        if inode.is_dir() {
            inode.set_mode(inode.mode() | SETGID);
        }
    } else {
        inode.set_gid(cred.gid);
    }
}

/// A number that the inode's earlier lives did not have, as far as 32 bits allow.
fn generation(op: &mut Op<'_>, ino: Ino) -> u32 {
    let now = op.now();
    // The clock may stand still between two lives.
    let made = &mut op.state_mut().made;
    *made = made.wrapping_add(1);
    let made = *made;
    let seed = crc32c_le32(crc32c(!0, &op.sb().uuid()), ino.0);
    crc32c_le32(crc32c_le32(crc32c(seed, &now.secs.to_le_bytes()), now.nanos), made)
}

/// Stores the target of a new symbolic link: in the inode if it is short, else in one block.
fn write_target(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, target: &[u8], cred: Cred) -> Result<()> {
    let block_size = op.sb().block_size().bytes();
    if target.is_empty() {
        return Err(Error::NotFound);
    }
    if target.contains(&0) {
        return Err(Error::Invalid("a target holds no NUL"));
    }
    // The kernel wants a NUL after it.
    if target.len() + 1 > block_size {
        return Err(Error::NameTooLong);
    }
    if target.len() < FAST_SYMLINK {
        inode.set_flags(inode.flags() & !flags::EXTENTS);
        let area = inode.block_area_mut();
        area.fill(0);
        area[..target.len()].copy_from_slice(target);
    } else {
        let (b, _) = map::allocate(op, ino, inode, FileBlock(0), 1, cred.pool(op))?;
        op.block_new(b, kinds::PARTS)?[..target.len()].copy_from_slice(target);
    }
    inode.set_size(u64::try_from(target.len()).expect("less than a block"));
    Ok(())
}

/// The target of a symbolic link.
fn read_target(op: &mut Op<'_>, ino: Ino, inode: &Inode) -> Result<Vec<u8>> {
    if !inode.is_symlink() {
        return Err(Error::Invalid("not a symbolic link"));
    }
    let bad = |why| Corrupt::new(Structure::Symlink, why).of(ino.0);
    let block_size = op.sb().block_size().bytes();
    let len = usize::try_from(inode.size()).ok().filter(|n| (1..=block_size).contains(n));
    let len = len.ok_or_else(|| bad("impossible length"))?;
    let target = if inode.has(flags::INLINE_DATA) {
        let rest = xattr::get(op, ino, inode, Namespace::SYSTEM, b"data")?.unwrap_or_default();
        [&inode.block_area()[..], &rest].concat()
    } else if is_fast_symlink(inode) {
        inode.block_area().to_vec()
    } else {
        match map::lookup(op, ino, inode, FileBlock(0), 1)? {
            Mapping::Mapped { phys, unwritten: false, .. } => op.block_of_parts(phys)?.to_vec(),
            _ => return Err(bad("has no block").into()),
        }
    };
    match target.get(..len) {
        Some(t) if !t.contains(&0) => Ok(t.to_vec()),
        _ => Err(bad("target is shorter than its length").into()),
    }
}

impl Volume {
    /// What `stat` tells.
    ///
    /// # Errors
    /// Stale (a freed inode); corrupt, I/O.
    pub fn getattr(&self, ino: Ino) -> Result<Attr> {
        let seen = self.run(|op| {
            let inode = live(op, ino)?;
            Ok(op.seen(ino, &inode))
        })?;
        Ok(self.told(seen))
    }

    /// What `stat` tells of an inode that has lost its last name, and cannot get one again; else `None`.
    ///
    /// # Errors
    /// Stale (a freed inode); corrupt, I/O.
    pub fn unlinked(&self, ino: Ino) -> Result<Option<Attr>> {
        let seen = self.run(|op| {
            if !op.state().orphans.contains(ino) || op.state().unnamed.contains(&ino) {
                return Ok(None);
            }
            let inode = live(op, ino)?;
            // A file that is being truncated is an orphan, too.
            Ok((inode.links() == 0).then(|| op.seen(ino, &inode)))
        })?;
        Ok(seen.map(|s| self.told(s)))
    }

    /// Adds what is not on disk yet.
    pub(crate) fn told(&self, seen: Seen) -> Attr {
        let mut attr = seen.attr;
        if seen.pending {
            self.pending(attr.ino, &mut attr);
        }
        attr
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// Invalid (no symbolic link); corrupt, I/O.
    pub fn readlink(&self, ino: Ino) -> Result<Vec<u8>> {
        self.run(|op| {
            let inode = live(op, ino)?;
            read_target(op, ino, &inode)
        })
    }

    /// Changes attributes. A change of owner takes set-user-id, set-group-id (of a program) and capabilities off a file.
    ///
    /// # Errors
    /// Not permitted (immutable, append-only); what [`Volume::truncate`] says; no space (an ACL that must be copied);
    /// corrupt, I/O, read-only.
    pub fn setattr(&self, ino: Ino, set: &SetAttr) -> Result<Attr> {
        if let Some(size) = set.size {
            self.run(|op| check_setattr(&live(op, ino)?, set))?;
            self.truncate(ino, size)?;
        }
        let ((seen, sync), tid) = self.run_tid(|op| {
            let mut inode = live(op, ino)?;
            check_setattr(&inode, set)?;
            change(op, ino, &mut inode, set)?;
            op.put_inode(ino, &mut inode)?;
            Ok((op.seen(ino, &inode), is_sync(&inode)))
        })?;
        if seen.pending {
            self.set_pending_times(ino, set.mtime.map(|_| seen.attr.mtime), seen.attr.ctime);
        }
        self.settle(sync, tid)?;
        Ok(self.told(seen))
    }

    /// Notes an access now, if flags and options ask for it.
    ///
    /// # Errors
    /// Corrupt, I/O. On a read-only volume nothing happens.
    pub fn touch_atime(&self, ino: Ino) -> Result<()> {
        if self.inner.options.atime == Atime::No || self.inner.check_writable().is_err() {
            return Ok(());
        }
        let attr = self.getattr(ino)?;
        let now = self.inner.now();
        if attr.flags & flags::NOATIME != 0 || (self.inner.options.atime == Atime::Relative && !is_due(&attr, now)) {
            return Ok(());
        }
        self.run(|op| {
            let mut inode = live(op, ino)?;
            inode.set_time(Time::Access, op.now());
            op.put_inode(ino, &mut inode)
        })
    }
}

/// relatime: not accessed since the last change, or not within a day.
fn is_due(attr: &Attr, now: Timestamp) -> bool {
    attr.atime <= attr.mtime || attr.atime <= attr.ctime || now.secs.saturating_sub(attr.atime.secs) >= RELATIME_SECS
}

/// What immutable and append-only files forbid. Times may be set to now on an append-only file.
fn check_setattr(inode: &Inode, set: &SetAttr) -> Result<()> {
    let given = |t: Option<SetTime>| matches!(t, Some(SetTime::At(_)));
    let owner = set.mode.is_some() || set.uid.is_some() || set.gid.is_some();
    if owner || set.size.is_some() || given(set.atime) || given(set.mtime) {
        return may_change(inode);
    }
    let any = set.atime.is_some() || set.mtime.is_some() || set.ctime.is_some();
    if (any || set.privileges != Privileges::Keep) && inode.has(flags::IMMUTABLE) { may_change(inode) } else { Ok(()) }
}

fn change(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, set: &SetAttr) -> Result<()> {
    if let Some(uid) = set.uid {
        inode.set_uid(uid);
    }
    if let Some(gid) = set.gid {
        inode.set_gid(gid);
    }
    let chown = set.uid.is_some() || set.gid.is_some();
    let privileges = if chown { set.privileges.max(Privileges::Drop) } else { set.privileges };
    if !inode.is_dir() {
        drop_privileges(op, ino, inode, privileges)?;
    }
    if let Some(m) = set.mode {
        inode.set_mode(inode.file_type() | (m & PERMISSIONS));
        acl::follow_mode(op, ino, inode)?;
    }
    let now = op.now();
    for (which, time) in [(Time::Access, set.atime), (Time::Modify, set.mtime)] {
        match time {
            Some(SetTime::Now) => inode.set_time(which, now),
            Some(SetTime::At(t)) => inode.set_time(which, t),
            None => {}
        }
    }
    inode.set_time(Time::Change, set.ctime.unwrap_or(now));
    Ok(())
}

/// Takes set-user-id, set-group-id and capabilities off, as a write or a change of owner must. The caller writes the inode.
///
/// # Errors
/// Corrupt; no space (a shared attribute block); miss.
pub(crate) fn drop_privileges(op: &mut Op<'_>, ino: Ino, inode: &mut Inode, what: Privileges) -> Result<()> {
    let program = inode.mode() & GROUP_EXECUTE != 0;
    let gone = match what {
        Privileges::Keep => return Ok(()),
        Privileges::Drop if !program => SETUID,
        Privileges::Drop | Privileges::DropAll => SETUID | SETGID,
    };
    inode.set_mode(inode.mode() & !gone);
    xattr::drop_capabilities(op, ino, inode)
}
