//! Changes of files, directories and links that are in their inode (`inline_data`), beside the same changes of a tree
//! of the host: Quire, the kernel and e2fsck must agree with it. And power losses while files leave their inodes.

use crate::testing::TestVolume;
use crate::{
    Devices, Error, Falloc, New, NewKind, Options, RenameFlags, Route, SetAttr, Volume, WriteFlags, XattrFlags,
};
use quire_device::SystemClock;
use quire_device::sync::Arc;
use quire_layout::inline_data::is_inline;
use quire_layout::{BlockNo, Ino};
use quire_testkit::image::Image;
use quire_testkit::powerloss::{Completion, PowerLossDevice, PowerLossOptions};
use quire_testkit::rng::{Rng, content};
use quire_testkit::{MemDevice, Mounted, fsck, mke2fs};
use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};

const DIRS: u64 = 5;
const NAMES: u64 = 7;
/// The longest file of the tree, in bytes: some fit their inode, some do not.
const LONGEST: u64 = 190;

/// mke2fs options, besides the feature.
const SHAPES: [&[&str]; 5] = [
    &["-b", "1024", "-I", "256"],
    &["-b", "4096", "-I", "512"],
    &["-b", "1024", "-I", "1024", "-O", "^dir_index"],
    &["-b", "4096", "-I", "256", "-O", "^metadata_csum,^64bit,^extent"],
    &["-b", "4096", "-I", "256", "-O", "^has_journal"],
];

fn bytes(seed: u64, at: u64, len: u64) -> Vec<u8> {
    content(seed, at, usize::try_from(len).unwrap())
}

/// A tree of small files, links and directories.
fn plant(at: &Path, seed: u64) {
    for d in 0..DIRS {
        let dir = at.join(format!("d{d}"));
        std::fs::create_dir(&dir).unwrap();
        for n in 0..d.min(NAMES) {
            std::fs::write(dir.join(format!("n{n}")), bytes(seed, n, (d * 37 + n * 29) % LONGEST)).unwrap();
        }
        symlink("t".repeat(50 + 20 * usize::try_from(d).unwrap()), dir.join("link")).unwrap();
        std::fs::create_dir(dir.join("sub")).unwrap();
    }
}

/// An image of this tree. Where the kernel can mount it, the kernel adds to `at` and to the image directories whose
/// names do not fit `i_block`.
fn image(shape: &[&str], at: &Path) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    let features = ["-t", "ext4", "-O", "inline_data", "-d", at.to_str().unwrap()];
    std::fs::write(file.path(), mke2fs("16M", &[shape, &features].concat())).unwrap();
    if let Some(m) = Mounted::if_possible(file.path(), "loop") {
        for dir in [m.at.path().join("k"), at.join("k")] {
            std::fs::create_dir(&dir).unwrap();
            for n in 0..5 {
                std::fs::write(dir.join(format!("n{n}")), bytes(9, n, n * 31)).unwrap();
            }
        }
    }
    std::fs::read(file.path()).unwrap()
}

/// What a path is: a directory, or a file's content, or a link's target.
type Tree = BTreeMap<PathBuf, Option<Vec<u8>>>;

fn by_host(root: &Path, at: &Path, out: &mut Tree) {
    for entry in std::fs::read_dir(root.join(at)).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (at.join(entry.file_name()), entry.file_type().unwrap());
        if path == Path::new("lost+found") {
            continue;
        }
        if kind.is_dir() {
            out.insert(path.clone(), None);
            by_host(root, &path, out);
        } else if kind.is_symlink() {
            out.insert(path, Some(std::fs::read_link(entry.path()).unwrap().as_os_str().as_bytes().to_vec()));
        } else {
            out.insert(path, Some(std::fs::read(entry.path()).unwrap()));
        }
    }
}

fn host(root: &Path) -> Tree {
    let mut out = Tree::new();
    by_host(root, Path::new(""), &mut out);
    out
}

fn names(v: &Volume, dir: Ino) -> Vec<(Vec<u8>, Ino)> {
    let mut out = Vec::new();
    let dots: [&[u8]; 3] = [b".", b"..", b"lost+found"];
    v.readdir(dir, 0, &mut |i| {
        if !dots.contains(&i.name) {
            out.push((i.name.to_vec(), i.ino));
        }
        true
    })
    .unwrap();
    out
}

