//! Random calls against a model in memory: same answers, same tree; e2fsck is asked at the end, and a crash with open
//! unlinked files is survived.

use super::objects::{IMAGES, give_back_all};
use crate::testing::TestVolume;
use crate::{Attributes, Cred, Error, New, NewKind, Options, RenameFlags, Result, SetAttr, Volume, XattrFlags};
use quire_layout::Ino;
use quire_testkit::{Rng, fsck};
use std::collections::{BTreeMap, HashMap};

#[derive(Clone, PartialEq, Eq, Debug)]
enum Kind {
    File,
    Pipe,
    Symlink(Vec<u8>),
    Dir(BTreeMap<Vec<u8>, usize>),
}

#[derive(Clone, Debug)]
struct Object {
    kind: Kind,
    mode: u16,
    uid: u32,
    links: u32,
    parent: usize,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// References that the test holds.
    held: u64,
}

/// What the file system should hold. Objects are numbered; 0 is the root.
struct Model {
    objects: Vec<Object>,
    inos: HashMap<usize, Ino>,
}

/// POSIX answers that the model predicts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum No {
    NotFound,
    Exists,
    NotDir,
    IsDir,
    NotEmpty,
    Invalid,
    NotPermitted,
    Absent,
}

fn answer<T>(r: &Result<T>) -> Option<No> {
    match r {
        Ok(_) => None,
        Err(Error::NotFound) => Some(No::NotFound),
        Err(Error::Exists) => Some(No::Exists),
        Err(Error::NotDir) => Some(No::NotDir),
        Err(Error::IsDir) => Some(No::IsDir),
        Err(Error::NotEmpty) => Some(No::NotEmpty),
        Err(Error::Invalid(_)) => Some(No::Invalid),
        Err(Error::NotPermitted(_)) => Some(No::NotPermitted),
        Err(Error::NoData) => Some(No::Absent),
        Err(e) => panic!("unexpected: {e}"),
    }
}

impl Model {
    fn new(v: &Volume) -> Self {
        let root = v.getattr(Ino::ROOT).unwrap();
        let lost = v.lookup(Ino::ROOT, b"lost+found").unwrap();
        v.forget(lost.ino, 1);
        let dir = |entries, mode, links, parent| Object {
            kind: Kind::Dir(entries),
            mode,
            uid: 0,
            links,
            parent,
            xattrs: BTreeMap::new(),
            held: 0,
        };
        let entries = BTreeMap::from([(b"lost+found".to_vec(), 1)]);
        let objects = vec![dir(entries, root.mode & 0o7777, 3, 0), dir(BTreeMap::new(), lost.mode & 0o7777, 2, 0)];
        Model { objects, inos: HashMap::from([(0, Ino::ROOT), (1, lost.ino)]) }
    }

    fn children(&self, n: usize) -> Option<&BTreeMap<Vec<u8>, usize>> {
        match &self.objects[n].kind {
            Kind::Dir(c) => Some(c),
            _ => None,
        }
    }

    fn children_mut(&mut self, n: usize) -> &mut BTreeMap<Vec<u8>, usize> {
        match &mut self.objects[n].kind {
            Kind::Dir(c) => c,
            _ => panic!("not a directory"),
        }
    }

    fn is_dir(&self, n: usize) -> bool {
        self.children(n).is_some()
    }

    /// A name's meaning, as lookup tells.
    fn find(&self, dir: usize, name: &[u8]) -> std::result::Result<usize, No> {
        let children = self.children(dir).ok_or(No::NotDir)?;
        if self.objects[dir].links == 0 {
            return Err(No::NotFound);
        }
        children.get(name).copied().ok_or(No::NotFound)
    }

