//! Names: LOOKUP, the creation of every kind of inode, UNLINK, RMDIR, RENAME, LINK, READLINK, OPEN.

use super::attr::low16;
use crate::fail::Fail;
use crate::server::{Answer, Server, VALID, ino_of};
use crate::wire::abi::{HANDLE_RESERVE, HANDLE_WRITES, init};
use crate::wire::reply::decode_device;
use crate::wire::{Body, Header, Out};
use quire_fs::{Attr, Cred, Error, New, NewKind, Privileges, RenameFlags, SetAttr};
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

impl Server {
    pub(crate) fn lookup(&self, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
        let (parent, name) = (ino_of(h.node)?, b.name()?);
        let found = match name {
            // Only for file handles (NFS): any inode by its number.
            b"." => self.volume.lookup_ino(parent),
            _ => self.volume.lookup(parent, name),
        };
        match found {
            Ok(attr) => self.entry(&attr, out),
            // A node number of zero: the kernel remembers that there is nothing.
            Err(Error::NotFound) => {
                out.u64(0)?;
                out.u64(0)?;
                out.u64(VALID.as_secs())?;
                out.bytes(&[0; 128 - 24])?;
                Ok(Answer::Reply)
            }
            Err(e) => Err(e.into()),
        }
    }

    fn entry(&self, attr: &Attr, out: &mut Out<'_>) -> Result<Answer, Fail> {
        out.entry(attr, VALID, self.valid(attr))?;
        Ok(Answer::Gives(attr.ino))
    }

    /// Creates an inode; the caller gets one reference.
    fn make(&self, h: &Header, name: &[u8], kind: NewKind<'_>, mode: u32, umask: u32) -> Result<Attr, Fail> {
        let parent = ino_of(h.node)?;
        let attr = self.acting(h).create(parent, name, &new_of(h, kind, mode, umask))?;
        self.after_change(&[parent]).inspect_err(|_| self.forget(attr.ino, 1))?;
        Ok(attr)
    }

    /// With `dirsync`, makes changed directories durable.
    fn after_change(&self, dirs: &[Ino]) -> Result<(), Fail> {
        if self.manner.dir_sync {
            dirs.iter().try_for_each(|dir| self.volume.fsync(*dir, false))?;
        }
        Ok(())
    }

    pub(crate) fn mknod(&self, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
        let (mode, rdev, umask) = (b.u32()?, b.u32()?, b.u32()?);
        b.skip(4)?;
        let kind = match low16(mode) & mode::FMT {
            mode::REG | 0 => NewKind::File,
            file_type => NewKind::Node { file_type, device: decode_device(rdev) },
        };
        let attr = self.make(h, b.name()?, kind, mode, umask)?;
        self.entry(&attr, out)
    }

    pub(crate) fn mkdir(&self, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
        let (mode, umask) = (b.u32()?, b.u32()?);
        let attr = self.make(h, b.name()?, NewKind::Dir, mode, umask)?;
        self.entry(&attr, out)
    }

    pub(crate) fn symlink(&self, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
        let (name, target) = (b.name()?, b.name()?);
        let attr = self.make(h, name, NewKind::Symlink(target), 0o777, 0)?;
        self.entry(&attr, out)
    }

    pub(crate) fn create(&self, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
        let (_flags, mode, umask, _open_flags) = (b.u32()?, b.u32()?, b.u32()?, b.u32()?);
        let attr = self.make(h, b.name()?, NewKind::File, mode, umask)?;
        self.writers.opened(attr.ino);
        self.openers.opened(attr.ino);
        let answer = self.entry(&attr, out)?;
        self.opened(h, true, attr.flags, out)?;
        Ok(answer)
    }

    /// A file without a name: the one that the request has is none.
    pub(crate) fn tmpfile(&self, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
        let (_flags, mode, umask) = (b.u32()?, b.u32()?, b.u32()?);
        let attr = self.acting(h).create_unnamed(ino_of(h.node)?, &new_of(h, NewKind::File, mode, umask))?;
        self.writers.opened(attr.ino);
        self.openers.opened(attr.ino);
        let answer = self.entry(&attr, out)?;
        self.opened(h, true, attr.flags, out)?;
        Ok(answer)
    }

