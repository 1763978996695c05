//! What the tests of names, inodes and attributes share.

use crate::testing::TestVolume;
use crate::{Attr, Cred, New, NewKind, Volume};
use quire_layout::Ino;

/// Kinds of images that everything must work on: size and arguments of mke2fs.
pub(crate) const IMAGES: &[&[&str]] = &[
    &["-t", "ext4", "-b", "4096"],
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum"],
    &["-t", "ext4", "-b", "4096", "-O", "orphan_file,metadata_csum_seed"],
    &["-t", "ext4", "-b", "1024", "-O", "orphan_file,^metadata_csum", "-I", "128"],
    &["-t", "ext4", "-b", "2048", "-I", "128"],
    &["-t", "ext3", "-b", "1024"],
    &["-t", "ext3", "-b", "4096", "-I", "128"],
    &["-t", "ext2", "-b", "1024", "-I", "512"],
];

pub(crate) fn each_image(f: impl Fn(&TestVolume)) {
    for args in IMAGES {
        println!("mke2fs {args:?}");
        let t = TestVolume::new("24M", args);
        f(&t);
        t.check();
    }
}

pub(crate) fn new(kind: NewKind<'_>, mode: u16) -> New<'_> {
    New { kind, mode, umask: 0o022, cred: Cred { uid: 1000, gid: 100 } }
}

pub(crate) fn file(v: &Volume, parent: Ino, name: &str) -> Attr {
    v.create(parent, name.as_bytes(), &new(NewKind::File, 0o666)).unwrap()
}

pub(crate) fn dir(v: &Volume, parent: Ino, name: &str) -> Attr {
    v.create(parent, name.as_bytes(), &new(NewKind::Dir, 0o777)).unwrap()
}

/// Gives back every reference that a test has taken.
pub(crate) fn give_back_all(v: &Volume) {
    let held: Vec<(Ino, u64)> = v.engine().tables().refs.iter().map(|(ino, n)| (*ino, *n)).collect();
    for (ino, n) in held {
        v.forget(ino, n);
    }
}