    fn vacant(&self, dir: usize, name: &[u8]) -> std::result::Result<(), No> {
        match self.find(dir, name) {
            Ok(_) => Err(No::Exists),
            Err(No::NotFound) if self.objects[dir].links > 0 => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn drop_name(&mut self, dir: usize, name: &[u8]) {
        let n = self.children_mut(dir).remove(name).unwrap();
        if self.is_dir(n) {
            self.objects[n].links = 0;
            self.objects[dir].links -= 1;
        } else {
            self.objects[n].links -= 1;
        }
    }

    fn put_name(&mut self, dir: usize, name: &[u8], n: usize) {
        self.children_mut(dir).insert(name.to_vec(), n);
        if self.is_dir(n) {
            self.objects[n].parent = dir;
            self.objects[dir].links += 1;
        }
    }

    fn is_below(&self, mut n: usize, top: usize) -> bool {
        loop {
            if n == top {
                return true;
            }
            if n == 0 {
                return false;
            }
            n = self.objects[n].parent;
        }
    }

    /// Why a rename is refused, or `true` if something moves.
    fn rename(&self, from: (usize, &[u8]), to: (usize, &[u8]), f: RenameFlags) -> std::result::Result<bool, No> {
        for d in [from.0, to.0] {
            if self.is_dir(d) && self.objects[d].links == 0 {
                return Err(No::NotFound);
            }
        }
        let a = self.find(from.0, from.1)?;
        let b = match self.find(to.0, to.1) {
            Ok(b) => Some(b),
            Err(No::NotFound) => None,
            Err(e) => return Err(e),
        };
        match b {
            Some(_) if f.no_replace => return Err(No::Exists),
            None if f.exchange => return Err(No::NotFound),
            Some(b) if a == b => return Ok(false),
            _ => {}
        }
        let below = |n: usize, dir: usize| self.is_dir(n) && self.is_below(dir, n);
        if below(a, to.0) || (f.exchange && b.is_some_and(|b| below(b, from.0))) {
            return Err(No::Invalid);
        }
        match b {
            Some(b) if !f.exchange => match (self.is_dir(a), self.children(b)) {
                (true, None) => Err(No::NotDir),
                (false, Some(_)) => Err(No::IsDir),
                (_, Some(c)) if !c.is_empty() => Err(No::NotEmpty),
                _ => Ok(true),
            },
            _ => Ok(true),
        }
    }
}

struct Test<'t> {
    v: &'t Volume,
    m: Model,
    n: Rng,
}

impl Test<'_> {
    fn ino(&self, n: usize) -> Ino {
        self.m.inos[&n]
    }

    /// Any object that still has a number: linked or held.
    fn object(&mut self) -> usize {
        loop {
            let n = self.n.index(self.m.objects.len());
            let o = &self.m.objects[n];
            if n != 1 && (o.links > 0 || o.held > 0) {
                return n;
            }
        }
    }

    /// Mostly a directory.
    fn dir(&mut self) -> usize {
        for _ in 0..20 {
            let n = self.object();
            if self.m.is_dir(n) {
                return n;
            }
        }
        0
    }

    fn name(&mut self) -> Vec<u8> {
        let n = self.n.index(12);
        if n == 0 { vec![b'L'; 200] } else { format!("name-{n}").into_bytes() }
    }

    fn create(&mut self) {
        let (d, name) = (self.dir(), self.name());
        let target = vec![b't'; 1 + self.n.index(900)];
        let (kind, model) = match self.n.index(8) {
            0..3 => (NewKind::Dir, Kind::Dir(BTreeMap::new())),
            3 => (NewKind::Symlink(&target), Kind::Symlink(target.clone())),
            4 => (NewKind::Node { file_type: 0x1000, device: (0, 0) }, Kind::Pipe),
            _ => (NewKind::File, Kind::File),
        };
        let new = New { kind, mode: 0o750, umask: 0o027, cred: Cred { uid: 7, gid: 8 } };
        let done = self.v.create(self.ino(d), &name, &new);
        assert_eq!(answer(&done), self.m.vacant(d, &name).err(), "create");
        let Ok(attr) = done else { return };
        let mode = if matches!(model, Kind::Symlink(_)) { 0o777 } else { 0o750 };
        let links = if matches!(model, Kind::Dir(_)) { 2 } else { 1 };
        let n = self.m.objects.len();
        let held = u64::from(self.n.index(2) == 0);
        self.v.forget(attr.ino, 1 - held);
        self.m.objects.push(Object { kind: model, mode, uid: 7, links, parent: d, xattrs: BTreeMap::new(), held });
        self.m.inos.insert(n, attr.ino);
        self.m.put_name(d, &name, n);
    }

