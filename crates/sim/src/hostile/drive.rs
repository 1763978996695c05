//! What is done to a damaged image: mounted, walked, written to, unmounted, mounted again.

use super::base::{Base, devices};
use super::case::Case;
use super::places::Kind;
use super::watch::WatchedDevice;
use quire_device::sync::Arc;
use quire_fs::{
    Attributes, Cred, Error, Falloc, New, NewKind, Options, RenameFlags, Result, Seek, Volume, WriteFlags, XattrFlags,
};
use quire_layout::dir::is_dot;
use quire_layout::inode::mode;
use quire_layout::{Ino, Structure};
use quire_testkit::{Image, VirtualClock};
use std::collections::HashSet;

/// Inodes that a walk looks at.
const MAX_NODES: usize = 300;
/// Names of a directory that are looked up.
const MAX_LOOKUPS: usize = 24;
/// More names than any base image has blocks for.
const MAX_NAMES: usize = 200_000;
/// Device operations that one mount may need.
const MAX_OPERATIONS: u64 = 200_000;

/// What a damaged image said.
#[derive(Clone, Debug, Default)]
pub struct Said {
    /// It could be mounted, for writing.
    pub mounted: bool,
    /// Corruption that was reported, by structure.
    pub corrupt: Vec<Structure>,
    /// Errors of all kinds.
    pub errors: u64,
    wrong: Option<String>,
}

/// A name that the walk has found.
struct Name {
    dir: Ino,
    name: Vec<u8>,
    ino: Ino,
    mode: u16,
}

/// Does everything to one damaged image.
///
/// # Errors
/// What it did that it must not. Panics pass through.
pub fn drive(base: &Base, case: &Case, image: &Image) -> Result<Said, String> {
    let mut said = Said::default();
    let geometry = case.touched(base).iter().any(|i| base.is_geometry(&base.places[*i]));
    let zones = if geometry || base.dirty { Vec::new() } else { base.zones.clone() };

    let device = Arc::new(WatchedDevice::new(image.clone(), Vec::new()));
    if let Some(v) = said.note(mount(base, &device, Options { read_only: true, no_load: true, ..options() })) {
        said.walk(&v);
        said.note(v.close());
    }
    if device.writes() > 0 {
        return Err(format!("{} writes by a read-only mount", device.writes()));
    }

    let device = Arc::new(WatchedDevice::new(image.clone(), zones));
    let Some(v) = said.note(mount(base, &device, options())) else {
        let mut kinds = case.touched(base).into_iter().map(|i| base.places[i].kind);
        let may_replay = kinds.any(|k| matches!(k, Kind::Superblock | Kind::JournalSuperblock));
        if !may_replay && !base.dirty && device.writes() > 0 {
            return Err(format!("the mount failed, but wrote {} times", device.writes()));
        }
        return said.end();
    };
    said.mounted = true;
    let names = said.walk(&v);
    said.work(&v, &names);
    let crashed = device.image();
    said.note(v.close());
    if let Some((at, len)) = device.trespass() {
        return Err(format!("file data was written over the file system's own structures: {len} bytes at {at}"));
    }
    if device.operations() > MAX_OPERATIONS {
        return Err(format!("{} operations on the device", device.operations()));
    }
    for left in [crashed, device.image()] {
        let device = Arc::new(WatchedDevice::new(left, Vec::new()));
        if let Some(v) = said.note(mount(base, &device, options())) {
            said.note(v.readdir(Ino::ROOT, 0, &mut |_| true));
            said.note(v.close());
        }
    }
    said.end()
}

/// Mounts a damaged image, which replays its log, and unmounts it.
///
/// # Errors
/// As [`drive`].
pub fn replay(base: &Base, image: &Image) -> Result<Said, String> {
    let mut said = Said::default();
    let device = Arc::new(WatchedDevice::new(image.clone(), Vec::new()));
    if let Some(v) = said.note(mount(base, &device, options())) {
        said.mounted = true;
        said.note(v.close());
    }
    said.end()
}

