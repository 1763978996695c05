//! Extended attributes and ACLs, call by call; e2fsck is asked after each test.

use crate::names::tests::objects::{IMAGES, dir, each_image, file, new};
use crate::records;
use crate::testing::TestVolume;
use crate::{Error, NewKind, Options, SetAttr, Volume, XattrFlags};
use quire_layout::Ino;
use quire_layout::acl::{Acl, Entry, Tag};

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT: &[u8] = b"system.posix_acl_default";

fn set(v: &Volume, ino: Ino, name: &str, value: &[u8]) {
    v.xattrs().set(ino, name.as_bytes(), value, XattrFlags::Any).unwrap();
}

fn get(v: &Volume, ino: Ino, name: &str) -> Option<Vec<u8>> {
    v.xattrs().get(ino, name.as_bytes()).ok()
}

#[test]
fn attributes_are_kept_moved_and_removed() {
    each_image(|t| {
        let v = &t.volume;
        let f = file(v, Ino::ROOT, "f").ino;
        let free = v.statfs().free;
        let sectors = v.getattr(f).unwrap().sectors;
        set(v, f, "user.small", b"1");
        set(v, f, "trusted.t", b"");
        set(v, f, "security.selinux", b"label");
        set(v, f, "user.big", &[7; 500]);
        let bs = v.superblock().block_size().bytes64();
        assert_eq!(v.getattr(f).unwrap().sectors, sectors + bs / 512);
        assert_eq!(get(v, f, "user.big").unwrap(), [7; 500]);
        // From the inode to the block and back.
        set(v, f, "user.small", &[8; 300]);
        assert_eq!(get(v, f, "user.small").unwrap(), [8; 300]);
        set(v, f, "user.small", b"2");
        let mut names = v.xattrs().list(f).unwrap();
        names.sort();
        assert_eq!(names, [&b"security.selinux"[..], b"trusted.t", b"user.big", b"user.small"]);
        assert!(matches!(v.xattrs().set(f, b"user.big", b"", XattrFlags::Create), Err(Error::Exists)));
        assert!(matches!(v.xattrs().set(f, b"user.none", b"", XattrFlags::Replace), Err(Error::NoData)));
        for name in ["user.big", "user.small", "trusted.t", "security.selinux"] {
            v.xattrs().remove(f, name.as_bytes()).unwrap();
            assert_eq!(get(v, f, name), None);
        }
        assert!(matches!(v.xattrs().remove(f, b"user.big"), Err(Error::NoData)));
        assert_eq!(v.getattr(f).unwrap().sectors, sectors);
        v.sync().unwrap();
        assert_eq!(v.statfs().free, free);
    });
}

#[test]
fn what_cannot_be_set_is_refused() {
    each_image(|t| {
        let v = &t.volume;
        let f = file(v, Ino::ROOT, "f").ino;
        let bs = v.superblock().block_size().bytes();
        let try_set = |name: &[u8], len: usize| v.xattrs().set(f, name, &vec![1; len], XattrFlags::Any);
        assert!(matches!(try_set(b"user.", 1), Err(Error::Invalid(_))));
        assert!(matches!(try_set(b"os2.x", 1), Err(Error::NotSupported(_))));
        assert!(matches!(try_set(b"system.data", 1), Err(Error::NotSupported(_))));
        assert!(matches!(try_set(&[&b"user."[..], &[b'n'; 256]].concat(), 1), Err(Error::Range)));
        try_set(&[&b"user."[..], &[b'n'; 255]].concat(), 1).unwrap();
        v.xattrs().remove(f, &[&b"user."[..], &[b'n'; 255]].concat()).unwrap();
        assert!(matches!(try_set(b"user.x", 65537), Err(Error::TooBig)));
        // Header, entry with its name, end.
        assert!(matches!(try_set(b"user.x", bs - 32 - 20 - 4 + 1), Err(Error::NoSpace)));
        try_set(b"user.x", bs - 32 - 20 - 4).unwrap();
        assert_eq!(get(v, f, "user.x").unwrap().len(), bs - 56);
        let l = v.create(Ino::ROOT, b"l", &new(NewKind::Symlink(b"x"), 0)).unwrap().ino;
        assert!(matches!(v.xattrs().set(l, b"user.x", b"", XattrFlags::Any), Err(Error::NotPermitted(_))));
        v.xattrs().set(l, b"trusted.x", b"1", XattrFlags::Any).unwrap();
        assert!(matches!(v.xattrs().set(l, ACCESS, b"", XattrFlags::Any), Err(Error::NotSupported(_))));
    });
}