    fn unlink(&mut self, is_dir: bool) {
        let (d, name) = (self.dir(), self.name());
        let dir = self.ino(d);
        let done = if is_dir { self.v.rmdir(dir, &name) } else { self.v.unlink(dir, &name) };
        let expected = self.m.find(d, &name).and_then(|n| match (self.m.children(n), is_dir) {
            (Some(_), false) => Err(No::IsDir),
            (None, true) => Err(No::NotDir),
            (Some(c), true) if !c.is_empty() => Err(No::NotEmpty),
            _ => Ok(()),
        });
        assert_eq!(answer(&done), expected.err(), "unlink");
        if done.is_ok() {
            self.m.drop_name(d, &name);
        }
    }

    fn link(&mut self) {
        let (n, d, name) = (self.object(), self.dir(), self.name());
        let done = self.v.link(self.ino(n), self.ino(d), &name);
        let expected = self.m.vacant(d, &name).and_then(|()| match &self.m.objects[n] {
            _ if self.m.is_dir(n) => Err(No::NotPermitted),
            o if o.links == 0 => Err(No::NotFound),
            _ => Ok(()),
        });
        assert_eq!(answer(&done), expected.err(), "link");
        if let Ok(a) = done {
            self.v.forget(a.ino, 1);
            self.m.objects[n].links += 1;
            self.m.put_name(d, &name, n);
        }
    }

    fn rename(&mut self) {
        let (d1, n1, d2, n2) = (self.dir(), self.name(), self.dir(), self.name());
        let flags = match self.n.index(6) {
            0 => RenameFlags { no_replace: true, ..RenameFlags::default() },
            1 => RenameFlags { exchange: true, ..RenameFlags::default() },
            _ => RenameFlags::default(),
        };
        let expected = self.m.rename((d1, &n1), (d2, &n2), flags);
        let done = self.v.rename(self.ino(d1), &n1, self.ino(d2), &n2, flags);
        assert_eq!(answer(&done), expected.err(), "rename {flags:?}");
        if expected != Ok(true) {
            return;
        }
        let a = self.m.find(d1, &n1).unwrap();
        let b = self.m.find(d2, &n2).ok();
        let links = (self.m.objects[a].links, b.map(|b| self.m.objects[b].links));
        self.m.drop_name(d1, &n1);
        self.m.objects[a].links = links.0;
        if let Some(b) = b {
            self.m.drop_name(d2, &n2);
            if flags.exchange {
                self.m.objects[b].links = links.1.unwrap();
                self.m.put_name(d1, &n1, b);
            }
        }
        self.m.put_name(d2, &n2, a);
    }

    fn attributes(&mut self) {
        let n = self.object();
        let mode = u16::try_from(self.n.index(0o1000)).unwrap();
        let uid = u32::try_from(self.n.index(100_000)).unwrap();
        self.v.setattr(self.ino(n), &SetAttr { uid: Some(uid), mode: Some(mode), ..SetAttr::default() }).unwrap();
        (self.m.objects[n].mode, self.m.objects[n].uid) = (mode, uid);
    }

    fn xattr(&mut self) {
        let n = self.object();
        let name = format!("trusted.x{}", self.n.index(5)).into_bytes();
        // The same few values again and again, so that blocks are shared.
        let value = vec![b'v'; [0, 3, 40, 120, 700][self.n.index(5)]];
        let ino = self.ino(n);
        let have = &mut self.m.objects[n].xattrs;
        if self.n.index(4) == 0 {
            let done = self.v.xattrs().remove(ino, &name);
            assert_eq!(answer(&done), if have.remove(&name).is_some() { None } else { Some(No::Absent) });
            return;
        }
        let how = [XattrFlags::Any, XattrFlags::Any, XattrFlags::Create, XattrFlags::Replace][self.n.index(4)];
        let done = self.v.xattrs().set(ino, &name, &value, how);
        let expected = match (how, have.contains_key(&name)) {
            (XattrFlags::Create, true) => Some(No::Exists),
            (XattrFlags::Replace, false) => Some(No::Absent),
            _ => None,
        };
        if matches!(done, Err(Error::NoSpace)) {
            // Legal only if it might not fit a block.
            let total: usize = have.iter().map(|(k, v)| k.len() + v.len() + 32).sum::<usize>() + value.len();
            assert!(total > 600, "{total}");
            return;
        }
        assert_eq!(answer(&done), expected, "setxattr");
        if done.is_ok() {
            have.insert(name, value);
        }
    }

