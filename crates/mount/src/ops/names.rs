//! Names: LOOKUP, the creation of every kind of inode, UNLINK, RMDIR, RENAME, LINK, READLINK, OPEN.

use super::attr::{low16, privileges};
use crate::fail::Fail;
use crate::policy::NAMES_VALID;
use crate::server::{Answer, Durable, Need, Sent, Server, ino_of};
use crate::wire::abi::{
    HANDLE_BYPASSES, HANDLE_NUMBER_SHIFT, HANDLE_RESERVE, HANDLE_SYNC, HANDLE_WRITES, O_DSYNC, init,
};
use crate::wire::reply::decode_device;
use crate::wire::{Body, Header, Out};
use quire_fs::{Attr, Cred, Error, New, NewKind, Privileges, RenameFlags, SetAttr, Volume, commit_left};
use quire_layout::Ino;
use quire_layout::inode::{flags as inode_flags, mode};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// OPEN reply: what the kernel has cached of the file stays.
const KEEP_CACHE: u32 = 1 << 1;
/// `FOPEN_DIRECT_IO`: past the kernel's page cache.
const DIRECT_IO: u32 = 1 << 0;
/// OPEN and CREATE: set-user-id and set-group-id bits go with a truncation.
const OPEN_KILL_SUIDGID: u32 = 1;

pub(crate) fn lookup(s: &Server, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let (parent, name) = (ino_of(h.node)?, b.name()?);
    let found = match name {
        // Only for file handles (NFS): any inode by its number.
        b"." => s.volume_for(h).lookup_ino(parent),
        _ => s.volume_for(h).lookup(parent, name),
    };
    match found {
        Ok(attr) => entry(s, &attr, out),
        // A node number of zero: the kernel remembers that there is nothing.
        Err(Error::NotFound) => {
            out.u64(0)?;
            out.u64(0)?;
            out.u64(NAMES_VALID.as_secs())?;
            out.bytes(&[0; 128 - 24])?;
            Ok(Answer::Reply)
        }
        Err(e) => Err(e.into()),
    }
}

fn entry(s: &Server, attr: &Attr, out: &mut Out<'_>) -> Result<Answer, Fail> {
    out.entry(attr, NAMES_VALID, s.valid(attr))?;
    Ok(Answer::Gives(attr.ino))
}

/// With `dirsync` of the mount or of a directory, the answer waits until the changed directories are durable.
fn after_change(s: &Server, by: &Volume, answer: Answer, dir: Ino, and: Option<Ino>) -> Answer {
    answer.after_commit(by, s.changing.dir_sync().then_some(Need::Files { ino: dir, and, data_only: false }))
}

/// Creates an inode in the directory of the request; the caller gets one reference.
fn make(s: &Server, h: &Header, name: &[u8], new: &New<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let (parent, by) = (ino_of(h.node)?, s.first_change(h));
    let attr = by.create(parent, name, new)?;
    Ok(after_change(s, &by, entry(s, &attr, out)?, parent, None))
}

pub(crate) fn mknod(s: &Server, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let (mode, rdev, umask) = (b.u32()?, b.u32()?, b.u32()?);
    b.skip(4)?;
    let kind = match low16(mode) & mode::FMT {
        mode::REG | 0 => NewKind::File,
        file_type => NewKind::Node { file_type, device: decode_device(rdev) },
    };
    make(s, h, b.name()?, &new_of(h, kind, mode, umask), out)
}

pub(crate) fn mkdir(s: &Server, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let (mode, umask) = (b.u32()?, b.u32()?);
    make(s, h, b.name()?, &new_of(h, NewKind::Dir, mode, umask), out)
}

pub(crate) fn symlink(s: &Server, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let (name, target) = (b.name()?, b.name()?);
    make(s, h, name, &new_of(h, NewKind::Symlink(target), 0o777, 0), out)
}

pub(crate) fn create(s: &Server, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let (flags, mode, umask, _open_flags) = (OFlags::from_bits_retain(b.u32()?), b.u32()?, b.u32()?, b.u32()?);
    let (parent, by) = (ino_of(h.node)?, s.first_change(h));
    let attr = by.create(parent, b.name()?, &new_of(h, NewKind::File, mode, umask))?;
    opens_new(s, h, &attr, flags, out)?;
    Ok(after_change(s, &by, Answer::Opens { ino: attr.ino, writes: writes(flags) }, parent, None))
}