    /// Only what the kernel cannot know of is checked: immutable and append-only files.
    pub(crate) fn open(&self, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
        let (flags, open_flags) = (OFlags::from_bits_retain(b.u32()?), b.u32()?);
        let ino = ino_of(h.node)?;
        let truncates = flags.contains(OFlags::TRUNC);
        let mut i_flags = 0;
        if writes(flags) || truncates {
            i_flags = self.volume.inode_flags().get(ino)?;
            let blocked = i_flags & inode_flags::IMMUTABLE != 0
                || i_flags & inode_flags::APPEND != 0 && (truncates || !flags.contains(OFlags::APPEND));
            if blocked {
                return Err(Fail::of(Errno::PERM));
            }
        }
        let mut answer = Answer::Reply;
        if truncates {
            let privileges = self.privileges(h, ino, open_flags & OPEN_KILL_SUIDGID != 0)?;
            self.acting(h).setattr(ino, &SetAttr { size: Some(0), privileges, ..SetAttr::default() })?;
            if privileges != Privileges::Keep {
                answer = Answer::Spoils(ino);
            }
        }
        if writes(flags) {
            self.writers.opened(ino);
        }
        self.openers.opened(ino);
        self.opened(h, writes(flags), i_flags, out)?;
        Ok(answer)
    }

    pub(crate) fn release(&self, h: &Header, b: &mut Body<'_>) -> Result<Answer, Fail> {
        b.skip(8)?;
        let ino = ino_of(h.node)?;
        if writes(OFlags::from_bits_retain(b.u32()?)) && self.writers.closed(ino) {
            self.refused.forget(ino);
        }
        self.openers.closed(ino);
        Ok(Answer::Reply)
    }

    pub(crate) fn unlink(&self, h: &Header, b: &mut Body<'_>) -> Result<Answer, Fail> {
        let (parent, name) = (ino_of(h.node)?, b.name()?);
        self.volume.unlink(parent, name)?;
        self.after_change(&[parent])?;
        Ok(Answer::Reply)
    }

    pub(crate) fn rmdir(&self, h: &Header, b: &mut Body<'_>) -> Result<Answer, Fail> {
        let (parent, name) = (ino_of(h.node)?, b.name()?);
        self.volume.rmdir(parent, name)?;
        self.after_change(&[parent])?;
        Ok(Answer::Reply)
    }

    pub(crate) fn rename(&self, h: &Header, b: &mut Body<'_>, has_flags: bool) -> Result<Answer, Fail> {
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
        self.acting(h).rename(old, name, new, new_name, flags)?;
        self.after_change(&[old, new])?;
        Ok(Answer::Reply)
    }

    pub(crate) fn link(&self, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
        let (parent, ino) = (ino_of(h.node)?, ino_of(b.u64()?)?);
        let attr = self.acting(h).link(ino, parent, b.name()?)?;
        self.after_change(&[parent]).inspect_err(|_| self.forget(ino, 1))?;
        self.entry(&attr, out)
    }

    /// `fuse_open_out`. The handle says whether who opened the file may use reserved blocks: what the kernel's cache
    /// holds is written later, with a handle, in nobody's name.
    ///
    /// Writes to a synchronous or append-only file go past the kernel's cache: only so is each durable when it returns,
    /// and only so is it known what it appends. The same when the disk is nearly full: each write is told whether it
    /// fits.
    fn opened(&self, h: &Header, writes: bool, i_flags: u32, out: &mut Out<'_>) -> Result<(), Fail> {
        let may = self.volume.may_use_reserve(Cred { uid: h.uid, gid: h.gid });
        out.u64(if may { HANDLE_RESERVE } else { 0 } | if writes { HANDLE_WRITES } else { 0 })?;
        let uncached = i_flags & (inode_flags::SYNC | inode_flags::APPEND) != 0 || writes && self.goes_through(may);
        out.u32(if uncached { KEEP_CACHE | DIRECT_IO } else { KEEP_CACHE })?;
        out.u32(0)
    }

