//! Directories on images made by mke2fs; e2fsck and the kernel are the judges.

mod damage;
mod hash_versions;
mod inline;
mod kernel;
mod listing;
mod long_hash;
mod model;

use super::blocks::Dir;
use super::{DirItem, Entry};
use crate::Options;
use crate::error::Result;
use crate::records;
use crate::space::Pool;
use crate::testing::TestVolume;
use crate::txn::Op;
use quire_layout::Ino;
use quire_layout::dir::FileType;
use quire_layout::inode::Inode;
use std::collections::BTreeMap;

/// Files that names of the tests link to; each may have 65,000 links.
const FILES: usize = 8;

/// A volume with a directory `d` to work in and files to link to.
struct Dirs {
    t: TestVolume,
    dir: Ino,
    files: Vec<Ino>,
}

/// An image with an empty directory `d` and files `f0`, `f1`, ...
fn image(size: &str, args: &[&str]) -> Vec<u8> {
    let tree = tempfile::tempdir().unwrap();
    std::fs::create_dir(tree.path().join("d")).unwrap();
    for i in 0..FILES {
        std::fs::write(tree.path().join(format!("f{i}")), b"").unwrap();
    }
    quire_testkit::mke2fs(size, &[args, &["-d", tree.path().to_str().unwrap()]].concat())
}

impl Dirs {
    fn new(size: &str, args: &[&str]) -> Self {
        Self::on(image(size, args))
    }

    fn on(image: Vec<u8>) -> Self {
        Self::with(image, Options::default())
    }

    fn with(image: Vec<u8>, options: Options) -> Self {
        let t = TestVolume::on(image, options);
        let find = |name: &str| {
            let found = t.volume.run(|op| {
                let root = records::inode(op, Ino::ROOT)?;
                super::lookup(op, Ino::ROOT, &root, name.as_bytes())
            });
            found.unwrap().unwrap_or_else(|| panic!("{name} is in the root")).ino
        };
        let dir = find("d");
        let files = (0..FILES).map(|i| find(&format!("f{i}"))).collect();
        Dirs { t, dir, files }
    }

    fn run<T>(&self, mut f: impl FnMut(&mut Op<'_>, Ino, &mut Inode) -> Result<T>) -> Result<T> {
        self.t.volume.run(|op| {
            let mut inode = records::inode(op, self.dir)?;
            f(op, self.dir, &mut inode)
        })
    }

    fn file(&self, n: usize) -> Ino {
        self.files[n % FILES]
    }

    fn add(&self, name: &[u8], to: Ino) -> Result<()> {
        self.run(|op, ino, inode| super::add(op, ino, inode, name, to, FileType::Regular, Pool::Root))
    }

    fn remove(&self, name: &[u8]) -> Result<Entry> {
        self.run(|op, ino, inode| super::remove(op, ino, inode, name))
    }

    fn lookup(&self, name: &[u8]) -> Result<Option<Ino>> {
        self.run(|op, ino, inode| Ok(super::lookup(op, ino, inode, name)?.map(|e| e.ino)))
    }

    /// The next `max` names from `cookie` on (fewer: no more are there), and the cookie to go on with.
    #[allow(clippy::type_complexity)]
    fn list(&self, cookie: u64, max: usize) -> Result<(Vec<(Vec<u8>, Ino)>, u64)> {
        let (mut all, mut at) = (Vec::new(), cookie);
        loop {
            let (names, last, next) = self.run(|op, ino, inode| {
                let (mut names, mut last) = (Vec::new(), at);
                let next = super::read(op, ino, inode, at, &mut |i: DirItem<'_>| {
                    if all.len() + names.len() == max {
                        return false;
                    }
                    assert!(i.next_cookie > last && i.next_cookie < 1 << 63, "cookies go up");
                    names.push((i.name.to_vec(), i.ino));
                    last = i.next_cookie;
                    true
                })?;
                Ok((names, last, next))
            })?;
            all.extend(names);
            match next {
                Some(next) if all.len() < max => {
                    assert!(next > at, "a listing goes on");
                    at = next;
                }
                _ => return Ok((all, last)),
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.run(|op, ino, inode| super::is_empty(op, ino, inode)).unwrap()
    }

    /// All names but `.` and `..`; none may come twice.
    fn names(&self) -> BTreeMap<Vec<u8>, Ino> {
        let mut out = BTreeMap::new();
        for (name, ino) in self.list(0, usize::MAX).unwrap().0 {
            assert!(out.insert(name, ino).is_none());
        }
        assert_eq!(out.remove(&b"."[..]), Some(self.dir));
        assert_eq!(out.remove(&b".."[..]), Some(Ino::ROOT));
        out
    }

    fn levels(&self) -> Option<u8> {
        let read = |op: &mut Op<'_>, ino, inode: &mut Inode| {
            let dir = Dir::new(op, ino, inode)?;
            if dir.indexed { Ok(Some(dir.root(op, inode)?.2.levels)) } else { Ok(None) }
        };
        self.run(read).unwrap()
    }

    /// Sets the link counts of the files to what the directory says, unmounts, asks e2fsck, and mounts again.
    fn check(&mut self) {
        let names = self.names();
        for f in &self.files {
            let links = 1 + names.values().filter(|i| *i == f).count();
            let set = self.t.volume.run(|op| {
                let mut inode = records::inode(op, *f)?;
                inode.set_links(u16::try_from(links).unwrap());
                records::put_inode(op, *f, &mut inode)
            });
            set.unwrap();
        }
        self.t.check();
        self.t = TestVolume::on(self.t.device.snapshot(), Options::default());
    }
}

/// A generator of numbers that a seed repeats.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(below).unwrap()).unwrap()
    }

    /// A name out of `many`, the same bytes for the same number, 1 to 255 bytes, some of them beyond ASCII.
    fn name(&mut self, many: usize) -> Vec<u8> {
        let n = self.next(many);
        let mut name = format!("{n:x}").into_bytes();
        let fill = [b'-', 0xC3, b'z', 0xFF][n % 4];
        let len = if n.is_multiple_of(3) { n % 251 } else { n % 17 };
        name.extend(std::iter::repeat_n(fill, len));
        name
    }
}

/// The seed of a randomized test: `QUIRE_SEED`, or a fixed one. Printed, so that a failure tells it.
fn seed(test: &str) -> u64 {
    let seed = std::env::var("QUIRE_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5EED_0001);
    println!("again: QUIRE_SEED={seed} cargo test -p quire-fs --lib {test}");
    seed
}
