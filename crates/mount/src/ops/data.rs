//! File data: READ, WRITE, FALLOCATE, LSEEK, COPY_FILE_RANGE, FSYNC, SYNCFS.

use crate::fail::Fail;
use crate::server::{Answer, Server, ino_of};
use crate::wire::abi::{FSYNC_DATASYNC, HANDLE_RESERVE, init, write as write_bits};
use crate::wire::{Body, Header, Out};
use quire_fs::{Falloc, FilePlace, Privileges, Seek, SetAttr, Volume, WriteFlags};
use quire_layout::Ino;
use quire_layout::inode::flags;
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

/// Largest answer of one COPY_FILE_RANGE, in bytes; the caller asks again for the rest.
const COPY_STEP: u64 = 16 << 20;
const SEEK_DATA: u32 = 3;
const SEEK_HOLE: u32 = 4;

/// Set-user-id and set-group-id.
const SET_IDS: u16 = 0o6000;

impl Server {
    pub(crate) fn read(&self, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
        let ino = ino_of(h.node)?;
        b.skip(8)?; // file handle
        let (offset, size) = (b.u64()?, b.u32()?);
        b.skip(4 + 8)?; // flags of the read, lock owner
        let flags = OFlags::from_bits_retain(b.u32()?);
        let buf = out.space(usize::try_from(size).map_err(|_| Fail::of(Errno::INVAL))?)?;
        let n = self.volume.read(ino, offset, buf)?;
        out.truncate(n);
        if !flags.contains(OFlags::NOATIME) {
            self.touch_atime(ino);
        }
        Ok(Answer::Reply)
    }

    /// Reading counts as access, by the rules of the mount. Never a reason to fail.
    pub(crate) fn touch_atime(&self, ino: Ino) {
        if self.manner.no_atime {
            return;
        }
        if let Err(e) = self.volume.touch_atime(ino) {
            tracing::debug!("access time of inode {}: {e}", ino.0);
        }
    }

    pub(crate) fn write(&self, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
        let ino = ino_of(h.node)?;
        let handle = b.u64()?;
        let (offset, size, bits) = (b.u64()?, b.u32()?, b.u32()?);
        b.skip(8)?;
        let flags = OFlags::from_bits_retain(b.u32()?);
        b.skip(4)?;
        let before = self.volume.getattr(ino)?;
        let privileges = self.privileges(h, ino, bits & write_bits::KILL_SUIDGID != 0)?;
        let how = WriteFlags {
            // The kernel has resolved where the end is.
            append: false,
            sync: flags.contains(OFlags::SYNC),
            dsync: flags.contains(OFlags::DSYNC),
            privileges,
            deferred: bits & write_bits::CACHE != 0,
        };
        let (offset, data) = if how.deferred && before.flags & flags::APPEND != 0 {
            self.appended(ino, before.size, offset, b.bytes(size)?)?
        } else {
            (offset, b.bytes(size)?)
        };
        let volume = if how.deferred { self.volume.with_reserve(handle & HANDLE_RESERVE != 0) } else { self.acting(h) };
        let n = match how.deferred {
            true => self.write_pages(&volume, ino, offset, data, how)?,
            false => volume.write(ino, offset, data, how)?,
        };
        // What an append-only file has already counts as written.
        let n = if how.deferred { size } else { u32::try_from(n).map_err(|_| Fail::of(Errno::IO))? };
        out.u32(n)?;
        out.u32(0)?;
        // The kernel must not run a program with privileges that it has lost.
        let lost = privileges != Privileges::Keep && before.mode & SET_IDS != 0;
        // Without the writeback cache, pages that were stored into through a mapping come so: the times are ours.
        let stored = how.deferred && !self.has(init::WRITEBACK_CACHE);
        Ok(if lost || stored { Answer::Spoils(ino) } else { Answer::Reply })
    }

    /// Writes pages of the kernel's cache, all of them: the kernel looks at nothing but the error, so what stopped a
    /// write is found by going on. A lack of space is kept for the writer.
    fn write_pages(&self, volume: &Volume, ino: Ino, at: u64, data: &[u8], how: WriteFlags) -> Result<usize, Fail> {
        let mut n = 0;
        while n < data.len() {
            n += match volume.write(ino, at + n as u64, &data[n..], how) {
                Ok(0) => return Err(Fail::of(Errno::IO)),
                Ok(more) => more,
                Err(e) => {
                    if matches!(e, quire_fs::Error::NoSpace) {
                        self.refused.put(ino, volume.maintenance().free_bytes().0);
                    }
                    return Err(e.into());
                }
            };
        }
        Ok(n)
    }