fn options() -> Options {
    Options { cache_bytes: 1 << 20, ..Options::default() }
}

fn mount(base: &Base, device: &Arc<WatchedDevice>, options: Options) -> Result<Volume> {
    Volume::open(devices(device, base.fs_len), Arc::new(VirtualClock::default()), options)
}

impl Said {
    fn end(self) -> Result<Said, String> {
        match self.wrong {
            Some(w) => Err(w),
            None => Ok(self),
        }
    }

    /// Looks at an error: it must be one for the caller, and say where.
    fn note<T>(&mut self, r: Result<T>) -> Option<T> {
        let e = match r {
            Ok(v) => return Some(v),
            Err(e) => e,
        };
        self.errors += 1;
        match &e {
            Error::Miss(_) | Error::NoSpaceYet(_) | Error::Frozen => {
                self.wrong.get_or_insert(format!("an internal error came out: {e:?}"));
            }
            Error::Corrupt(c) => {
                if c.block.is_none() && c.object.is_none() && c.structure != Structure::Superblock {
                    self.wrong.get_or_insert(format!("an error does not say where: {c}"));
                }
                self.corrupt.push(c.structure);
            }
            Error::Journal(quire_journal::Error::Corrupt(c)) => self.corrupt.push(c.structure),
            _ => {}
        }
        None
    }

    /// Reads everything that can be reached, within bounds.
    fn walk(&mut self, v: &Volume) -> Vec<Name> {
        let (mut names, mut seen, mut todo) = (Vec::new(), HashSet::new(), vec![Ino::ROOT]);
        let _ = v.statfs();
        while let Some(ino) = todo.pop() {
            if !seen.insert(ino) || seen.len() > MAX_NODES {
                continue;
            }
            let Some(a) = self.note(v.getattr(ino)) else { continue };
            self.attributes(v, ino);
            match a.mode & mode::FMT {
                mode::DIR => {
                    let inside = self.list(v, ino);
                    todo.extend(inside.iter().map(|n| n.ino));
                    names.extend(inside);
                }
                mode::REG => self.read(v, ino, a.size),
                mode::LNK => {
                    self.note(v.readlink(ino));
                }
                _ => {}
            }
        }
        names
    }

    fn attributes(&mut self, v: &Volume, ino: Ino) {
        for name in self.note(v.xattrs().list(ino)).unwrap_or_default() {
            self.note(v.xattrs().get(ino, &name));
        }
        self.note(v.xattrs().get(ino, b"system.posix_acl_access"));
        self.note(v.inode_flags().get(ino));
    }

    fn list(&mut self, v: &Volume, dir: Ino) -> Vec<Name> {
        let (mut found, mut count) = (Vec::new(), 0);
        let listed = v.readdir(dir, 0, &mut |i| {
            count += 1;
            if found.len() < MAX_LOOKUPS && !is_dot(i.name) {
                found.push(i.name.to_vec());
            }
            count < MAX_NAMES
        });
        self.note(listed);
        if count >= MAX_NAMES {
            self.wrong.get_or_insert(format!("directory {dir} has no end"));
        }
        let mut plus = Vec::new();
        let listed = v.readdir_plus(dir, 0, Attributes::All, &mut |i, a| {
            if a.is_some() && !is_dot(i.name) {
                plus.push(i.ino);
            }
            plus.len() < 8
        });
        self.note(listed);
        plus.into_iter().for_each(|ino| v.forget(ino, 1));
        self.note(v.lookup(dir, b"no such name"));
        let mut names = Vec::new();
        for name in found {
            if let Some(a) = self.note(v.lookup(dir, &name)) {
                v.forget(a.ino, 1);
                names.push(Name { dir, name, ino: a.ino, mode: a.mode });
            }
        }
        names
    }