fn read(v: &Volume, ino: Ino) -> Vec<u8> {
    let mut buf = vec![1; 70_000];
    let n = v.read(ino, 0, &mut buf).unwrap();
    buf.truncate(n);
    buf
}

fn by_quire(v: &Volume, dir: Ino, at: &Path, out: &mut Tree) {
    for (name, ino) in names(v, dir) {
        let path = at.join(std::ffi::OsStr::from_bytes(&name));
        let inode = v.run(|op| crate::records::inode(op, ino)).unwrap();
        if inode.is_dir() {
            out.insert(path.clone(), None);
            assert_eq!(v.lookup(ino, b"..").unwrap().ino, dir, "the parent of {}", path.display());
            v.forget(dir, 1);
            by_quire(v, ino, &path, out);
        } else if inode.is_symlink() {
            out.insert(path, Some(v.readlink(ino).unwrap()));
        } else {
            out.insert(path, Some(read(v, ino)));
        }
    }
}

fn quire(v: &Volume) -> Tree {
    let mut out = Tree::new();
    by_quire(v, Ino::ROOT, Path::new(""), &mut out);
    out
}

/// The same tree in a volume and on the host.
struct Both<'t> {
    v: &'t Volume,
    root: &'t Path,
}

impl Both<'_> {
    fn ino(&self, path: &Path) -> Ino {
        path.iter().fold(Ino::ROOT, |dir, name| {
            let ino = self.v.lookup(dir, name.as_bytes()).unwrap().ino;
            self.v.forget(ino, 1);
            ino
        })
    }

    fn parent(&self, path: &Path) -> Ino {
        self.ino(path.parent().unwrap())
    }

    fn make(&self, path: &Path, kind: NewKind<'_>) {
        let new = New { kind, mode: 0o755, umask: 0, cred: crate::Cred { uid: 0, gid: 0 } };
        let made = self.v.create(self.parent(path), path.file_name().unwrap().as_bytes(), &new).unwrap();
        self.v.forget(made.ino, 1);
        let on_host = self.root.join(path);
        match kind {
            NewKind::Dir => std::fs::create_dir(on_host).unwrap(),
            NewKind::Symlink(target) => symlink(std::ffi::OsStr::from_bytes(target), on_host).unwrap(),
            _ => drop(std::fs::File::create(on_host).unwrap()),
        }
    }

    /// A change of a file's bytes or size.
    fn change(&self, path: &Path, r: &mut Rng) {
        let (ino, f) = (self.ino(path), std::fs::File::options().write(true).open(self.root.join(path)).unwrap());
        let size = f.metadata().unwrap().len();
        let (at, len) = (r.below(size + 30), 1 + r.below(60));
        let data = bytes(r.below(1 << 30), at, len);
        match r.below(6) {
            0 => {
                self.v.write(ino, at, &data, WriteFlags::default()).unwrap();
                f.write_all_at(&data, at).unwrap();
            }
            1 => {
                self.v.write(ino, 0, &data, WriteFlags { append: true, ..WriteFlags::default() }).unwrap();
                f.write_all_at(&data, size).unwrap();
            }
            2 => {
                self.v.truncate(ino, at).unwrap();
                f.set_len(at).unwrap();
            }
            3 => {
                let set = SetAttr { size: Some(0), mode: Some(0o600), ..SetAttr::default() };
                self.v.setattr(ino, &set).unwrap();
                f.set_len(0).unwrap();
            }
            4 => match self.v.fallocate(ino, Falloc::Allocate { keep_size: false }, at, len) {
                Ok(()) => f.set_len(size.max(at + len)).unwrap(),
                Err(e) => assert!(matches!(e, Error::NotSupported(_)), "{e}"),
            },
            _ => {
                self.v.fallocate(ino, Falloc::PunchHole, at, len).unwrap();
                let holes = vec![0; usize::try_from(len.min(size.saturating_sub(at))).unwrap()];
                f.write_all_at(&holes, at).unwrap();
            }
        }
    }

    fn attribute(&self, path: &Path, r: &mut Rng) {
        let (ino, name) = (self.ino(path), format!("user.{}", r.below(2)));
        let done = if r.below(3) == 0 {
            self.v.xattrs().remove(ino, name.as_bytes())
        } else {
            self.v.xattrs().set(ino, name.as_bytes(), &bytes(1, 2, r.below(80)), XattrFlags::Any)
        };
        assert!(matches!(done, Ok(()) | Err(Error::NoData)), "{done:?}");
    }

    fn remove(&self, path: &Path, is_dir: bool) {
        let (dir, name) = (self.parent(path), path.file_name().unwrap().as_bytes());
        let on_host = self.root.join(path);
        if is_dir {
            let done = std::fs::remove_dir(on_host);
            assert_eq!(self.v.rmdir(dir, name).is_ok(), done.is_ok(), "rmdir {}", path.display());
        } else {
            std::fs::remove_file(on_host).unwrap();
            self.v.unlink(dir, name).unwrap();
        }
    }

    fn rename(&self, from: &Path, to: &Path) {
        let done = std::fs::rename(self.root.join(from), self.root.join(to));
        let name = |p: &Path| p.file_name().unwrap().as_bytes().to_vec();
        let (old, new) = ((self.parent(from), name(from)), (self.parent(to), name(to)));
        let ours = self.v.rename(old.0, &old.1, new.0, &new.1, RenameFlags::default());
        assert_eq!(ours.is_ok(), done.is_ok(), "{} to {}: {ours:?}, {done:?}", from.display(), to.display());
    }

    /// One random change.
    fn step(&self, r: &mut Rng) {
        let tree: Vec<_> = host(self.root).into_iter().collect();
        let pick = |r: &mut Rng| tree[usize::try_from(r.below(tree.len() as u64)).unwrap()].clone();
        let (path, _) = pick(r);
        let kind = std::fs::symlink_metadata(self.root.join(&path)).unwrap().file_type();
        let dir = if kind.is_dir() { path.clone() } else { path.parent().unwrap().to_owned() };
        let new = dir.join(format!("n{}", r.below(NAMES)));
        match r.below(10) {
            0..3 if kind.is_file() => self.change(&path, r),
            3 if !kind.is_symlink() => self.attribute(&path, r),
            4 | 5 => self.remove(&path, kind.is_dir()),
            6 | 7 if self.root.join(&new).symlink_metadata().is_err() => match r.below(3) {
                0 => self.make(&new, NewKind::Dir),
                1 => self.make(&new, NewKind::Symlink(&vec![b's'; 1 + usize::try_from(r.below(150)).unwrap()])),
                _ => self.make(&new, NewKind::File),
            },
            8 => self.rename(&path, &new),
            _ => {
                let (to, _) = pick(r);
                if !to.starts_with(&path) && !path.starts_with(&to) {
                    self.rename(&path, &to);
                }
            }
        }
    }
}

