//! File data: READ, WRITE, FALLOCATE, LSEEK, COPY_FILE_RANGE, FSYNC, SYNCFS.

use super::attr::privileges;
use crate::fail::Fail;
use crate::policy::{COPY_STEP, MAX_COPIED_READ};
use crate::server::{Answer, Need, Server, ino_of};
use crate::wire::abi::{
    FSYNC_DATASYNC, HANDLE_BYPASSES, HANDLE_RESERVE, HANDLE_SYNC, HANDLE_WRITES, O_DSYNC, READ_LOCKOWNER, init,
    write as write_bits,
};
use crate::wire::{Body, Header, Out};
use quire_fs::{
    Falloc, FilePlace, Privileges, ReadBegun, Seek, SetAttr, Volume, WriteFlags, attr_before_write, begin_read,
    leaving_commits, read_to_change,
};
use quire_layout::Ino;
use quire_layout::inode::flags;
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// Set-user-id and set-group-id.
const SET_IDS: u16 = 0o6000;

pub(crate) fn read(s: &Server, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let ino = ino_of(h.node)?;
    let handle = b.u64()?;
    let (offset, size) = (b.u64()?, b.u32()?);
    let into_cache = b.u32()? & READ_LOCKOWNER == 0;
    b.skip(8)?; // lock owner
    let flags = OFlags::from_bits_retain(b.u32()?);
    let buf = out.space(usize::try_from(size).map_err(|_| Fail::of(Errno::INVAL))?)?;
    if into_cache {
        s.updates.kernel_reads(ino);
    }
    // With the writeback cache the kernel reads a page before it changes a part of it, and so does who updates a file.
    let changes = handle & HANDLE_WRITES != 0 && (s.has(init::WRITEBACK_CACHE) || handle & HANDLE_BYPASSES != 0);
    let own = if into_cache { None } else { s.updates.read(handle, offset, buf) };
    let begun = match own {
        Some(read) => ReadBegun::Done(read?),
        None if buf.len() <= MAX_COPIED_READ || is_suspended(s) => {
            begin_read(s.volume_for(h), ino, offset, buf, changes)?
        }
        None if changes => ReadBegun::Done(read_to_change(&s.volume, ino, offset, buf)?),
        None => ReadBegun::Done(s.volume.read(ino, offset, buf)?),
    };
    if !flags.contains(OFlags::NOATIME) {
        s.touch_atime(ino);
    }
    match begun {
        ReadBegun::Done(n) => {
            out.truncate(n);
            Ok(Answer::Reply)
        }
        ReadBegun::OnDevice(read) => Ok(Answer::OnDevice(read)),
    }
}

/// True if a large READ is not to wait with its worker.
fn is_suspended(s: &Server) -> bool {
    // A ring's entry is memory for the reply as well, which only its worker has.
    !s.has(init::OVER_IO_URING) && s.blocked.are_many() && s.reply_buffers.have_room()
}

