//! Attributes: GETATTR, STATX, SETATTR, STATFS, and the references that the kernel holds.

use crate::caller;
use crate::fail::Fail;
use crate::server::{Answer, Need, Server, ino_of};
use crate::wire::abi::{GETATTR_HANDLE, HANDLE_RESERVE, HANDLE_WRITES, fattr, init};
use crate::wire::{Body, Header, Out};
use quire_device::{Clock, TickClock};
use quire_fs::{Privileges, SetAttr, SetTime};
use quire_layout::Ino;
use quire_layout::inode::{Timestamp, flags, mode};
use rustix::io::Errno;

pub(crate) fn getattr(s: &Server, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let ino = ino_of(h.node)?;
    let bits = b.u32()?;
    b.skip(4)?;
    let handle = if bits & GETATTR_HANDLE != 0 { b.u64()? } else { 0 };
    // Only the kernel's read, write and lseek ask with a handle; stat and fstat do not.
    if handle & HANDLE_WRITES != 0 && s.refused.has(ino) {
        let (free, _) = s.volume.with_reserve(handle & HANDLE_RESERVE != 0).maintenance().free_bytes();
        if s.refused.tell(ino, free) {
            return Err(Fail::of(Errno::NOSPC));
        }
    }
    let attr = s.volume_for(h).getattr(ino)?;
    out.attr(&attr, s.valid(&attr))?;
    Ok(Answer::Reply)
}

pub(crate) fn statx(s: &Server, h: &Header, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let attr = s.volume_for(h).getattr(ino_of(h.node)?)?;
    out.statx(&attr, s.valid(&attr))?;
    Ok(Answer::Reply)
}

pub(crate) fn setattr(s: &Server, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let request = SetAttrRequest::read(b)?;
    let ino = ino_of(h.node)?;
    let mut set = request.of();
    set.privileges = privileges(s, h, ino, request.valid & fattr::KILL_SUIDGID != 0)?;
    if request.valid & !fattr::FH == fattr::MTIME | fattr::CTIME && s.has(init::WRITEBACK_CACHE) {
        take_kept_times(s, ino, &mut set, request.valid & fattr::FH != 0)?;
    }
    allow_times_of_now(s, ino, &mut set)?;
    let by = s.first_change(h);
    let mut attr = by.setattr(ino, &set)?;
    if let Some(size) = set.size {
        // The kernel believes this reply: write-back that ends meanwhile must not show through.
        attr.size = size;
    }
    out.attr(&attr, s.valid(&attr))?;
    let sync = s.changing.dir_sync() && attr.mode & mode::FMT == mode::DIR || s.changing.sync() && set.size.is_some();
    Ok(Answer::Reply.after_commit(&by, sync.then_some(Need::Files { ino, and: None, data_only: false })))
}

/// The kernel sends the times that it has kept. With a handle (fsync and close have one, utimensat has none) they are
/// those of writes that it has taken: no flag that the file got since forbids them. A time from before a write past the
/// kernel's cache is not the file's any more.
fn take_kept_times(s: &Server, ino: Ino, set: &mut SetAttr, of_writes: bool) -> Result<(), Fail> {
    let Some(SetTime::At(t)) = set.mtime else { return Ok(()) };
    set.of_earlier_writes = of_writes;
    match s.bypassed.known(ino) {
        Some(known) if known == t || of_writes && t < s.volume.getattr(ino)?.mtime => set.mtime = None,
        Some(_) => s.bypassed.forget(ino),
        None => {}
    }
    Ok(())
}

/// An append-only file takes times of now, but no others. With the writeback cache the kernel sends a time of its
/// own where the caller asked for now: one since the last modification.
fn allow_times_of_now(s: &Server, ino: Ino, set: &mut SetAttr) -> Result<(), Fail> {
    let (Some(SetTime::At(t)), false) = (set.mtime, matches!(set.atime, Some(SetTime::At(_)))) else {
        return Ok(());
    };
    let attr = s.volume.getattr(ino)?;
    let now = i64::try_from(TickClock.file_time().as_secs()).unwrap_or(i64::MAX);
    let is_of_now = attr.mtime <= t && t.secs <= now.saturating_add(1);
    if attr.flags & flags::APPEND != 0 && s.has(init::WRITEBACK_CACHE) && is_of_now {
        set.mtime = Some(SetTime::Now);
        set.ctime = None;
    }
    Ok(())
}

