//! READDIR and READDIRPLUS. A directory has no open state: the cookie of an entry says where to go on.

use crate::fail::Fail;
use crate::policy::NAMES_VALID;
use crate::server::{Answer, Server, ino_of};
use crate::wire::reply::{Dirent, Plus};
use crate::wire::{Body, Header, Out};
use quire_fs::{Attributes, DirItem};
use quire_layout::Ino;
use quire_layout::dir::{FileType, is_dot};
use rustix::fs::OFlags;
use rustix::io::Errno;

/// The fields of `fuse_read_in` that count: where to go on, room in the reply, and whether the directory was opened
/// with O_NOATIME.
fn request(b: &mut Body<'_>) -> Result<(u64, usize, bool), Fail> {
    b.skip(8)?;
    let (cookie, size) = (b.u64()?, b.u32()?);
    b.skip(12)?; // flags of the read, lock owner
    let flags = OFlags::from_bits_retain(b.u32()?);
    let room = usize::try_from(size).map_err(|_| Fail::of(Errno::INVAL))?;
    Ok((cookie, room, flags.contains(OFlags::NOATIME)))
}

pub(crate) fn readdir(s: &Server, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let (cookie, room, no_atime) = request(b)?;
    let dir = ino_of(h.node)?;
    let done = s.volume_for(h).readdir(dir, cookie, &mut |item| out.dirent(&dirent(&item), Plus::Off, room));
    listed(s, dir, no_atime, done, out)
}

pub(crate) fn readdirplus(s: &Server, h: &Header, b: &mut Body<'_>, out: &mut Out<'_>) -> Result<Answer, Fail> {
    let (cookie, room, no_atime) = request(b)?;
    let dir = ino_of(h.node)?;
    // What the kernel knows already it need not be told again: going through its caches for it costs more than the
    // listing.
    let done = s.volume_for(h).readdir_plus(dir, cookie, Attributes::Unreferenced, &mut |item, attr| {
        let plus = match &attr {
            Some(a) if !is_dot(item.name) => Plus::Entry(a, NAMES_VALID, s.valid(a)),
            _ => Plus::Nameless,
        };
        out.dirent(&dirent(&item), plus, room)
    });
    listed(s, dir, no_atime, done, out)
}

/// An error after some names is told when the kernel asks for the rest: the references given so far count.
fn listed(s: &Server, dir: Ino, no_atime: bool, done: Result<(), quire_fs::Error>, out: &Out) -> Result<Answer, Fail> {
    match done {
        Err(e) if out.body_len() == 0 => Err(e.into()),
        _ => {
            if !no_atime && !s.changing.no_dir_atime() {
                s.touch_atime(dir);
            }
            Ok(Answer::Reply)
        }
    }
}

fn dirent<'a>(item: &DirItem<'a>) -> Dirent<'a> {
    // `DT_*` of readdir(3).
    let kind = match item.file_type {
        FileType::Unknown => 0,
        FileType::Fifo => 1,
        FileType::CharDevice => 2,
        FileType::Directory => 4,
        FileType::BlockDevice => 6,
        FileType::Regular => 8,
        FileType::Symlink => 10,
        FileType::Socket => 12,
    };
    Dirent { ino: u64::from(item.ino.0), cookie: item.next_cookie, kind, name: item.name }
}