/// A file without a name: the one that the request has is none.
pub(crate) fn tmpfile(s: &Server, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let (flags, mode, umask) = (OFlags::from_bits_retain(b.u32()?), b.u32()?, b.u32()?);
    let attr = s.first_change(h).create_unnamed(ino_of(h.node)?, &new_of(h, NewKind::File, mode, umask))?;
    opens_new(s, h, &attr, flags, out)?;
    Ok(Answer::Opens { ino: attr.ino, writes: writes(flags) })
}

/// A new file, opened as it is made: for reading alone, too, as flock(1) does.
fn opens_new(s: &Server, h: &Header, attr: &Attr, flags: OFlags, out: &mut Out<'_>) -> Result<(), Fail> {
    if writes(flags) {
        s.writers.opened(attr.ino);
    }
    s.openers.opened(attr.ino);
    entry(s, attr, out)?;
    let (ino, writes) = (attr.ino, writes(flags));
    opened(s, h, (ino, flags), attr.flags, out).inspect_err(|_| s.take_back(Sent::Opens { ino, writes }))
}

/// Only what the kernel cannot know of is checked: immutable and append-only files.
pub(crate) fn open(s: &Server, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let (flags, open_flags) = (OFlags::from_bits_retain(b.u32()?), b.u32()?);
    let ino = ino_of(h.node)?;
    let truncates = flags.contains(OFlags::TRUNC);
    let mut i_flags = 0;
    if writes(flags) || truncates {
        i_flags = s.volume_for(h).inode_flags().get(ino)?;
        let blocked = i_flags & inode_flags::IMMUTABLE != 0
            || i_flags & inode_flags::APPEND != 0 && (truncates || !flags.contains(OFlags::APPEND));
        if blocked {
            return Err(Fail::of(Errno::PERM));
        }
    }
    let (mut answer, mut left) = (Answer::Reply, None);
    if truncates {
        let by = s.first_change(h);
        let privileges = privileges(s, h, ino, open_flags & OPEN_KILL_SUIDGID != 0)?;
        by.setattr(ino, &SetAttr { size: Some(0), privileges, ..SetAttr::default() })?;
        if privileges != Privileges::Keep {
            answer = Answer::Spoils(ino);
        }
        left = commit_left(&by);
    }
    if writes(flags) {
        s.writers.opened(ino);
    }
    s.openers.opened(ino);
    let sent = |spoils| Sent::Opened { ino, writes: writes(flags), spoils };
    opened(s, h, (ino, flags), i_flags, out).inspect_err(|_| s.take_back(sent(false)))?;
    let file = || Need::Files { ino, and: None, data_only: false };
    let need = left.map(Need::Commit).or_else(|| (truncates && s.changing.sync()).then(file));
    Ok(match need {
        None => answer,
        Some(need) => Answer::WhenDurable(Durable { need, sent: sent(matches!(answer, Answer::Spoils(_))) }),
    })
}

pub(crate) fn release(s: &Server, h: &Header, b: &mut Body<'_>) -> Result<Answer, Fail> {
    s.updates.close(b.u64()?);
    let ino = ino_of(h.node)?;
    let wrote = writes(OFlags::from_bits_retain(b.u32()?));
    if wrote && s.writers.closed(ino) {
        s.refused.forget(ino);
    }
    if wrote {
        quire_fs::closed(&s.volume, ino);
    }
    s.openers.closed(ino);
    Ok(Answer::Reply)
}

pub(crate) fn unlink(s: &Server, h: &Header, b: &mut Body<'_>) -> Result<Answer, Fail> {
    let (parent, name) = (ino_of(h.node)?, b.name()?);
    s.note_removal();
    let by = s.first_change(h);
    by.unlink(parent, name)?;
    Ok(after_change(s, &by, Answer::Reply, parent, None))
}

pub(crate) fn rmdir(s: &Server, h: &Header, b: &mut Body<'_>) -> Result<Answer, Fail> {
    let (parent, name) = (ino_of(h.node)?, b.name()?);
    let by = s.first_change(h);
    by.rmdir(parent, name)?;
    Ok(after_change(s, &by, Answer::Reply, parent, None))
}