pub(crate) fn write(s: &Server, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let ino = ino_of(h.node)?;
    let handle = b.u64()?;
    let (offset, size, bits) = (b.u64()?, b.u32()?, b.u32()?);
    b.skip(8)?;
    let flags = OFlags::from_bits_retain(b.u32()?);
    b.skip(4)?;
    let before = attr_before_write(s.volume_for(h), ino, offset, u64::from(size))?;
    let deferred = bits & write_bits::CACHE != 0;
    let privileges = match privileges(s, h, ino, bits & write_bits::KILL_SUIDGID != 0)? {
        // FUSE_HANDLE_KILLPRIV_V2: capabilities go with any write, root's as well. Before the kernel takes a write into
        // its cache, it removes them itself.
        Privileges::Keep if !deferred => Privileges::DropCapabilities,
        privileges => privileges,
    };
    let sync = flags.contains(OFlags::SYNC) || before.flags & flags::SYNC != 0;
    let how = WriteFlags {
        // The kernel has resolved where the end is.
        append: false,
        sync,
        dsync: flags.contains(O_DSYNC),
        privileges,
        deferred,
        // The kernel's writeback cache has its own, and sends them. Without it, pages come that were stored into
        // through a mapping, and nobody has set a time.
        keep_times: deferred && s.has(init::WRITEBACK_CACHE),
        caller_syncs: true,
    };
    if handle & HANDLE_BYPASSES != 0 && s.has(init::WRITEBACK_CACHE) {
        s.bypassed.note(ino, || s.volume.getattr(ino).map(|attr| attr.mtime))?;
    }
    if !how.deferred
        && let Some(staged) = s.updates.write(handle, offset, b.rest(size)?, privileges)
    {
        staged.inspect_err(|_| s.updates.fallbacks.begin(handle, h.pid))?;
        out.u32(size)?;
        out.u32(0)?;
        return Ok(Answer::Reply);
    }
    if handle & HANDLE_BYPASSES != 0 {
        s.updates.fallbacks.settle(handle, |opened| s.volume.fsync(opened, false))?;
    }
    let (offset, data) = if how.deferred && before.flags & flags::APPEND != 0 {
        appended(s, ino, before.size, offset, b.bytes(size)?)?
    } else {
        (offset, b.bytes(size)?)
    };
    let volume = if how.deferred { s.volume.with_reserve(handle & HANDLE_RESERVE != 0) } else { s.acting(h) };
    let n = match how.deferred {
        true => write_pages(s, &volume, ino, offset, data, how)?,
        false => volume.write(ino, offset, data, how)?,
    };
    // What an append-only file has already counts as written.
    let n = if how.deferred { size } else { u32::try_from(n).map_err(|_| Fail::of(Errno::IO))? };
    out.u32(n)?;
    out.u32(0)?;
    // The kernel must not run a program with privileges that it has lost.
    let lost = privileges >= Privileges::Drop && before.mode & SET_IDS != 0;
    let stored = how.deferred && !how.keep_times;
    let answer = if lost || stored { Answer::Spoils(ino) } else { Answer::Reply };
    Ok(if n > 0 && (how.sync || how.dsync) { answer.when_durable(ino, None, !how.sync) } else { answer })
}

/// Writes pages of the kernel's cache, all of them: the kernel looks at nothing but the error, so what stopped a
/// write is found by going on. A lack of space is kept for the writer.
fn write_pages(s: &Server, volume: &Volume, ino: Ino, at: u64, data: &[u8], how: WriteFlags) -> Result<usize, Fail> {
    let mut n = 0;
    while n < data.len() {
        n += match volume.write(ino, at + n as u64, &data[n..], how) {
            Ok(0) => return Err(Fail::of(Errno::IO)),
            Ok(more) => more,
            Err(e) => {
                if matches!(e, quire_fs::Error::NoSpace) {
                    s.refused.put(ino, volume.maintenance().free_bytes().0);
                }
                return Err(e.into());
            }
        };
    }
    Ok(n)
}

/// The part of a page of the kernel's cache that an append-only file does not have yet, and its offset. Pages come
/// whole, so they begin with bytes that the file has.
fn appended<'d>(s: &Server, ino: Ino, size: u64, offset: u64, data: &'d [u8]) -> Result<(u64, &'d [u8]), Fail> {
    let known = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX).min(data.len());
    let mut has = vec![0; known];
    let n = s.volume.read(ino, offset, &mut has)?;
    if has[..n] != data[..n] || n < known {
        return Err(Fail::of(Errno::PERM));
    }
    Ok((offset + known as u64, &data[known..]))
}

pub(crate) fn fallocate(s: &Server, h: &Header, b: &mut Body<'_>) -> Result<Answer, Fail> {
    let (ino, handle) = (ino_of(h.node)?, b.u64()?);
    let (offset, len, mode) = (b.u64()?, b.u64()?, FallocateFlags::from_bits_retain(b.u32()?));
    let keep_size = mode.contains(FallocateFlags::KEEP_SIZE);
    let what = match mode - FallocateFlags::KEEP_SIZE {
        FallocateFlags::PUNCH_HOLE if keep_size => Falloc::PunchHole,
        FallocateFlags::ZERO_RANGE => Falloc::ZeroRange { keep_size },
        FallocateFlags::COLLAPSE_RANGE if !keep_size => Falloc::Collapse,
        FallocateFlags::INSERT_RANGE if !keep_size => Falloc::Insert,
        rest if rest.is_empty() => Falloc::Allocate { keep_size },
        _ => return Err(Fail::of(Errno::OPNOTSUPP)),
    };
    let answer = content_changes(s, h, ino)?;
    let by = leaving_commits(&s.acting(h));
    by.fallocate(ino, what, offset, len)?;
    Ok(answer.after_commit(&by, synchronous(s, handle, ino)))
}