/// Quire, e2fsck and the kernel see the tree of the host.
fn judge(t: &TestVolume, root: &Path, what: &str) {
    let tree = host(root);
    assert!(quire(&t.volume) == tree, "{what}: another tree");
    t.check();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), t.device.snapshot()).unwrap();
    if let Some(m) = Mounted::if_possible(file.path(), "loop,ro") {
        assert!(host(m.at.path()) == tree, "{what}: the kernel sees another tree");
    }
    let again = TestVolume::on(t.device.snapshot(), Options { read_only: true, ..Options::default() });
    assert!(quire(&again.volume) == tree, "{what}: another tree after a mount");
}

#[test]
fn random_changes_of_inline_inodes_are_those_of_any_file_system() {
    for (n, shape) in (0..).zip(SHAPES) {
        for seed in 1..=4 {
            let what = format!("mke2fs {shape:?}, seed {seed}");
            let root = tempfile::tempdir().unwrap();
            plant(root.path(), seed);
            let mut image = image(shape, root.path());
            let mut r = Rng::new(seed * 100 + n);
            for _ in 0..3 {
                let t = TestVolume::on(image, Options::default());
                let both = Both { v: &t.volume, root: root.path() };
                for _ in 0..25 {
                    both.step(&mut r);
                }
                judge(&t, root.path(), &what);
                image = t.device.snapshot();
            }
        }
    }
}