/// N4.
#[test]
fn equal_blocks_are_shared_and_copied_on_write() {
    each_image(|t| {
        let v = &t.volume;
        let files: Vec<Ino> = (0..5).map(|n| file(v, Ino::ROOT, &format!("f{n}")).ino).collect();
        let free = || {
            v.sync().unwrap();
            v.statfs().free
        };
        let before = free();
        for f in &files {
            set(v, *f, "user.label", &[9; 400]);
        }
        assert_eq!(free(), before - 1);
        set(v, files[0], "user.label", &[8; 400]);
        assert_eq!(free(), before - 2);
        assert_eq!(get(v, files[1], "user.label").unwrap(), [9; 400]);
        set(v, files[0], "user.label", &[9; 400]);
        assert_eq!(free(), before - 1, "shared again");
        for (n, f) in files.iter().enumerate().skip(1) {
            v.unlink(Ino::ROOT, format!("f{n}").as_bytes()).unwrap();
            v.forget(*f, 1);
            assert_eq!(free(), before - 1);
        }
        assert_eq!(get(v, files[0], "user.label").unwrap(), [9; 400]);
        v.xattrs().remove(files[0], b"user.label").unwrap();
        assert_eq!(free(), before);
        // The freed block is nobody's to share.
        set(v, files[0], "user.label", &[9; 400]);
        assert_eq!(get(v, files[0], "user.label").unwrap(), [9; 400]);
    });
}

#[test]
fn a_block_is_shared_by_1024_inodes_and_no_more() {
    let t = TestVolume::new("24M", &["-t", "ext4", "-b", "1024", "-N", "3000"]);
    let v = &t.volume;
    let before = v.statfs().free;
    let d = dir(v, Ino::ROOT, "d").ino;
    for n in 0..1030 {
        let p = v.create(d, format!("{n}").as_bytes(), &new(NewKind::Node { file_type: 0x1000, device: (0, 0) }, 0));
        set(v, p.unwrap().ino, "trusted.label", &[9; 400]);
    }
    v.sync().unwrap();
    let dir_blocks = v.getattr(d).unwrap().sectors / 2;
    assert_eq!(before - v.statfs().free, dir_blocks + 2);
    t.check();
}

fn acl(named: &[(Tag, u16)], (u, g, m, o): (u16, u16, u16, u16)) -> Acl {
    let e = |tag, perm| Entry { tag, perm };
    let mut entries = vec![e(Tag::UserObj, u)];
    entries.extend(named.iter().filter(|n| matches!(n.0, Tag::User(_))).map(|n| e(n.0, n.1)));
    entries.push(e(Tag::GroupObj, g));
    entries.extend(named.iter().filter(|n| matches!(n.0, Tag::Group(_))).map(|n| e(n.0, n.1)));
    if !named.is_empty() {
        entries.push(e(Tag::Mask, m));
    }
    entries.push(e(Tag::Other, o));
    Acl { entries }
}

/// N5.
#[test]
fn access_lists_and_mode_say_the_same() {
    each_image(|t| {
        let v = &t.volume;
        let f = file(v, Ino::ROOT, "f").ino;
        let list = acl(&[(Tag::User(5), 7), (Tag::Group(6), 1)], (7, 5, 6, 4));
        set(v, f, "system.posix_acl_access", &list.to_xattr());
        assert_eq!(v.getattr(f).unwrap().mode, 0o100_764);
        assert_eq!(v.xattrs().get(f, ACCESS).unwrap(), list.to_xattr());
        v.setattr(f, &SetAttr { mode: Some(0o610), ..SetAttr::default() }).unwrap();
        let changed = acl(&[(Tag::User(5), 7), (Tag::Group(6), 1)], (6, 5, 1, 0));
        assert_eq!(v.xattrs().get(f, ACCESS).unwrap(), changed.to_xattr());
        // No more than a mode: becomes one.
        set(v, f, "system.posix_acl_access", &acl(&[], (4, 2, 0, 1)).to_xattr());
        assert_eq!(v.getattr(f).unwrap().mode, 0o100_421);
        assert!(matches!(v.xattrs().get(f, ACCESS), Err(Error::NoData)));
        v.xattrs().remove(f, ACCESS).unwrap();
        assert!(matches!(v.xattrs().set(f, ACCESS, b"\x02\0\0\0junk", XattrFlags::Any), Err(Error::Invalid(_))));
        let no_mask = Acl { entries: list.entries.iter().filter(|e| e.tag != Tag::Mask).copied().collect() };
        assert!(matches!(v.xattrs().set(f, ACCESS, &no_mask.to_xattr(), XattrFlags::Any), Err(Error::Invalid(_))));
        assert!(matches!(v.xattrs().set(f, DEFAULT, &list.to_xattr(), XattrFlags::Any), Err(Error::Access)));
    });
}