pub(crate) fn rename(s: &Server, h: &Header, b: &mut Body<'_>, has_flags: bool) -> Result<Answer, Fail> {
    const NO_REPLACE: u32 = 1;
    const EXCHANGE: u32 = 2;
    const WHITEOUT: u32 = 4;
    let (old, new) = (ino_of(h.node)?, ino_of(b.u64()?)?);
    let bits = if has_flags { b.u32()? } else { 0 };
    if has_flags {
        b.skip(4)?;
    }
    if bits & !(NO_REPLACE | EXCHANGE | WHITEOUT) != 0 {
        return Err(Fail::of(Errno::INVAL));
    }
    let flags = RenameFlags {
        no_replace: bits & NO_REPLACE != 0,
        exchange: bits & EXCHANGE != 0,
        whiteout: (bits & WHITEOUT != 0).then_some(Cred { uid: h.uid, gid: h.gid }),
    };
    let (name, new_name) = (b.name()?, b.name()?);
    s.note_removal();
    let by = s.first_change(h);
    by.rename(old, name, new, new_name, flags)?;
    Ok(after_change(s, &by, Answer::Reply, old, Some(new).filter(|new| *new != old)))
}

pub(crate) fn link(s: &Server, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let (parent, ino) = (ino_of(h.node)?, ino_of(b.u64()?)?);
    let by = s.first_change(h);
    let attr = by.link(ino, parent, b.name()?)?;
    Ok(after_change(s, &by, entry(s, &attr, out)?, parent, None))
}

/// `fuse_open_out`. The handle says whether who opened the file may use reserved blocks: what the kernel's cache
/// holds is written later, with a handle, in nobody's name.
///
/// Writes to a synchronous or append-only file go past the kernel's cache: only so is each durable when it returns,
/// and only so is it known what it appends. The same when the disk is nearly full: each write is told whether it
/// fits; and for a file that is to be updated atomically: the kernel's cache would show the update to others; and for
/// what is opened after an update that failed ([`crate::fallbacks`]).
fn opened(s: &Server, h: &Header, of: (Ino, OFlags), i_flags: u32, out: &mut Out<'_>) -> Result<(), Fail> {
    let (ino, writes) = (of.0, writes(of.1));
    let may = s.volume.may_use_reserve(Cred { uid: h.uid, gid: h.gid });
    let uncached = i_flags & (inode_flags::SYNC | inode_flags::APPEND) != 0
        || writes
            && (s.updates.fallbacks.opens(h.pid, ino)
                || goes_through(s, may)
                || s.has(init::DIRECT_IO_ALLOW_MMAP) && s.updates.bypasses_cache(&s.volume, ino)?);
    let bits = [
        (may, HANDLE_RESERVE),
        (writes, HANDLE_WRITES),
        (uncached && writes, HANDLE_BYPASSES),
        (writes && of.1.contains(O_DSYNC), HANDLE_SYNC),
    ];
    let bits: u64 = bits.iter().filter(|(has, _)| *has).map(|(_, bit)| bit).sum();
    let number = if bits & HANDLE_BYPASSES == 0 { 0 } else { s.updates.new_handle() };
    out.u64(bits | number << HANDLE_NUMBER_SHIFT)?;
    out.u32(if uncached { KEEP_CACHE | DIRECT_IO } else { KEEP_CACHE })?;
    out.u32(0)
}

/// True if a file that is opened for writing now should bypass the kernel's writeback cache. Before the kernel can
/// map such a file, it stays cached.
fn goes_through(s: &Server, may_use_reserve: bool) -> bool {
    if !s.has(init::WRITEBACK_CACHE) || !s.has(init::DIRECT_IO_ALLOW_MMAP) {
        return false;
    }
    let (free, total) = s.volume.with_reserve(may_use_reserve).maintenance().free_bytes();
    quire_fs::nearly_full(free, total)
}

pub(crate) fn readlink(s: &Server, h: &Header, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let ino = ino_of(h.node)?;
    let target = s.volume_for(h).readlink(ino)?;
    s.touch_atime(ino);
    out.bytes(&target)?;
    Ok(Answer::Reply)
}

/// What the caller of a request makes.
fn new_of<'a>(h: &Header, kind: NewKind<'a>, mode: u32, umask: u32) -> New<'a> {
    let cred = Cred { uid: h.uid, gid: h.gid };
    New { kind, mode: low16(mode) & 0o7777, umask: low16(umask) & 0o777, cred }
}

fn writes(flags: OFlags) -> bool {
    flags.intersects(OFlags::WRONLY | OFlags::RDWR)
}