    /// The part of a page of the kernel's cache that an append-only file does not have yet, and its offset. Pages come
    /// whole, so they begin with bytes that the file has.
    fn appended<'d>(&self, ino: Ino, size: u64, offset: u64, data: &'d [u8]) -> Result<(u64, &'d [u8]), Fail> {
        let known = usize::try_from(size.saturating_sub(offset)).unwrap_or(usize::MAX).min(data.len());
        let mut has = vec![0; known];
        let n = self.volume.read(ino, offset, &mut has)?;
        if has[..n] != data[..n] || n < known {
            return Err(Fail::of(Errno::PERM));
        }
        Ok((offset + known as u64, &data[known..]))
    }

    pub(crate) fn fallocate(&self, h: &Header, b: &mut Body<'_>) -> Result<Answer, Fail> {
        let ino = ino_of(h.node)?;
        b.skip(8)?;
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
        let answer = self.content_changes(h, ino)?;
        self.acting(h).fallocate(ino, what, offset, len)?;
        Ok(answer)
    }

    /// The block of the device that holds a block of the file, both of the size that the caller counts in; 0: none. The
    /// kernel asks for block devices only.
    pub(crate) fn bmap(&self, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
        let ino = ino_of(h.node)?;
        let (block, size) = (b.u64()?, u64::from(b.u32()?));
        let of_fs = u64::try_from(self.volume.superblock().block_size().bytes()).map_err(|_| Fail::of(Errno::INVAL))?;
        if size == 0 || of_fs % size != 0 {
            return Err(Fail::of(Errno::INVAL));
        }
        // What has no block yet gets one, and what is only in the log goes there.
        self.volume.fsync(ino, true)?;
        self.volume.maintenance().checkpoint()?;
        let (wanted, within) = (block / (of_fs / size), block % (of_fs / size));
        let place = self.volume.inspect().place(ino, wanted)?;
        out.u64(place.map_or(0, |place| place * (of_fs / size) + within))?;
        Ok(Answer::Reply)
    }

    pub(crate) fn lseek(&self, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
        b.skip(8)?;
        let (offset, whence) = (b.u64()?, b.u32()?);
        let what = match whence {
            SEEK_DATA => Seek::Data,
            SEEK_HOLE => Seek::Hole,
            _ => return Err(Fail::of(Errno::INVAL)),
        };
        out.u64(self.volume.seek(ino_of(h.node)?, offset, what)?)?;
        Ok(Answer::Reply)
    }

    pub(crate) fn copy_file_range(&self, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
        b.skip(8)?;
        let (from, to) = (b.u64()?, ino_of(b.u64()?)?);
        b.skip(8)?;
        let (at, len) = (b.u64()?, b.u64()?);
        let (from, to) = (FilePlace { ino: ino_of(h.node)?, offset: from }, FilePlace { ino: to, offset: at });
        if b.u64()? != 0 {
            return Err(Fail::of(Errno::INVAL));
        }
        let answer = self.content_changes(h, to.ino)?;
        let n = self.acting(h).copy_range(from, to, len.min(COPY_STEP))?;
        out.u32(u32::try_from(n).map_err(|_| Fail::of(Errno::IO))?)?;
        out.u32(0)?;
        Ok(answer)
    }

    /// Takes off what a file loses when others than root change it, where the kernel leaves that to us and does not say
    /// who may keep it.
    fn content_changes(&self, h: &Header, ino: Ino) -> Result<Answer, Fail> {
        let mode = self.volume.getattr(ino)?.mode;
        let privileges = self.privileges(h, ino, h.uid != 0 && mode & SET_IDS != 0)?;
        if privileges == Privileges::Keep {
            return Ok(Answer::Reply);
        }
        let changed = self.volume.setattr(ino, &SetAttr { privileges, ..SetAttr::default() })?.mode != mode;
        Ok(if changed { Answer::Spoils(ino) } else { Answer::Reply })
    }

    pub(crate) fn fsync(&self, h: &Header, b: &mut Body<'_>) -> Result<Answer, Fail> {
        b.skip(8)?;
        let data_only = b.u32()? & FSYNC_DATASYNC != 0;
        Ok(Answer::WhenDurable { ino: ino_of(h.node)?, data_only })
    }

    /// sync(2) and syncfs(2); only mounts of block devices get it.
    pub(crate) fn syncfs(&self) -> Result<Answer, Fail> {
        self.volume.sync()?;
        Ok(Answer::Reply)
    }
}