#[test]
fn default_lists_are_inherited_instead_of_the_umask() {
    each_image(|t| {
        let v = &t.volume;
        let d = dir(v, Ino::ROOT, "d").ino;
        let list = acl(&[(Tag::User(5), 7)], (7, 5, 7, 4));
        set(v, d, "system.posix_acl_default", &list.to_xattr());
        assert_eq!(v.getattr(d).unwrap().mode, 0o040_755, "a default list says nothing about the directory itself");
        let f = file(v, d, "f");
        // 666 asked for, umask 022 not looked at, the list grants 7, 7 (mask), 4.
        assert_eq!(f.mode, 0o100_664);
        assert_eq!(v.xattrs().get(f.ino, ACCESS).unwrap(), acl(&[(Tag::User(5), 7)], (6, 5, 6, 4)).to_xattr());
        assert!(matches!(v.xattrs().get(f.ino, DEFAULT), Err(Error::NoData)));
        let sub = dir(v, d, "sub");
        assert_eq!(v.xattrs().get(sub.ino, DEFAULT).unwrap(), list.to_xattr());
        assert_eq!(sub.mode, 0o040_774);
        let l = v.create(d, b"l", &new(NewKind::Symlink(b"x"), 0)).unwrap();
        assert_eq!((l.mode, v.xattrs().list(l.ino).unwrap().len()), (0o120_777, 0));
        // A default list that is a mode and no more is kept as such.
        set(v, d, "system.posix_acl_default", &acl(&[], (7, 1, 0, 0)).to_xattr());
        let g = file(v, d, "g");
        assert_eq!((g.mode, v.xattrs().list(g.ino).unwrap().len()), (0o100_600, 0));
        v.xattrs().remove(d, DEFAULT).unwrap();
        assert_eq!(file(v, d, "h").mode, 0o100_644);
    });
}

#[test]
fn a_shared_block_on_a_full_disk_stays_as_it_is() {
    let t = TestVolume::new("4M", &[IMAGES[1], &["-N", "3000"]].concat());
    let v = &t.volume;
    let (f, g) = (file(v, Ino::ROOT, "f").ino, file(v, Ino::ROOT, "g").ino);
    for ino in [f, g] {
        set(v, ino, "user.label", &[9; 400]);
    }
    for n in 0u32.. {
        // A name may take a block of its own: where names go depends on the image's hash seed.
        let made = v.create(Ino::ROOT, format!("fill{n}").as_bytes(), &new(NewKind::File, 0o644));
        let value = [&[1; 400][..], &n.to_le_bytes()].concat();
        match made.and_then(|p| v.xattrs().set(p.ino, b"user.label", &value, XattrFlags::Any)) {
            Ok(()) => {}
            Err(Error::NoSpace) => break,
            Err(e) => panic!("{e}"),
        }
    }
    let before = v.getattr(f).unwrap();
    assert!(matches!(v.xattrs().set(f, b"user.label", &[8; 400], XattrFlags::Any), Err(Error::NoSpace)));
    assert_eq!((get(v, f, "user.label").unwrap(), v.getattr(f).unwrap()), (vec![9; 400], before));
    v.xattrs().set(f, b"user.label", b"fits the inode", XattrFlags::Any).unwrap();
    assert_eq!(get(v, g, "user.label").unwrap(), [9; 400]);
    t.check();
}

/// N4: a block that an operation takes and frees again is not remembered.
#[test]
fn a_block_of_one_operation_is_not_shared_later() {
    let t = TestVolume::new("24M", IMAGES[5]);
    let v = &t.volume;
    let d = dir(v, Ino::ROOT, "d").ino;
    set(v, d, "system.posix_acl_default", &acl(&[(Tag::User(5), 7)], (7, 5, 7, 4)).to_xattr());
    // Both lists in one block; for the second directory the block with the first list alone is given up for a shared
    // one.
    let make = |name: &str, kind| v.create(d, name.as_bytes(), &new(kind, 0o666)).unwrap().ino;
    let (a, b) = (make("a", NewKind::Dir), make("b", NewKind::Dir));
    let block = |ino| v.run(|op| Ok(records::inode(op, ino)?.xattr_block())).unwrap();
    assert_eq!(block(a), block(b));
    let f = make("f", NewKind::File);
    assert_eq!(v.xattrs().get(f, ACCESS).unwrap(), v.xattrs().get(a, ACCESS).unwrap());
    t.check();
}

/// The feature goes with revision 1: e2fsck would mend revision 0.
#[test]
fn the_first_block_of_attributes_makes_revision_0_revision_1() {
    let t = TestVolume::new("16M", &["-t", "ext2", "-r", "0"]);
    assert_eq!(t.volume.superblock().revision(), 0);
    let f = file(&t.volume, Ino::ROOT, "f").ino;
    set(&t.volume, f, "user.a", &[1; 300]);
    t.check();
    let image = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(image.path(), t.device.snapshot()).unwrap();
    quire_testkit::run("e2fsck", &["-fp", image.path().to_str().unwrap()]);
    let again = TestVolume::on(std::fs::read(image.path()).unwrap(), Options::default());
    let sb = again.volume.superblock();
    assert_eq!((sb.revision(), sb.first_ino(), sb.inode_size()), (1, Ino(11), 128));
    assert_eq!(get(&again.volume, f, "user.a").unwrap(), [1; 300]);
}