/// D3: a listing that goes on while names leave and the directory leaves its inode.
#[test]
fn a_listing_goes_on_where_it_was_when_a_directory_leaves_its_inode() {
    for shape in SHAPES {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("d")).unwrap();
        (0..4).for_each(|n| std::fs::write(root.path().join(format!("d/{n}")), "x").unwrap());
        let t = TestVolume::on(image(shape, root.path()), Options::default());
        let both = Both { v: &t.volume, root: root.path() };
        let dir = both.ino(Path::new("d"));
        let inline = || t.volume.run(|op| Ok(is_inline(&crate::records::inode(op, dir)?))).unwrap();
        let (mut seen, mut cookie, mut step) = (Vec::new(), 0, 0);
        loop {
            let mut one = None;
            let take =
                &mut |i: crate::DirItem<'_>| one.is_none() && one.replace((i.name.to_vec(), i.next_cookie)).is_none();
            t.volume.readdir(dir, cookie, take).unwrap();
            let Some((name, next)) = one else { break };
            (cookie, step) = (next, step + 1);
            if name.len() == 1 && name != b"." {
                seen.push(name.clone());
            }
            assert_eq!(inline(), step <= 4, "{shape:?}, step {step}");
            match step {
                3 => both.remove(&Path::new("d").join(std::ffi::OsStr::from_bytes(&name)), false),
                4 => both.make(Path::new("d/new name"), NewKind::File),
                _ => {}
            }
        }
        seen.sort();
        assert_eq!(seen, [b"0", b"1", b"2", b"3"].map(|n: &[u8; 1]| n.to_vec()), "{shape:?}");
        judge(&t, root.path(), "a listing");
    }
}

/// With no block free, names leave, get other inodes and move; files are cut to nothing.
#[test]
fn a_full_volume_can_be_emptied() {
    let root = tempfile::tempdir().unwrap();
    plant(root.path(), 3);
    let t = TestVolume::on(image(&["-b", "1024", "-I", "256", "-m", "0"], root.path()), Options::default());
    let both = Both { v: &t.volume, root: root.path() };
    both.make(Path::new("fill"), NewKind::File);
    let fill = both.ino(Path::new("fill"));
    let mut at = 0;
    for piece in [64 << 10, 1024] {
        while t.volume.write(fill, at, &vec![7; piece], WriteFlags::default()).is_ok() {
            at += piece as u64;
        }
    }
    let small = both.ino(Path::new("d1/n0"));
    let before = read(&t.volume, small);
    let told = t.volume.write(small, 0, b"x", WriteFlags::default());
    assert!(matches!(told, Err(Error::NoSpace)) && read(&t.volume, small) == before, "{told:?}");
    t.volume.truncate(small, 0).unwrap();
    std::fs::File::create(root.path().join("d1/n0")).unwrap();
    both.rename(Path::new("d4/n0"), Path::new("d4/n2"));
    both.remove(Path::new("d4/link"), false);
    both.remove(Path::new("d1/sub"), true);
    std::fs::remove_file(root.path().join("fill")).unwrap();
    t.volume.unlink(Ino::ROOT, b"fill").unwrap();
    judge(&t, root.path(), "a full volume");
}

/// The files of a directory, and how each may be after a crash: as it was, or as a call has left it.
fn files(v: &Volume) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let dir = v.lookup(Ino::ROOT, b"d").unwrap().ino;
    names(v, dir).into_iter().map(|(name, ino)| (name, read(v, ino))).collect()
}