    fn read(&mut self, v: &Volume, ino: Ino, size: u64) {
        let mut buf = vec![0; 40_000];
        for at in [0, size / 2, size.saturating_sub(1000)] {
            self.note(v.read(ino, at, &mut buf));
        }
        let mut at = 0;
        for what in [Seek::Data, Seek::Hole].into_iter().cycle().take(16) {
            let Some(next) = self.note(v.seek(ino, at, what)) else { break };
            at = next;
        }
        self.note(v.extents(ino, 0, u64::MAX, 64));
    }

    /// Changes what was found, and makes new things.
    fn work(&mut self, v: &Volume, names: &[Name]) {
        let dirs: Vec<Ino> = std::iter::once(Ino::ROOT)
            .chain(names.iter().filter(|n| n.mode & mode::FMT == mode::DIR).map(|n| n.ino))
            .collect();
        for dir in dirs.iter().take(8) {
            self.fill(v, *dir);
        }
        let mut files: Vec<&Name> = names.iter().filter(|n| n.mode & mode::FMT == mode::REG).collect();
        let mut seen = HashSet::new();
        files.retain(|n| seen.insert(n.ino));
        for f in files.iter().take(12) {
            self.change(v, f.ino);
        }
        self.note(v.maintenance().step());
        self.note(v.sync());
        for (i, n) in names.iter().enumerate().take(60) {
            match (i % 4, n.mode & mode::FMT == mode::DIR) {
                (0, _) => {
                    let to = dirs[i % dirs.len()];
                    self.note(v.rename(n.dir, &n.name, to, format!("moved {i}").as_bytes(), RenameFlags::default()));
                }
                (_, true) if i % 2 == 0 => {
                    self.note(v.rmdir(n.dir, &n.name));
                }
                (1, false) => {
                    self.note(v.unlink(n.dir, &n.name));
                }
                (2, false) => {
                    if let Some(a) = self.note(v.link(n.ino, Ino::ROOT, format!("link {i}").as_bytes())) {
                        v.forget(a.ino, 1);
                    }
                }
                _ => {}
            }
        }
        self.note(v.fsync(Ino::ROOT, false));
        self.note(v.maintenance().trim(0, u64::MAX, 0));
        self.note(v.maintenance().step());
    }

    fn fill(&mut self, v: &Volume, dir: Ino) {
        for n in 0..6 {
            let name = format!("{}{n}", "new name ".repeat(10));
            let kind = match n {
                0 => NewKind::Dir,
                1 => NewKind::Symlink(&[b'y'; 100]),
                _ => NewKind::File,
            };
            let new = New { kind, mode: 0o644, umask: 0, cred: Cred::default() };
            let Some(a) = self.note(v.create(dir, name.as_bytes(), &new)) else { continue };
            v.forget(a.ino, 1);
            if n > 1 {
                self.note(v.write(a.ino, 0, &[3; 5000], WriteFlags::default()));
            }
        }
    }

    fn change(&mut self, v: &Volume, ino: Ino) {
        let sync = WriteFlags { sync: true, ..WriteFlags::default() };
        let append = WriteFlags { append: true, ..WriteFlags::default() };
        self.note(v.write(ino, 100, &[9; 3000], WriteFlags::default()));
        self.note(v.write(ino, 0, &[5; 2500], append));
        self.note(v.write(ino, 6000, b"now", sync));
        self.note(v.xattrs().set(ino, b"user.new", &[1; 200], XattrFlags::Any));
        self.note(v.xattrs().set(ino, b"user.long", &[2; 400], XattrFlags::Any));
        self.note(v.xattrs().remove(ino, b"user.short"));
        self.note(v.fallocate(ino, Falloc::PunchHole, 3000, 9000));
        self.note(v.fallocate(ino, Falloc::Insert, 4096, 4096));
        self.note(v.fallocate(ino, Falloc::Collapse, 0, 4096));
        self.note(v.fallocate(ino, Falloc::Allocate { keep_size: false }, 20_000, 9000));
        self.note(v.fsync(ino, false));
        self.note(v.truncate(ino, 1500));
        self.note(v.truncate(ino, 90_000));
    }
}