/// What a change by this caller does to a file's privileges, given whether the kernel wants them off.
pub(crate) fn privileges(s: &Server, h: &Header, ino: Ino, off: bool) -> Result<Privileges, Fail> {
    const SETGID: u16 = 0o2000;
    const GROUP_EXECUTE: u16 = 0o010;
    if !off {
        return Ok(Privileges::Keep);
    }
    let attr = s.volume.getattr(ino)?;
    let only_setgid = attr.mode & SETGID != 0 && attr.mode & GROUP_EXECUTE == 0;
    // Root has CAP_FSETID.
    let keeps_setgid = h.uid == 0 || is_member(h, attr.gid);
    Ok(if only_setgid && !keeps_setgid { Privileges::DropAll } else { Privileges::Drop })
}

pub(crate) fn statfs(s: &Server, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let stat = s.volume.statfs();
    for v in [stat.blocks, stat.free, stat.available, stat.inodes, stat.free_inodes] {
        out.u64(v)?;
    }
    for v in [stat.block_size, stat.name_max, stat.block_size, 0] {
        out.u32(v)?;
    }
    out.bytes(&[0; 24])?;
    Ok(Answer::Reply)
}

pub(crate) fn forget_one(s: &Server, h: &Header, b: &mut Body<'_>) -> Result<Answer, Fail> {
    // Nobody waits for an answer, not even for a refusal.
    if let (Ok(ino), Ok(n)) = (ino_of(h.node), b.u64()) {
        s.forget(ino, n);
    }
    Ok(Answer::None)
}

pub(crate) fn forget_many(s: &Server, b: &mut Body<'_>) -> Result<Answer, Fail> {
    let Ok(count) = b.u32() else { return Ok(Answer::None) };
    b.skip(4).ok();
    for _ in 0..count {
        let (Ok(node), Ok(n)) = (b.u64(), b.u64()) else { break };
        if let Ok(ino) = ino_of(node) {
            s.forget(ino, n);
        }
    }
    Ok(Answer::None)
}

/// True if the caller is in a group. FUSE tells its first group only; /proc knows the others.
fn is_member(h: &Header, gid: u32) -> bool {
    h.gid == gid || caller::is_in_group(h.pid, gid)
}

/// `fuse_setattr_in`.
struct SetAttrRequest {
    valid: u32,
    size: u64,
    atime: Timestamp,
    mtime: Timestamp,
    ctime: Timestamp,
    mode: u32,
    uid: u32,
    gid: u32,
}

impl SetAttrRequest {
    fn read(b: &mut Body<'_>) -> Result<Self, Fail> {
        let valid = b.u32()?;
        b.skip(4 + 8)?; // padding, file handle
        let size = b.u64()?;
        b.skip(8)?; // lock owner
        let secs = [b.i64()?, b.i64()?, b.i64()?];
        let nanos = [b.u32()?, b.u32()?, b.u32()?];
        if nanos.iter().any(|n| *n >= 1_000_000_000) {
            return Err(Fail::of(Errno::INVAL));
        }
        let time = |n: usize| Timestamp { secs: secs[n], nanos: nanos[n] };
        let mode = b.u32()?;
        b.skip(4)?;
        let (uid, gid) = (b.u32()?, b.u32()?);
        Ok(SetAttrRequest { valid, size, atime: time(0), mtime: time(1), ctime: time(2), mode, uid, gid })
    }

    fn of(&self) -> SetAttr {
        let has = |bit| self.valid & bit != 0;
        let time = |now, at, t| match (has(now), has(at)) {
            (true, _) => Some(SetTime::Now),
            (false, true) => Some(SetTime::At(t)),
            (false, false) => None,
        };
        SetAttr {
            mode: has(fattr::MODE).then(|| low16(self.mode) & !mode::FMT),
            uid: has(fattr::UID).then_some(self.uid),
            gid: has(fattr::GID).then_some(self.gid),
            size: has(fattr::SIZE).then_some(self.size),
            atime: time(fattr::ATIME_NOW, fattr::ATIME, self.atime),
            mtime: time(fattr::MTIME_NOW, fattr::MTIME, self.mtime),
            ctime: has(fattr::CTIME).then_some(self.ctime),
            privileges: Privileges::Keep,
            of_earlier_writes: false,
        }
    }
}

/// The lower half: type and permissions.
pub(crate) fn low16(v: u32) -> u16 {
    quire_layout::bytes::lo16(v)
}