/// Changes files and the directory, with power losses on the way; gives what a crash has lost.
fn loses(start: &[u8], route: Route, cut: u64) -> Option<String> {
    let o = PowerLossOptions { completion: Completion::AtWait, ..PowerLossOptions::default() };
    let device = Arc::new(PowerLossDevice::from_image(Image::from_bytes(start), o));
    let options = || Options { route, ..Options::default() };
    let v = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options()).unwrap();
    let before = files(&v);
    device.cut_at(device.steps() + cut);
    let dir = v.lookup(Ino::ROOT, b"d").unwrap().ino;
    let mut after = before.clone();
    for (n, name) in (0u64..).zip(before.keys()) {
        let Ok(ino) = v.lookup(dir, name).map(|a| a.ino) else { break };
        let file = after.get_mut(name).unwrap();
        let done = match n % 3 {
            0 => {
                file.extend(b"more");
                v.write(ino, 0, b"more", WriteFlags { append: true, ..WriteFlags::default() }).map(drop)
            }
            1 => {
                file.resize(file.len() + 3000, 0);
                v.truncate(ino, file.len() as u64)
            }
            _ => {
                file.truncate(file.len() / 2);
                v.truncate(ino, file.len() as u64)
            }
        };
        let new = New { kind: NewKind::File, mode: 0o600, umask: 0, cred: crate::Cred { uid: 0, gid: 0 } };
        let made = done.and_then(|()| v.create(dir, format!("new {n}").as_bytes(), &new));
        if made.and_then(|_| v.fsync(ino, n % 2 == 0)).is_err() {
            break;
        }
    }
    drop(v);
    for seed in 0..4 {
        let crash = Arc::new(MemDevice::new(device.crash(seed).image.to_vec()));
        let v = Volume::open(Devices::one(crash.clone()), Arc::new(SystemClock), options()).unwrap();
        let found = files(&v);
        v.close().unwrap();
        fsck(&crash.snapshot());
        for (name, old) in &before {
            let (got, new) = (found.get(name), &after[name]);
            // In place, new bytes may come later than the size.
            let same = |a: &[u8]| a.len() >= old.len().min(new.len()) && a.iter().zip(old).all(|(a, b)| a == b);
            if !got.is_some_and(|got| same(got)) {
                return Some(format!("{route:?}, cut {cut}, crash {seed}: {name:?} was {old:?}, is {got:?}"));
            }
        }
    }
    None
}

fn crash_image() -> Vec<u8> {
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("d")).unwrap();
    for n in 0..4u64 {
        std::fs::write(root.path().join(format!("d/{n}")), bytes(n, 5, 30 + 25 * n)).unwrap();
    }
    image(&["-b", "1024", "-I", "256"], root.path())
}

const CUTS: u64 = 40;

/// F25, D6.
#[test]
fn no_crash_loses_what_was_in_an_inode() {
    let start = crash_image();
    for route in [Route::Ordered, Route::Writeback, Route::Journal] {
        let lost: Vec<_> = (1..CUTS).filter_map(|cut| loses(&start, route, cut)).collect();
        assert!(lost.is_empty(), "{lost:?}");
    }
}

/// With the feature `mutants`, as in `make test`.
#[test]
#[cfg(feature = "mutants")]
fn a_file_that_leaves_its_inode_in_two_transactions_is_found() {
    use quire_device::Mutant;
    let start = crash_image();
    for mutant in Mutant::OF_INLINE_DATA {
        Mutant::set(Some(mutant));
        let lost = (1..CUTS).find_map(|cut| loses(&start, Route::Ordered, cut));
        Mutant::set(None);
        println!("{mutant:?}: {}", lost.expect("not found"));
    }
}

/// The place of an image's block that holds a file's first bytes; `None` while they are in the inode.
fn home(v: &Volume, ino: Ino) -> Option<BlockNo> {
    let inode = v.run(|op| crate::records::inode(op, ino)).unwrap();
    let found = || v.run(|op| crate::map::lookup(op, ino, &inode, quire_layout::FileBlock(0), 1)).unwrap().written();
    if is_inline(&inode) { None } else { found() }
}

/// What a file reads and owns on each side of its first change.
#[test]
fn a_file_leaves_its_inode_with_its_first_change_and_not_before() {
    let root = tempfile::tempdir().unwrap();
    plant(root.path(), 5);
    let t = TestVolume::on(image(SHAPES[0], root.path()), Options::default());
    let both = Both { v: &t.volume, root: root.path() };
    let ino = both.ino(Path::new("d1/n0"));
    t.volume.xattrs().set(ino, b"user.a", &[7; 90], XattrFlags::Any).unwrap();
    t.volume.setattr(ino, &SetAttr { mode: Some(0o600), ..SetAttr::default() }).unwrap();
    assert_eq!(home(&t.volume, ino), None);
    assert_eq!(t.volume.xattrs().list(ino).unwrap(), [b"user.a"]);
    t.volume.write(ino, 0, &read(&t.volume, ino)[..1], WriteFlags::default()).unwrap();
    assert!(home(&t.volume, ino).is_some());
    assert_eq!(t.volume.xattrs().get(ino, b"user.a").unwrap(), [7; 90]);
    judge(&t, root.path(), "the first change");
}
