//! Names moved, replaced and exchanged, within a directory and across.

use super::unlink::drop_link;
use super::{add_child, directory, pointed_to, remove_child, touch};
use crate::dir::{self, Entry};
use crate::error::{Error, Result};
use crate::flags::{is_sync, may_add, may_remove};
use crate::inode_ops::{Cred, New, NewKind, make};
use crate::op::Op;
use crate::volume::Volume;
use quire_layout::dir::{FileType, is_dot};
use quire_layout::inode::{Inode, Time, mode};
use quire_layout::{Corrupt, Ino, Structure};
use std::collections::HashSet;

/// How to rename (`renameat2`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RenameFlags {
    /// Fail if the new name exists.
    pub no_replace: bool,
    /// Both names exist, and each means the other's inode afterwards.
    pub exchange: bool,
    /// The old name means a new character device 0:0 afterwards, as union mounts hide what lies below; made by this user.
    pub whiteout: Option<Cred>,
}

/// A name, its directory, and what it means now.
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
            op.put_inode(*ino, inode)?;
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

impl Volume {
    /// Moves a name: to another one, to another directory, over an existing one, or exchanges two. Data of the inodes that
    /// is not on disk yet is written back first, so that a file renamed over another is never found empty.
    ///
    /// # Errors
    /// Not found; exists (`no_replace`); is a directory, not a directory, not empty (what would be replaced); invalid (below
    /// itself; `.` and `..`); too many links; no space, no inodes (whiteout); not permitted (immutable, append-only); name too long; corrupt, I/O,
    /// read-only.
    pub fn rename(&self, parent: Ino, name: &[u8], new_parent: Ino, new_name: &[u8], flags: RenameFlags) -> Result<()> {
        if flags.exchange && (flags.no_replace || flags.whiteout.is_some()) {
            return Err(Error::Invalid("exchange replaces, and leaves no name"));
        }
        if [name, new_name].iter().any(|n| is_dot(n)) {
            return Err(Error::Busy("the names . and .. stay".into()));
        }
        self.write_back_pending(self.resolve(parent, name)?)?;
        if flags.exchange {
            self.write_back_pending(self.resolve(new_parent, new_name)?)?;
        }
        let ((evict, sync), tid) = self.run_tid(|op| {
            let mut dirs = Dirs::read(op, parent, new_parent)?;
            let source = find(op, parent, dirs.source(), name)?.ok_or(Error::NotFound)?;
            let target = find(op, new_parent, dirs.target(), new_name)?;
            match target {
                Some(_) if flags.no_replace => Err(Error::Exists),
                None if flags.exchange => Err(Error::NotFound),
                // Two names of one inode: POSIX says that nothing happens.
                Some(t) if t.entry.ino == source.entry.ino => Ok((None, false)),
                Some(t) if flags.exchange => {
                    op.note_name(source.entry.ino, new_name);
                    op.note_name(t.entry.ino, name);
                    exchange(op, dirs, source, t).map(|sync| (None, sync))
                }
                target => {
                    op.note_name(source.entry.ino, new_name);
                    replace(op, dirs, source, target, (new_parent, new_name), flags.whiteout)
                }
            }
        })?;
        if let Some(ino) = evict {
            self.evict(ino);
        }
        self.settle(sync, tid)
    }
}

/// Moves `source` to the new name; what that named loses a link. Gives the inode to evict, and if the change is to be
/// durable at once.
fn replace(
    op: &mut Op<'_>,
    mut dirs: Dirs,
    mut source: Side<'_>,
    target: Option<Side<'_>>,
    (new_parent, new_name): (Ino, &[u8]),
    whiteout: Option<Cred>,
) -> Result<(Option<Ino>, bool)> {
    may_remove(dirs.source(), &source.inode)?;
    check_not_below(op, &dirs, new_parent, &source)?;
    match &target {
        Some(t) => check_replaceable(op, &source, t, dirs.target())?,
        None => may_add(dirs.target())?,
    }
    let is_dir = source.inode.is_dir();
    if is_dir {
        remove_child(dirs.source());
        // One that is replaced made its directory count already.
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
            let (white, _) = make(op, source.dir, dirs.source(), &new)?;
            dir::replace(op, source.dir, dirs.source(), source.name, white, FileType::CharDevice)?;
        }
        None => drop(dir::remove(op, source.dir, dirs.source(), source.name)?),
    }
    moved(op, &mut source)?;
    Ok((evict, dirs.write(op)?))
}

/// Lets two names mean each other's inode.
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
    dir::set_parent(op, side.entry.ino, &side.inode, parent)
}

/// Notes on the inode that its name has changed.
fn moved(op: &mut Op<'_>, side: &mut Side<'_>) -> Result<()> {
    side.inode.set_time(Time::Change, op.now());
    op.put_inode(side.entry.ino, &mut side.inode)
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

/// N7: a directory that moves to another one must not be that one, nor above it.
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