    /// True if a file that is opened for writing now should bypass the kernel's writeback cache. Before the kernel can
    /// map such a file, it stays cached.
    fn goes_through(&self, may_use_reserve: bool) -> bool {
        if !self.has(init::WRITEBACK_CACHE) || !self.has(init::DIRECT_IO_ALLOW_MMAP) {
            return false;
        }
        let (free, total) = self.volume.with_reserve(may_use_reserve).maintenance().free_bytes();
        quire_fs::nearly_full(free, total)
    }

    pub(crate) fn readlink(&self, h: &Header, out: &mut Out<'_>) -> Result<Answer, Fail> {
        let ino = ino_of(h.node)?;
        let target = self.volume.readlink(ino)?;
        self.touch_atime(ino);
        out.bytes(&target)?;
        Ok(Answer::Reply)
    }
}

/// What the caller of a request makes.
fn new_of<'a>(h: &Header, kind: NewKind<'a>, mode: u32, umask: u32) -> New<'a> {
    let cred = Cred { uid: h.uid, gid: h.gid };
    New { kind, mode: low16(mode) & 0o7777, umask: low16(umask) & 0o777, cred }
}

fn writes(flags: OFlags) -> bool {
    flags.intersects(OFlags::WRONLY | OFlags::RDWR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Manner;
    use crate::wire::abi::opcode;
    use crate::wire::request::HEADER;
    use quire_device::sync::Arc;
    use quire_device::{FileDevice, OpenOptions, SystemClock};
    use quire_fs::{Devices, Options, Volume};

    /// A request for a name in the root directory.
    fn request(op: u32, name: &[u8]) -> Vec<u8> {
        let mut r = vec![0; HEADER];
        let len = u32::try_from(HEADER + name.len() + 1).unwrap();
        r[..4].copy_from_slice(&len.to_ne_bytes());
        r[4..8].copy_from_slice(&op.to_ne_bytes());
        r[16..24].copy_from_slice(&1u64.to_ne_bytes());
        r.extend_from_slice(name);
        r.push(0);
        r
    }

    fn answered(server: &Server, request: &[u8]) {
        let mut body = Body::new(request);
        let (header, mut buf) = (body.header().unwrap(), [0; 256]);
        let answer = server.answer(&header, body, &mut Out::new(&mut buf));
        assert!(matches!(answer, Ok(Answer::Reply)), "{answer:?}");
    }

    #[test]
    fn with_dirsync_a_removal_is_durable_when_it_is_answered() {
        let image = tempfile::NamedTempFile::new().unwrap();
        let made =
            std::process::Command::new("mke2fs").args(["-q", "-t", "ext4"]).arg(image.path()).arg("16M").status();
        assert!(made.unwrap().success());
        let open = || {
            let device = Arc::new(FileDevice::open(image.path(), OpenOptions::default()).unwrap());
            Volume::open(Devices::one(device), Arc::new(SystemClock), Options::default()).unwrap()
        };
        for dir_sync in [false, true] {
            let volume = open();
            let cred = Cred { uid: 0, gid: 0 };
            for (name, kind) in [(b"f", NewKind::File), (b"d", NewKind::Dir)] {
                match volume.create(Ino::ROOT, name, &New { kind, mode: 0o700, umask: 0, cred }) {
                    Ok(_) | Err(quire_fs::Error::Exists) => {}
                    Err(e) => panic!("{e}"),
                }
            }
            volume.sync().unwrap();
            let manner = Manner { dir_sync, ..Manner::default() };
            let server = Server::new(volume, manner, Box::new(|_| String::new()));
            answered(&server, &request(opcode::UNLINK, b"f"));
            answered(&server, &request(opcode::RMDIR, b"d"));
            // No unmount: what was not committed is lost.
            drop(server);
            let after = open();
            for name in [b"f", b"d"] {
                assert_eq!(after.lookup(Ino::ROOT, name).is_ok(), !dir_sync, "dirsync {dir_sync}");
            }
            after.close().unwrap();
        }
    }
}