    fn hold_or_release(&mut self) {
        let n = self.object();
        let ino = self.ino(n);
        if self.m.objects[n].held > 0 {
            self.m.objects[n].held -= 1;
            self.v.forget(ino, 1);
        } else if let Some((name, d)) = self.named(n) {
            assert_eq!(self.v.lookup(self.ino(d), &name).unwrap().ino, ino);
            self.m.objects[n].held += 1;
        }
    }

    fn named(&self, n: usize) -> Option<(Vec<u8>, usize)> {
        let dirs = (0..self.m.objects.len()).filter(|d| self.m.objects[*d].links > 0);
        dirs.filter_map(|d| Some((self.m.children(d)?.iter().find(|(_, c)| **c == n)?.0.clone(), d))).next()
    }

    fn step(&mut self) {
        match self.n.index(16) {
            0..4 => self.create(),
            4..6 => self.unlink(false),
            6 => self.unlink(true),
            7 => self.link(),
            8..11 => self.rename(),
            11 => self.attributes(),
            12..14 => self.xattr(),
            _ => self.hold_or_release(),
        }
    }

    /// Compares everything that is linked or held.
    fn compare(&self, v: &Volume) {
        for (n, o) in self.m.objects.iter().enumerate().filter(|(_, o)| o.links > 0) {
            let (ino, mut names) = (self.ino(n), BTreeMap::new());
            let a = v.getattr(ino).unwrap();
            assert_eq!((a.mode & 0o7777, a.uid, a.links), (o.mode, o.uid, o.links), "{ino}");
            let mut listed = v.xattrs().list(ino).unwrap();
            listed.sort();
            assert_eq!(listed, o.xattrs.keys().cloned().collect::<Vec<_>>());
            for (name, value) in &o.xattrs {
                assert_eq!(&v.xattrs().get(ino, name).unwrap(), value);
            }
            match &o.kind {
                Kind::Symlink(target) => assert_eq!(&v.readlink(ino).unwrap(), target),
                Kind::Dir(children) => {
                    v.readdir_plus(ino, 0, Attributes::All, &mut |i, attr| {
                        if i.name == b".." {
                            assert_eq!(i.ino, self.ino(o.parent));
                        } else if i.name != b"." {
                            names.insert(i.name.to_vec(), i.ino);
                            assert_eq!(attr.unwrap().ino, i.ino);
                            v.forget(i.ino, 1);
                        }
                        true
                    })
                    .unwrap();
                    let expected = children.iter().map(|(name, c)| (name.clone(), self.ino(*c))).collect();
                    assert_eq!(names, expected, "{ino}");
                }
                _ => {}
            }
        }
        let held = self.m.objects.iter().filter(|o| o.links > 0 || o.held > 0).count();
        let used = u64::from(v.superblock().inodes_count()) - v.statfs().free_inodes;
        let reserved = u64::from(v.superblock().first_ino().0) - 1;
        // The root is one of the reserved ones; an orphan file has an inode, too.
        let orphan_file = u64::from(v.superblock().orphan_file_ino() != Ino(0));
        assert_eq!(used, reserved - 1 + orphan_file + u64::try_from(held).unwrap(), "a leak");
    }
}

#[test]
fn random_calls_agree_with_a_model_and_a_crash_loses_no_orphan() {
    let seed = std::env::var("QUIRE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5EED_0002_u64);
    println!("again: QUIRE_SEED={seed} cargo test -p quire-fs --lib random_calls_agree_with_a_model");
    let mut orphans = 0;
    for (i, args) in IMAGES.iter().enumerate() {
        println!("mke2fs {args:?}");
        let t = TestVolume::new("24M", args);
        let v = &t.volume;
        let mut test = Test { v, m: Model::new(v), n: Rng::new(seed + u64::try_from(i).unwrap()) };
        for _ in 0..1500 {
            test.step();
        }
        test.compare(v);
        // A crash now: what is unlinked but open must be gone after the next mount, and nothing else.
        v.sync().unwrap();
        let crashed = TestVolume::on(t.device.snapshot(), Options::default());
        for o in &mut test.m.objects {
            orphans += usize::from(o.links == 0 && o.held > 0);
            o.held = 0;
        }
        test.compare(&crashed.volume);
        crashed.check();
        give_back_all(v);
        test.compare(v);
        v.close().unwrap();
        fsck(&t.device.snapshot());
    }
    assert!(orphans > IMAGES.len(), "the test has lost its point");
}
