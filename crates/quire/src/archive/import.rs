//! Entries into an image.
//!
//! *Guarantees* I1: nothing outside of the import's root is touched. Directories on the way to a name are looked up one
//! by one; a symbolic link among them is followed inside of the root, and refused if it leads out of it. The last name
//! is never followed. I2: memory does not grow with the data; it grows with the number of directories and, in a layer,
//! of inodes.

use super::acl_text;
use super::entry::{Data, Entry, Kind, Sink, joined};
use super::image_xattrs;
use super::known_dirs::KnownDirs;
use super::options::ImportOptions;
use super::progress::Progress;
use super::source::Source;
use crate::dir::Dir;
use crate::error::{Error, ErrorKind, Result};
use crate::fs::FileSystem;
use crate::metadata::{Timestamp, check_owner, permission_bits};
use crate::resolve::is_child_of;
use crate::shared::Call;
use quire_fs::{Attr, Cred, New, NewKind, SetAttr, SetTime, Volume, WriteFlags, create_alone};
use quire_layout::Ino;
use quire_layout::inode::mode;
use std::collections::{HashMap, HashSet};
use std::path::Path;

/// Bytes that are copied at once.
const COPY_BYTES: usize = 1 << 20;
/// Symbolic links on the way to one name.
const MAX_SYMLINKS: usize = 40;
/// The attributes that are ACLs.
const ACLS: [&[u8]; 2] = [acl_text::RECORDS[0].1, acl_text::RECORDS[1].1];

/// What an import did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Imported {
    /// Objects, hard links among them.
    pub objects: u64,
    /// Bytes of data written.
    pub bytes: u64,
}

/// Puts entries below a directory.
pub(super) struct Importer<'c> {
    volume: Volume,
    _call: Call,
    root: Ino,
    options: &'c ImportOptions,
    buf: Vec<u8>,
    /// Emptied when something that may be one is replaced.
    dirs: KnownDirs,
    /// Times of directories, which are set when nothing more is put into them.
    times: HashMap<Ino, (Timestamp, Option<Timestamp>)>,
    /// Inodes of the layer that is read.
    layer: HashSet<Ino>,
    /// Whiteouts hide what earlier layers have brought.
    whiteouts: bool,
    pub(super) done: Imported,
}

impl<'c> Importer<'c> {
    pub(super) fn new(call: Call, root: Ino, options: &'c ImportOptions) -> Self {
        let volume = call.volume.clone();
        Importer {
            volume,
            _call: call,
            root,
            options,
            buf: vec![0; COPY_BYTES],
            dirs: KnownDirs::default(),
            times: HashMap::new(),
            layer: HashSet::new(),
            whiteouts: options.whiteouts,
            done: Imported::default(),
        }
    }

    /// Sets the times of directories: the end of the import.
    pub(super) fn finish(mut self) -> Result<Imported> {
        let mut times: Vec<_> = self.times.drain().collect();
        times.sort_by_key(|(ino, _)| *ino);
        for (ino, (modified, accessed)) in times {
            self.set_times(ino, modified, accessed)?;
        }
        Ok(self.done)
    }

    fn set_times(&self, ino: Ino, modified: Timestamp, accessed: Option<Timestamp>) -> Result<()> {
        let at = |t: Timestamp| Some(SetTime::At(self.options.clamped(t).engine()));
        let set = SetAttr { mtime: at(modified), atime: at(accessed.unwrap_or(modified)), ..SetAttr::default() };
        self.volume.setattr(ino, &set)?;
        Ok(())
    }

