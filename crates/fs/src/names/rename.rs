//! Names moved, replaced and exchanged, within a directory and across.

use super::directory::{add_child, directory, pointed_to, remove_child, touch};
use super::unlink::drop_link;
use crate::dir::{self, Entry};
use crate::error::{Error, Result};
use crate::inode::flags::{is_sync, may_add, may_remove};
use crate::inode::{Cred, Inherit, New, NewKind, journaling_mode, make};
use crate::records;
use crate::txn::Op;
use quire_layout::dir::{FileType, is_dot};
use quire_layout::inode::{Inode, Time, mode};
use quire_layout::{Corrupt, Ino, Structure};
use std::collections::HashSet;

/// How to rename (`renameat2`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RenameFlags {
    /// Fail if the new name exists.
    pub no_replace: bool,
    /// Both names must exist; afterwards each means the other's inode.
    pub exchange: bool,
    /// Afterwards the old name means a new character device 0:0 of this user, with which union mounts hide lower names.
    pub whiteout: Option<Cred>,
}

/// A name, its directory, and its entry and inode now.
struct Side<'n> {
    dir: Ino,
    name: &'n [u8],
    entry: Entry,
    inode: Inode,
}

/// The two directories; one, if they are the same.
struct Dirs {
    old: (Ino, Inode),
    /// `None`: the same as `old`.
    new: Option<(Ino, Inode)>,
}

impl Dirs {
    fn read(op: &mut Op<'_>, old: Ino, new: Ino) -> Result<Self> {
        let first = directory(op, old)?;
        let second = if new == old { None } else { Some((new, directory(op, new)?)) };
        Ok(Dirs { old: (old, first), new: second })
    }

    fn source(&mut self) -> &mut Inode {
        &mut self.old.1
    }

    fn target(&mut self) -> &mut Inode {
        match &mut self.new {
            Some((_, inode)) => inode,
            None => &mut self.old.1,
        }
    }

    fn differ(&self) -> bool {
        self.new.is_some()
    }

    fn write(&mut self, op: &mut Op<'_>) -> Result<bool> {
        let mut sync = false;
        for (ino, inode) in std::iter::once(&mut self.old).chain(&mut self.new) {
            touch(op, inode);
            records::put_inode(op, *ino, inode)?;
            sync |= is_sync(inode);
        }
        Ok(sync)
    }
}

fn find<'n>(op: &mut Op<'_>, dir: Ino, inode: &Inode, name: &'n [u8]) -> Result<Option<Side<'n>>> {
    let Some(entry) = dir::lookup(op, dir, inode, name)? else { return Ok(None) };
    let inode = pointed_to(op, dir, entry.ino)?;
    Ok(Some(Side { dir, name, entry, inode }))
}

/// What a rename leaves to do.
pub(crate) struct Renamed {
    /// The inode that lost its last name and has no references: the caller evicts it after the operation.
    pub evict: Option<Ino>,
    /// One of the directories asks for durable changes.
    pub sync: bool,
}

/// Refuses names and flags with which no rename is possible.
///
/// # Errors
/// Invalid: `exchange` with another flag. Busy: `.` and `..`.
pub(crate) fn check_rename(name: &[u8], new_name: &[u8], flags: RenameFlags) -> Result<()> {
    if flags.exchange && (flags.no_replace || flags.whiteout.is_some()) {
        return Err(Error::Invalid("exchange replaces, and leaves no name"));
    }
    if [name, new_name].iter().any(|n| is_dot(n)) {
        return Err(Error::Busy("the names . and .. stay".into()));
    }
    Ok(())
}

/// Moves a name: to another one, to another directory, over an existing one, or exchanges two.
///
/// *Relies on*: the caller has written back the data of the inodes, so that a file renamed over another is never found
/// empty after a crash (F10).
///
/// # Errors
/// Not found; exists (`no_replace`); is a directory, not a directory, not empty (the name that would be replaced);
/// invalid (below itself); too many links; no space, no inodes (whiteout); not permitted (immutable, append-only); name
/// too long; read-only; corrupt; miss.
pub(crate) fn rename(op: &mut Op<'_>, from: (Ino, &[u8]), to: (Ino, &[u8]), flags: RenameFlags) -> Result<Renamed> {
    let ((parent, name), (new_parent, new_name)) = (from, to);
    let mut dirs = Dirs::read(op, parent, new_parent)?;
    let source = find(op, parent, dirs.source(), name)?.ok_or(Error::NotFound)?;
    let target = find(op, new_parent, dirs.target(), new_name)?;
    match target {
        Some(_) if flags.no_replace => Err(Error::Exists),
        None if flags.exchange => Err(Error::NotFound),
        // Two names of one inode: POSIX says that nothing happens.
        Some(t) if t.entry.ino == source.entry.ino => Ok(Renamed { evict: None, sync: false }),
        Some(t) if flags.exchange => {
            journaling_mode::note_name(op, source.entry.ino, new_name);
            journaling_mode::note_name(op, t.entry.ino, name);
            exchange(op, dirs, source, t).map(|sync| Renamed { evict: None, sync })
        }
        target => {
            journaling_mode::note_name(op, source.entry.ino, new_name);
            replace(op, dirs, source, target, to, flags.whiteout)
        }
    }
}