/// What has to be durable before the answer to a change of a file's data or map through this handle, other than by
/// WRITE: `O_SYNC`, `O_DSYNC` or the option `sync` ask for it, and the kernel asks for no fsync.
fn synchronous(s: &Server, handle: u64, ino: Ino) -> Option<Need> {
    let asked = handle & HANDLE_SYNC != 0 || s.changing.sync();
    asked.then_some(Need::Files { ino, and: None, data_only: false })
}

/// The block of the device that holds a block of the file, both of the size that the caller counts in; 0: none. The
/// kernel asks for block devices only.
pub(crate) fn bmap(s: &Server, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let ino = ino_of(h.node)?;
    let (block, size) = (b.u64()?, u64::from(b.u32()?));
    let of_fs = u64::try_from(s.volume.superblock().block_size().bytes()).map_err(|_| Fail::of(Errno::INVAL))?;
    if size == 0 || of_fs % size != 0 {
        return Err(Fail::of(Errno::INVAL));
    }
    // What has no block yet gets one, and what is only in the log goes there.
    s.volume.fsync(ino, true)?;
    s.volume.maintenance().checkpoint()?;
    let (wanted, within) = (block / (of_fs / size), block % (of_fs / size));
    let place = s.volume.inspect().place(ino, wanted)?;
    out.u64(place.map_or(0, |place| place * (of_fs / size) + within))?;
    Ok(Answer::Reply)
}

pub(crate) fn lseek(s: &Server, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
    b.skip(8)?;
    let (offset, whence) = (b.u64()?, b.u32()?);
    let what = match whence {
        SEEK_DATA => Seek::Data,
        SEEK_HOLE => Seek::Hole,
        _ => return Err(Fail::of(Errno::INVAL)),
    };
    out.u64(s.volume.seek(ino_of(h.node)?, offset, what)?)?;
    Ok(Answer::Reply)
}

pub(crate) fn copy_file_range(s: &Server, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
    b.skip(8)?;
    let (from, to) = (b.u64()?, ino_of(b.u64()?)?);
    let handle = b.u64()?;
    let (at, len) = (b.u64()?, b.u64()?);
    let (from, to) = (FilePlace { ino: ino_of(h.node)?, offset: from }, FilePlace { ino: to, offset: at });
    if b.u64()? != 0 {
        return Err(Fail::of(Errno::INVAL));
    }
    let answer = content_changes(s, h, to.ino)?;
    let by = leaving_commits(&s.acting(h));
    let n = by.copy_range(from, to, len.min(COPY_STEP))?;
    out.u32(u32::try_from(n).map_err(|_| Fail::of(Errno::IO))?)?;
    out.u32(0)?;
    Ok(answer.after_commit(&by, synchronous(s, handle, to.ino)))
}

/// Takes off what a file loses when others than root change it, where the kernel leaves that to us and does not say
/// who may keep it.
fn content_changes(s: &Server, h: &Header, ino: Ino) -> Result<Answer, Fail> {
    let mode = s.volume.getattr(ino)?.mode;
    let privileges = privileges(s, h, ino, h.uid != 0 && mode & SET_IDS != 0)?;
    if privileges == Privileges::Keep {
        return Ok(Answer::Reply);
    }
    let changed = s.volume.setattr(ino, &SetAttr { privileges, ..SetAttr::default() })?.mode != mode;
    Ok(if changed { Answer::Spoils(ino) } else { Answer::Reply })
}

pub(crate) fn fsync(h: &Header, b: &mut Body<'_>) -> Result<Answer, Fail> {
    b.skip(8)?;
    let data_only = b.u32()? & FSYNC_DATASYNC != 0;
    Ok(Answer::Reply.when_durable(ino_of(h.node)?, None, data_only))
}

/// sync(2) and syncfs(2); only mounts of block devices get it.
pub(crate) fn syncfs() -> Answer {
    Answer::Reply.when(Need::Everything)
}