    /// The inode of a name, without a reference: nobody else is at work on the image.
    fn lookup(&self, dir: Ino, name: &[u8]) -> Result<Option<Attr>> {
        match self.volume.lookup(dir, name) {
            Ok(attr) => {
                self.volume.forget(attr.ino, 1);
                Ok(Some(attr))
            }
            Err(quire_fs::Error::NotFound) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// The directory of these names. With `make`, what is missing is made, as every tar program does.
    fn dir(&mut self, names: &[Vec<u8>], make: bool) -> Result<Ino> {
        let Some((last, above)) = names.split_last() else { return Ok(self.root) };
        if let Some(ino) = self.dirs.get(names) {
            return Ok(ino);
        }
        let parent = if above.is_empty() { Some(self.root) } else { self.dirs.get(above) };
        let known = match parent {
            Some(parent) => match self.lookup(parent, last)? {
                Some(attr) if attr.mode & mode::FMT == mode::DIR => Some(attr.ino),
                None if make => Some(self.make_parent(parent, last)?),
                _ => None,
            },
            None => None,
        };
        let ino = known.map_or_else(|| self.walk(names, make), Ok)?;
        self.dirs.insert(names, ino);
        Ok(ino)
    }

    /// Goes down from the root, and up again at the `..` of a link's target, but never out of it.
    fn walk(&mut self, names: &[Vec<u8>], make: bool) -> Result<Ino> {
        let mut way = vec![self.root];
        let mut left: Vec<Vec<u8>> = names.iter().rev().cloned().collect();
        let mut links = 0;
        while let Some(name) = left.pop() {
            let here = *way.last().ok_or_else(outside)?;
            if name == b".." {
                way.pop();
                continue;
            }
            match self.lookup(here, &name)? {
                Some(attr) if attr.mode & mode::FMT == mode::DIR => way.push(attr.ino),
                Some(attr) if attr.mode & mode::FMT == mode::LNK => {
                    links += 1;
                    if links > MAX_SYMLINKS {
                        return Err(Error::new(ErrorKind::TooManySymlinks, "too many levels of symbolic links"));
                    }
                    let target = self.volume.readlink(attr.ino)?;
                    if target.first() == Some(&b'/') {
                        if self.root != Ino::ROOT {
                            return Err(outside());
                        }
                        way.truncate(1);
                    }
                    let parts = target.split(|b| *b == b'/').filter(|c| !c.is_empty() && *c != b".");
                    left.extend(parts.map(<[u8]>::to_vec).collect::<Vec<_>>().into_iter().rev());
                }
                Some(_) => return Err(Error::new(ErrorKind::NotADirectory, "a name on the way is no directory")),
                None if make => way.push(self.make_parent(here, &name)?),
                None => return Err(quire_fs::Error::NotFound.into()),
            }
        }
        way.last().copied().ok_or_else(outside)
    }

    /// A directory that the source does not describe.
    fn make_parent(&mut self, dir: Ino, name: &[u8]) -> Result<Ino> {
        let new = New { kind: NewKind::Dir, mode: 0o755, umask: 0, cred: Cred::default() };
        let attr = create_alone(&self.volume, dir, name, &new)?;
        self.volume.forget(attr.ino, 1);
        self.times.remove(&attr.ino);
        self.layer.insert(attr.ino);
        Ok(attr.ino)
    }

    /// Removes a name with everything below it.
    fn remove(&mut self, dir: Ino, name: &[u8], attr: &Attr) -> Result<()> {
        self.dirs.clear();
        if attr.mode & mode::FMT != mode::DIR {
            return Ok(self.volume.unlink(dir, name)?);
        }
        is_child_of(&self.volume, attr.ino, dir)?;
        // The way down as a list: trees may be deep.
        let mut way = vec![(attr.ino, self.children(attr.ino)?)];
        let mut names = vec![name.to_vec()];
        while let Some((here, below)) = way.last_mut() {
            let here = *here;
            match below.pop() {
                Some((name, true)) => {
                    let Some(child) = self.lookup(here, &name)? else { continue };
                    is_child_of(&self.volume, child.ino, here)?;
                    names.push(name);
                    let below = self.children(child.ino)?;
                    way.push((child.ino, below));
                }
                Some((name, false)) => self.volume.unlink(here, &name)?,
                None => {
                    way.pop();
                    let above = way.last().map_or(dir, |(ino, _)| *ino);
                    if let Some(name) = names.pop() {
                        self.times.remove(&here);
                        self.volume.rmdir(above, &name)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Names in a directory, and whether each is a directory.
    fn children(&self, dir: Ino) -> Result<Vec<(Vec<u8>, bool)>> {
        let mut found = Vec::new();
        self.volume.readdir(dir, 0, &mut |item| {
            if item.name != b"." && item.name != b".." {
                found.push((item.ino, item.name.to_vec()));
            }
            true
        })?;
        let is_dir = |ino| Ok::<bool, Error>(self.volume.getattr(ino)?.mode & mode::FMT == mode::DIR);
        found.into_iter().map(|(ino, name)| Ok((name, is_dir(ino)?))).collect()
    }

    /// Hides what earlier layers have put into a directory.
    fn hide_lower(&mut self, dir: Ino) -> Result<()> {
        let mut left = vec![dir];
        while let Some(dir) = left.pop() {
            for (name, is_dir) in self.children(dir)? {
                let Some(attr) = self.lookup(dir, &name)? else { continue };
                if !self.layer.contains(&attr.ino) {
                    self.remove(dir, &name, &attr)?;
                } else if is_dir {
                    is_child_of(&self.volume, attr.ino, dir)?;
                    left.push(attr.ino);
                }
            }
        }
        Ok(())
    }

    /// A whiteout; true: the entry was one.
    fn whiteout(&mut self, names: &[Vec<u8>]) -> Result<bool> {
        let Some((name, above)) = names.split_last() else { return Ok(false) };
        let Some(hidden) = name.strip_prefix(b".wh.").filter(|_| self.whiteouts) else { return Ok(false) };
        let dir = match self.dir(above, false) {
            Ok(dir) => dir,
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(true),
            Err(e) => return Err(e),
        };
        if hidden == b".wh..opq" {
            self.hide_lower(dir)?;
        } else if hidden.is_empty() || hidden == b"." || hidden == b".." {
            return Err(Error::new(ErrorKind::BadInput, "a whiteout of no name"));
        } else if let Some(attr) = self.lookup(dir, hidden)? {
            if !self.layer.contains(&attr.ino) {
                self.remove(dir, hidden, &attr)?;
            } else if attr.mode & mode::FMT == mode::DIR {
                self.hide_lower(attr.ino)?;
            }
        }
        Ok(true)
    }

    fn make(&mut self, entry: &Entry, data: &mut dyn Data) -> Result<()> {
        let (uid, gid) = self.options.owner_of(entry.uid, entry.gid);
        // Another name of an object has its owner.
        if !matches!(entry.kind, Kind::HardLink(_)) {
            check_owner(Some(uid), Some(gid))?;
        }
        let permissions = self.options.permissions_of(entry.permissions);
        let Some((name, above)) = entry.path.split_last() else {
            if entry.kind != Kind::Dir {
                return Err(Error::new(ErrorKind::BadInput, "the root of a tree must be a directory"));
            }
            self.drop_acls(self.root, entry)?;
            return self.attributes(self.root, entry, (uid, gid), permissions, None);
        };
        let dir = self.dir(above, true)?;
        if let Some(old) = self.lookup(dir, name)? {
            if entry.kind == Kind::Dir && old.mode & mode::FMT == mode::DIR {
                self.layer.insert(old.ino);
                self.drop_acls(old.ino, entry)?;
                return self.attributes(old.ino, entry, (uid, gid), permissions, Some(old));
            }
            // tar writes a link to itself for a file that it was given twice.
            if let Kind::HardLink(target) = &entry.kind
                && old.mode & mode::FMT != mode::DIR
                && self.is_at(target, dir, name)?
            {
                self.layer.insert(old.ino);
                return Ok(());
            }
            self.remove(dir, name, &old)?;
        }
        if let Kind::HardLink(target) = &entry.kind {
            return self.hard_link(target, dir, name);
        }
        let kind = match &entry.kind {
            Kind::Dir => NewKind::Dir,
            Kind::Symlink(target) => NewKind::Symlink(target),
            Kind::Node(t, device) => NewKind::Node { file_type: t.mode_bits(), device: *device },
            Kind::File(_) | Kind::HardLink(_) => NewKind::File,
        };
        let new = New { kind, mode: permission_bits(permissions), umask: 0, cred: Cred { uid, gid } };
        let made = create_alone(&self.volume, dir, name, &new)?;
        // The reference keeps the inode until its data is there.
        let done = self.fill(&made, entry, data, (uid, gid), permissions);
        self.volume.forget(made.ino, 1);
        if self.whiteouts || entry.kind == Kind::Dir {
            self.layer.insert(made.ino);
        }
        done
    }

    fn fill(
        &mut self,
        made: &Attr,
        entry: &Entry,
        data: &mut dyn Data,
        owner: (u32, u32),
        permissions: u32,
    ) -> Result<()> {
        if let Kind::File(size) = entry.kind {
            let mut end = 0;
            while let Some((at, n)) = data.next(&mut self.buf)? {
                let mut written = 0;
                while written < n {
                    let bytes = &self.buf[written..n];
                    written += self.volume.write(made.ino, at + written as u64, bytes, WriteFlags::default())?;
                }
                end = at + n as u64;
                self.done.bytes += n as u64;
                self.tell()?;
            }
            if end < size {
                self.volume.truncate(made.ino, size)?;
            }
        }
        self.attributes(made.ino, entry, owner, permissions, Some(*made))
    }

    /// Removes the ACLs of a directory that is there already, unless the entry replaces them: they would permit what
    /// the source does not.
    fn drop_acls(&self, ino: Ino, entry: &Entry) -> Result<()> {
        for acl in ACLS.into_iter().filter(|acl| entry.xattrs.iter().all(|(name, _)| name != acl)) {
            self.volume.xattrs().remove(ino, acl)?;
        }
        Ok(())
    }

    /// Owner, permissions, attributes and times. The owner comes first, because it takes set-user-id away.
    fn attributes(
        &mut self,
        ino: Ino,
        entry: &Entry,
        (uid, gid): (u32, u32),
        permissions: u32,
        now: Option<Attr>,
    ) -> Result<()> {
        let owned = now.is_some_and(|a| (a.uid, a.gid) == (uid, gid));
        if !owned {
            self.volume.setattr(ino, &SetAttr { uid: Some(uid), gid: Some(gid), ..SetAttr::default() })?;
        }
        let allowed = now.is_some_and(|a| owned && u32::from(a.mode & 0o7777) == permissions);
        if !allowed && !matches!(entry.kind, Kind::Symlink(_)) {
            let set = SetAttr { mode: Some(permission_bits(permissions)), ..SetAttr::default() };
            self.volume.setattr(ino, &set)?;
        }
        for (name, value) in &entry.xattrs {
            if image_xattrs::is_stored_for(name, &entry.kind) {
                image_xattrs::set(&self.volume, ino, name, value)?;
            } else {
                self.options.left_out_xattrs.tell(name, || joined(&entry.path));
            }
        }
        // A link has no access ACL, and its permissions do not change.
        if !matches!(entry.kind, Kind::Symlink(_)) && entry.xattrs.iter().any(|(name, _)| name == ACLS[0]) {
            self.remove_permissions(ino)?;
        }
        if entry.kind == Kind::Dir {
            self.times.insert(ino, (entry.modified, entry.accessed));
            return Ok(());
        }
        self.times.remove(&ino);
        self.set_times(ino, entry.modified, entry.accessed)
    }

    /// Takes permissions that no object keeps: an access ACL has brought its own.
    fn remove_permissions(&self, ino: Ino) -> Result<()> {
        let now = u32::from(self.volume.getattr(ino)?.mode & 0o7777);
        let kept = self.options.permissions_of(now);
        if kept != now {
            let set = SetAttr { mode: Some(permission_bits(kept)), ..SetAttr::default() };
            self.volume.setattr(ino, &set)?;
        }
        Ok(())
    }

    fn tell(&self) -> Result<()> {
        let Imported { objects, bytes } = self.done;
        self.options.watch.tell(Progress { writing: true, objects, bytes })
    }

    /// True if a path leads to this name.
    fn is_at(&mut self, path: &[Vec<u8>], dir: Ino, name: &[u8]) -> Result<bool> {
        match path.split_last() {
            Some((last, above)) if last == name => match self.dir(above, false) {
                Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
                found => Ok(found? == dir),
            },
            _ => Ok(false),
        }
    }

    fn hard_link(&mut self, target: &[Vec<u8>], dir: Ino, name: &[u8]) -> Result<()> {
        let missing = || {
            Error::new(ErrorKind::BadInput, format!("a hard link to {}, which is not there", joined(target).display()))
        };
        let (last, above) = target.split_last().ok_or_else(missing)?;
        let from = match self.dir(above, false) {
            Ok(dir) => self.lookup(dir, last)?,
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        let attr = self.volume.link(from.ok_or_else(missing)?.ino, dir, name)?;
        self.volume.forget(attr.ino, 1);
        if self.whiteouts {
            self.layer.insert(attr.ino);
        }
        Ok(())
    }
}

impl Sink for Importer<'_> {
    fn entry(&mut self, entry: &Entry, data: &mut dyn Data) -> Result<()> {
        self.tell()?;
        let done = match self.whiteout(&entry.path) {
            Ok(true) => return Ok(()),
            Ok(false) => self.make(entry, data),
            Err(e) => Err(e),
        };
        self.done.objects += 1;
        done.map_err(|e| e.at(joined(&entry.path)))
    }

    fn layer(&mut self) {
        self.whiteouts = true;
        self.layer.clear();
    }
}

fn outside() -> Error {
    Error::new(ErrorKind::OutsideRoot, "a symbolic link leads out of the root of the import")
}

/// Puts a tree into a directory of an image, which exists. What has the same name is replaced; directories are merged.
/// In a [batch](FileSystem::batch) it is all there or nothing.
///
/// Owners, permissions, times, links, devices, extended attributes with ACLs and capabilities, and holes are kept.
/// Nothing is taken from the directories of the image: no group, no inode flags, no default ACL. A directory that is
/// merged has the ACLs of the source afterwards. A directory that is read may have the file of the image in it: it is
/// left out. So are extended attributes that ext4 does not store ([`ImportOptions::on_left_out`]). A `/` in front of
/// names and of targets of hard links in an archive is dropped, as by GNU tar.
///
/// # Errors
/// Bad input: a malformed archive, or an ACL in it with a name and no number. Outside root: a name or a link in it
/// leads out of the directory. Not found, not a directory: `to`. Invalid: an owner or a device that ext4 does not have,
/// or attributes for which it has no room. No space; read-only; corrupt; I/O.
pub fn import(fs: &FileSystem, to: impl AsRef<Path>, mut source: Source, options: &ImportOptions) -> Result<Imported> {
    let dir = fs.open_dir(to)?;
    import_into(&dir, &mut source, &options.telling_anew())
}

pub(super) fn import_into(dir: &Dir, source: &mut Source, options: &ImportOptions) -> Result<Imported> {
    options.check()?;
    let options = &options.clone().leave_out_image(dir.inode.shared.image);
    let call = dir.inode.call()?;
    if let Some(why) = call.volume.status().read_only {
        return Err(Error::new(ErrorKind::ReadOnly, format!("read-only: {why}")));
    }
    let mut importer = Importer::new(call, dir.inode.ino, options);
    source.read(options, &mut importer)?;
    importer.finish()
}