/// Moves `source` to the new name; an inode that had the new name loses a link.
fn replace(
    op: &mut Op<'_>,
    mut dirs: Dirs,
    mut source: Side<'_>,
    target: Option<Side<'_>>,
    (new_parent, new_name): (Ino, &[u8]),
    whiteout: Option<Cred>,
) -> Result<Renamed> {
    may_remove(dirs.source(), &source.inode)?;
    check_not_below(op, &dirs, new_parent, &source)?;
    match &target {
        Some(t) => check_replaceable(op, &source, t, dirs.target())?,
        None => may_add(dirs.target())?,
    }
    let is_dir = source.inode.is_dir();
    if is_dir {
        remove_child(dirs.source());
        // A directory that is replaced is counted already.
        if target.is_none() {
            add_child(op, dirs.target())?;
        }
        if dirs.differ() {
            move_dotdot(op, &mut source, new_parent)?;
        }
    }
    let (ino, file_type) = (source.entry.ino, FileType::from_mode(source.inode.mode()));
    let mut evict = None;
    match target {
        Some(mut t) => {
            dir::replace(op, new_parent, dirs.target(), new_name, ino, file_type)?;
            if drop_link(op, t.entry.ino, &mut t.inode)? {
                evict = Some(t.entry.ino);
            }
        }
        None => dir::add(op, new_parent, dirs.target(), new_name, ino, file_type, op.pool())?,
    }
    match whiteout {
        Some(cred) => {
            let kind = NewKind::Node { file_type: mode::CHR, device: (0, 0) };
            let new = New { kind, mode: 0, umask: 0, cred };
            let (white, _) = make(op, (source.dir, dirs.source()), &new, Inherit::All)?;
            dir::replace(op, source.dir, dirs.source(), source.name, white, FileType::CharDevice)?;
        }
        None => drop(dir::remove(op, source.dir, dirs.source(), source.name)?),
    }
    moved(op, &mut source)?;
    Ok(Renamed { evict, sync: dirs.write(op)? })
}

/// Has two names mean each other's inode. Returns whether a directory asks for durable changes.
fn exchange(op: &mut Op<'_>, mut dirs: Dirs, mut a: Side<'_>, mut b: Side<'_>) -> Result<bool> {
    may_remove(dirs.source(), &a.inode)?;
    may_remove(dirs.target(), &b.inode)?;
    check_not_below(op, &dirs, b.dir, &a)?;
    check_not_below(op, &dirs, a.dir, &b)?;
    let types = [&a, &b].map(|s| FileType::from_mode(s.inode.mode()));
    dir::replace(op, a.dir, dirs.source(), a.name, b.entry.ino, types[1])?;
    dir::replace(op, b.dir, dirs.target(), b.name, a.entry.ino, types[0])?;
    if dirs.differ() {
        if a.inode.is_dir() {
            move_dotdot(op, &mut a, b.dir)?;
        }
        if b.inode.is_dir() {
            move_dotdot(op, &mut b, a.dir)?;
        }
        match (a.inode.is_dir(), b.inode.is_dir()) {
            (true, false) => {
                remove_child(dirs.source());
                add_child(op, dirs.target())?;
            }
            (false, true) => {
                remove_child(dirs.target());
                add_child(op, dirs.source())?;
            }
            _ => {}
        }
    }
    moved(op, &mut a)?;
    moved(op, &mut b)?;
    dirs.write(op)
}

fn move_dotdot(op: &mut Op<'_>, side: &mut Side<'_>, parent: Ino) -> Result<()> {
    dir::set_parent(op, side.entry.ino, &mut side.inode, parent)
}

/// Sets the change time of an inode whose name has changed.
fn moved(op: &mut Op<'_>, side: &mut Side<'_>) -> Result<()> {
    side.inode.set_time(Time::Change, op.now());
    records::put_inode(op, side.entry.ino, &mut side.inode)
}

fn check_replaceable(op: &mut Op<'_>, source: &Side<'_>, target: &Side<'_>, dir: &Inode) -> Result<()> {
    match (source.inode.is_dir(), target.inode.is_dir()) {
        (true, false) => return Err(Error::NotDir),
        (false, true) => return Err(Error::IsDir),
        _ => {}
    }
    may_remove(dir, &target.inode)?;
    if target.inode.is_dir() && !dir::is_empty(op, target.entry.ino, &target.inode)? {
        return Err(Error::NotEmpty);
    }
    Ok(())
}

/// N7: a directory must not move into itself or into a directory below it.
fn check_not_below(op: &mut Op<'_>, dirs: &Dirs, to: Ino, moving: &Side<'_>) -> Result<()> {
    if !dirs.differ() || !moving.inode.is_dir() {
        return Ok(());
    }
    let (mut at, mut seen) = (to, HashSet::new());
    loop {
        if at == moving.entry.ino {
            return Err(Error::Invalid("a directory below itself"));
        }
        if at == Ino::ROOT {
            return Ok(());
        }
        if !seen.insert(at) {
            return Err(Corrupt::new(Structure::DirectoryBlock, "parents go in a circle").of(at.0).into());
        }
        let inode = directory(op, at)?;
        at = dir::parent(op, at, &inode)?;
    }
}
