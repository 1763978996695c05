//! Names and inodes, call by call; e2fsck is asked after each test.

mod kernel;
mod listings;
mod model;
pub(crate) mod objects;
mod orphan;
mod privileges;
mod threads;

use crate::data::WriteFlags;
use crate::records;
use crate::testing::TestVolume;
use crate::{Cred, Error, NewKind, Options, Privileges, RenameFlags, SetAttr, SetTime, Volume, XattrFlags};
use objects::{IMAGES, dir, each_image, file, give_back_all, new};
use quire_layout::Ino;
use quire_layout::inode::{Timestamp, flags};
use quire_testkit::mke2fs;

fn links(v: &Volume, ino: Ino) -> u32 {
    v.getattr(ino).unwrap().links
}

fn names(v: &Volume, dir: Ino) -> Vec<String> {
    let mut out = Vec::new();
    v.readdir(dir, 0, &mut |i| {
        out.push(String::from_utf8_lossy(i.name).into_owned());
        true
    })
    .unwrap();
    out.sort();
    out
}

#[test]
fn objects_of_every_kind_are_made_found_and_removed() {
    each_image(|t| {
        let v = &t.volume;
        let root = Ino::ROOT;
        let before = v.statfs();
        let long = vec![b'x'; 800];
        let kinds: [(&str, NewKind<'_>, u16); 8] = [
            ("file", NewKind::File, 0o100_644),
            ("dir", NewKind::Dir, 0o040_755),
            ("fast", NewKind::Symlink(b"target"), 0o120_777),
            ("slow", NewKind::Symlink(&long), 0o120_777),
            ("pipe", NewKind::Node { file_type: 0x1000, device: (0, 0) }, 0o010_644),
            ("socket", NewKind::Node { file_type: 0xC000, device: (0, 0) }, 0o140_644),
            ("char", NewKind::Node { file_type: 0x2000, device: (5, 1) }, 0o020_644),
            ("block", NewKind::Node { file_type: 0x6000, device: (259, 70000) }, 0o060_644),
        ];
        for (name, kind, mode) in kinds {
            let made = v.create(root, name.as_bytes(), &new(kind, 0o777 & mode | 0o022)).unwrap();
            assert_eq!(made.mode, mode, "{name}");
            assert_eq!((made.uid, made.gid), (1000, 100));
            let found = v.lookup(root, name.as_bytes()).unwrap();
            assert_eq!(found, made);
            assert!(matches!(v.create(root, name.as_bytes(), &new(kind, 0o600)), Err(Error::Exists)));
            v.forget(made.ino, 2);
        }
        assert_eq!(v.readlink(v.lookup(root, b"fast").unwrap().ino).unwrap(), b"target");
        assert_eq!(v.readlink(v.lookup(root, b"slow").unwrap().ino).unwrap(), long);
        assert_eq!(v.lookup(root, b"block").unwrap().device, (259, 70000));
        assert_eq!(v.lookup(root, b"char").unwrap().device, (5, 1));
        assert_eq!(links(v, root), 4, "root, lost+found, dir");
        for (name, kind, _) in kinds {
            if kind == NewKind::Dir {
                assert!(matches!(v.unlink(root, name.as_bytes()), Err(Error::IsDir)));
                v.rmdir(root, name.as_bytes()).unwrap();
            } else {
                assert!(matches!(v.rmdir(root, name.as_bytes()), Err(Error::NotDir)));
                v.unlink(root, name.as_bytes()).unwrap();
            }
            assert!(matches!(v.lookup(root, name.as_bytes()), Err(Error::NotFound)));
        }
        assert_eq!(links(v, root), 3);
        assert_eq!(names(v, root), [".", "..", "lost+found"]);
        give_back_all(v);
        assert_eq!(v.statfs().free_inodes, before.free_inodes);
        assert_eq!(v.statfs().free, before.free);
    });
}

#[test]
fn names_that_cannot_be_are_refused() {
    each_image(|t| {
        let v = &t.volume;
        let f = file(v, Ino::ROOT, "f");
        let long = [b'n'; 256];
        assert!(matches!(v.create(Ino::ROOT, &long, &new(NewKind::File, 0)), Err(Error::NameTooLong)));
        assert!(v.create(Ino::ROOT, &long[..255], &new(NewKind::File, 0)).is_ok());
        assert!(matches!(v.create(Ino::ROOT, b".", &new(NewKind::Dir, 0)), Err(Error::Exists)));
        assert!(matches!(v.create(Ino::ROOT, b"..", &new(NewKind::Dir, 0)), Err(Error::Exists)));
        assert!(matches!(v.rmdir(Ino::ROOT, b"."), Err(Error::Invalid(_))));
        assert!(matches!(v.rmdir(Ino::ROOT, b".."), Err(Error::NotEmpty)));
        assert!(matches!(v.lookup(f.ino, b"x"), Err(Error::NotDir)));
        assert!(matches!(v.getattr(Ino(8)), Err(Error::Stale(_))), "the journal has no number for users");
        let too_long = vec![b't'; v.superblock().block_size().bytes()];
        assert!(matches!(v.create(Ino::ROOT, b"l", &new(NewKind::Symlink(&too_long), 0)), Err(Error::NameTooLong)));
        let most = &too_long[1..];
        let l = v.create(Ino::ROOT, b"l", &new(NewKind::Symlink(most), 0)).unwrap();
        assert_eq!(v.readlink(l.ino).unwrap(), most);
        assert_eq!(v.lookup(Ino::ROOT, b"..").unwrap().ino, Ino::ROOT);
    });
}

#[test]
fn links_are_counted_and_the_last_one_waits_for_the_last_reference() {
    each_image(|t| {
        let v = &t.volume;
        let d = dir(v, Ino::ROOT, "d");
        let f = file(v, Ino::ROOT, "f");
        let free = v.statfs().free_inodes;
        assert_eq!(v.link(f.ino, d.ino, b"g").unwrap().links, 2);
        assert!(matches!(v.link(d.ino, Ino::ROOT, b"e"), Err(Error::NotPermitted(_))));
        v.unlink(Ino::ROOT, b"f").unwrap();
        assert_eq!(links(v, f.ino), 1);
        v.unlink(d.ino, b"g").unwrap();
        assert_eq!(links(v, f.ino), 0, "still open");
        assert!(matches!(v.link(f.ino, d.ino, b"again"), Err(Error::NotFound)));
        assert_eq!(v.statfs().free_inodes, free);
        v.forget(f.ino, 2);
        assert_eq!(v.statfs().free_inodes, free + 1);
        assert!(matches!(v.getattr(f.ino), Err(Error::Stale(_))));
        v.rmdir(Ino::ROOT, b"d").unwrap();
        assert!(matches!(v.create(d.ino, b"x", &new(NewKind::File, 0)), Err(Error::NotFound)));
        assert!(matches!(v.lookup(d.ino, b".."), Err(Error::NotFound)));
        assert!(names(v, d.ino).is_empty());
        v.forget(d.ino, 1);
        assert_eq!(v.statfs().free_inodes, free + 2);
    });
}

/// N6, N7.
#[test]
fn rename_moves_replaces_and_exchanges() {
    each_image(|t| {
        let v = &t.volume;
        let root = Ino::ROOT;
        let plain = RenameFlags::default();
        let (a, b) = (dir(v, root, "a"), dir(v, root, "b"));
        let c = dir(v, a.ino, "c");
        let f = file(v, root, "f");
        assert!(matches!(v.rename(root, b"a", c.ino, b"x", plain), Err(Error::Invalid(_))));
        assert!(matches!(v.rename(root, b"a", a.ino, b"x", plain), Err(Error::Invalid(_))));
        assert!(matches!(v.rename(root, b"f", root, b"a", plain), Err(Error::IsDir)));
        assert!(matches!(v.rename(root, b"a", root, b"f", plain), Err(Error::NotDir)));
        assert!(matches!(v.rename(root, b"b", root, b"a", plain), Err(Error::NotEmpty)));
        let no_replace = RenameFlags { no_replace: true, ..plain };
        assert!(matches!(v.rename(root, b"f", root, b"a", no_replace), Err(Error::Exists)));
        // A directory to another one: "..", and both counts.
        v.rename(a.ino, b"c", b.ino, b"c", plain).unwrap();
        assert_eq!((links(v, a.ino), links(v, b.ino)), (2, 3));
        assert_eq!(v.lookup(c.ino, b"..").unwrap().ino, b.ino);
        // Over an empty directory.
        v.rename(b.ino, b"c", root, b"a", plain).unwrap();
        assert_eq!((links(v, a.ino), links(v, b.ino), links(v, root)), (0, 2, 5));
        assert_eq!(v.lookup(root, b"a").unwrap().ino, c.ino);
        // A directory and a file change places.
        let exchange = RenameFlags { exchange: true, ..plain };
        v.rename(root, b"f", b.ino, b"none", exchange).unwrap_err();
        let g = file(v, b.ino, "g");
        v.rename(root, b"a", b.ino, b"g", exchange).unwrap();
        assert_eq!((links(v, b.ino), links(v, root)), (3, 4));
        assert_eq!(v.lookup(root, b"a").unwrap().ino, g.ino);
        assert_eq!(v.lookup(c.ino, b"..").unwrap().ino, b.ino);
        assert!(matches!(v.rename(b.ino, b"g", root, b"b", exchange), Err(Error::Invalid(_))));
        // Two names of one inode.
        v.link(f.ino, root, b"f2").unwrap();
        v.rename(root, b"f", root, b"f2", plain).unwrap();
        assert_eq!((links(v, f.ino), names(v, root).len()), (2, 7));
        v.rename(root, b"f", root, b"f", plain).unwrap();
        // A whiteout stays where a name was, whatever it meant.
        let white = RenameFlags { whiteout: Some(Cred { uid: 3, gid: 4 }), ..plain };
        assert!(v.rename(root, b"b", root, b"a", RenameFlags { exchange: true, ..white }).is_err());
        for (name, from, to) in [(&b"b"[..], root, root), (b"f", root, b.ino)] {
            v.rename(from, name, to, b"moved", white).unwrap();
            let w = v.lookup(from, name).unwrap();
            assert_eq!((w.mode, w.device, w.links, w.uid), (0o020_000, (0, 0), 1, 3));
            v.unlink(from, name).unwrap();
            v.rename(to, b"moved", from, name, plain).unwrap();
        }
        assert_eq!((links(v, b.ino), links(v, root)), (3, 4));
        // A file over a file.
        v.rename(root, b"f", root, b"a", plain).unwrap();
        assert_eq!((links(v, g.ino), links(v, f.ino)), (0, 2));
        give_back_all(v);
        assert!(matches!(v.getattr(g.ino), Err(Error::Stale(_))));
    });
}

#[test]
fn group_and_flags_come_from_the_directory() {
    let t = TestVolume::new("24M", IMAGES[0]);
    let v = &t.volume;
    let d = dir(v, Ino::ROOT, "d");
    v.setattr(d.ino, &SetAttr { gid: Some(77), mode: Some(0o2775), ..SetAttr::default() }).unwrap();
    v.inode_flags()
        .set(d.ino, flags::NODUMP | flags::NOATIME | flags::DIRSYNC | flags::TOPDIR | flags::EXTENTS)
        .unwrap();
    let sub = dir(v, d.ino, "sub");
    assert_eq!((sub.gid, sub.mode), (77, 0o042_755));
    let inherited = flags::NODUMP | flags::NOATIME;
    assert_eq!(v.inode_flags().get(sub.ino).unwrap(), inherited | flags::DIRSYNC | flags::EXTENTS);
    let f = file(v, d.ino, "f");
    assert_eq!((f.gid, f.mode), (77, 0o100_644));
    assert_eq!(v.inode_flags().get(f.ino).unwrap(), inherited | flags::EXTENTS);
    let l = v.create(d.ino, b"l", &new(NewKind::Symlink(b"x"), 0)).unwrap();
    assert_eq!(v.inode_flags().get(l.ino).unwrap(), inherited);
    let alone = |name: &[u8], kind| crate::create_alone(v, d.ino, name, &new(kind, 0o777)).unwrap();
    for a in [alone(b"dir alone", NewKind::Dir), alone(b"file alone", NewKind::File)] {
        assert_eq!((a.gid, a.mode & 0o7777), (100, 0o755));
        assert_eq!(v.inode_flags().get(a.ino).unwrap(), flags::EXTENTS);
    }
    t.check();
    let grpid = TestVolume::on(t.device.snapshot(), Options { grpid: true, ..Options::default() });
    let v = &grpid.volume;
    v.setattr(d.ino, &SetAttr { mode: Some(0o775), ..SetAttr::default() }).unwrap();
    assert_eq!((dir(v, d.ino, "sub2").gid, dir(v, d.ino, "sub3").mode), (77, 0o040_755));
    grpid.check();
}

/// N9.
#[test]
fn immutable_and_append_only_are_kept() {
    let t = TestVolume::new("24M", IMAGES[0]);
    let v = &t.volume;
    let (d, e) = (dir(v, Ino::ROOT, "d"), dir(v, Ino::ROOT, "e"));
    let f = file(v, d.ino, "f");
    let denied = |r: crate::Result<()>| assert!(matches!(r, Err(Error::NotPermitted(_))), "{r:?}");
    let chmod = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let plain = RenameFlags::default();
    for flag in [flags::IMMUTABLE, flags::APPEND] {
        v.inode_flags().set(f.ino, flag | flags::EXTENTS).unwrap();
        denied(v.unlink(d.ino, b"f"));
        denied(v.rename(d.ino, b"f", e.ino, b"f", plain));
        denied(v.link(f.ino, e.ino, b"f").map(drop));
        denied(v.setattr(f.ino, &chmod).map(drop));
        denied(v.xattrs().set(f.ino, b"user.a", b"1", XattrFlags::Any));
        let now = v.setattr(f.ino, &SetAttr { mtime: Some(SetTime::Now), ..SetAttr::default() });
        assert_eq!(now.is_ok(), flag == flags::APPEND);
        if flag == flags::IMMUTABLE {
            denied(v.inode_flags().set(f.ino, flag | flags::NODUMP | flags::EXTENTS));
        }
        v.inode_flags().set(f.ino, flags::EXTENTS).unwrap();
    }
    v.inode_flags().set(d.ino, flags::APPEND | flags::EXTENTS).unwrap();
    denied(v.unlink(d.ino, b"f"));
    denied(v.rename(d.ino, b"f", e.ino, b"f", plain));
    file(v, d.ino, "g");
    v.inode_flags().set(d.ino, flags::IMMUTABLE | flags::EXTENTS).unwrap();
    denied(v.create(d.ino, b"h", &new(NewKind::File, 0)).map(drop));
    denied(v.unlink(d.ino, b"g"));
    denied(v.link(f.ino, d.ino, b"h").map(drop));
    v.inode_flags().set(d.ino, flags::EXTENTS).unwrap();
    assert!(matches!(v.inode_flags().set(f.ino, 0), Err(Error::NotSupported(_))), "no conversion of the map");
    v.unlink(d.ino, b"f").unwrap();
    t.check();
}

#[test]
fn attributes_are_set_and_privileges_fall() {
    each_image(|t| {
        let v = &t.volume;
        let f = file(v, Ino::ROOT, "f");
        let set = |s: SetAttr| v.setattr(f.ino, &s).unwrap();
        assert_eq!(set(SetAttr { mode: Some(0o6755), ..SetAttr::default() }).mode, 0o106_755);
        v.xattrs().set(f.ino, b"security.capability", b"caps", XattrFlags::Any).unwrap();
        let a = set(SetAttr { uid: Some(70_000), gid: Some(80_000), ..SetAttr::default() });
        assert_eq!((a.uid, a.gid, a.mode), (70_000, 80_000, 0o100_755));
        assert!(matches!(v.xattrs().get(f.ino, b"security.capability"), Err(Error::NoData)));
        set(SetAttr { mode: Some(0o6644), ..SetAttr::default() });
        let a = set(SetAttr { privileges: Privileges::Drop, ..SetAttr::default() });
        assert_eq!(a.mode, 0o102_644, "set-group-id without execution is something else");
        let a = set(SetAttr { privileges: Privileges::DropAll, ..SetAttr::default() });
        assert_eq!(a.mode, 0o100_644, "but not for one who is not in the group");
        let wide = v.superblock().inode_size() > 128;
        let at = Timestamp { secs: 0x1_8000_0000, nanos: 123_456_789 };
        let a = set(SetAttr { atime: Some(SetTime::At(at)), mtime: Some(SetTime::At(at)), ..SetAttr::default() });
        let kept = if wide { at } else { Timestamp { secs: 0x7FFF_FFFF, nanos: 0 } };
        assert_eq!((a.atime, a.mtime, a.crtime.is_some()), (kept, kept, wide));
        assert!(a.ctime.secs < 0x7FFF_FFFF);
        assert_eq!(v.getattr(f.ino).unwrap(), a);
    });
}

/// N1, N6.
#[test]
fn a_file_without_a_name_gets_one_or_goes() {
    each_image(|t| {
        let v = &t.volume;
        let free = v.statfs();
        let d = dir(v, Ino::ROOT, "d").ino;
        let make = || v.create_unnamed(d, &new(NewKind::File, 0)).unwrap();
        let (a, b, c) = (make(), make(), make());
        assert_eq!((a.links, v.getattr(a.ino).unwrap().links), (0, 0));
        v.write(b.ino, 0, &[5; 30_000], WriteFlags::default()).unwrap();
        // The middle one of the list.
        let named = v.link(b.ino, d, b"b").unwrap();
        assert_eq!((named.links, named.size), (1, 30_000));
        v.forget(b.ino, 2);
        v.unlink(d, b"b").unwrap();
        assert!(matches!(v.lookup(d, b"b"), Err(Error::NotFound)));
        v.link(c.ino, Ino::ROOT, b"c").unwrap();
        v.unlink(Ino::ROOT, b"c").unwrap();
        assert!(matches!(v.link(c.ino, Ino::ROOT, b"again"), Err(Error::NotFound)), "it has had its name");
        assert!(v.create_unnamed(d, &new(NewKind::Dir, 0)).is_err());
        v.link(a.ino, d, b"a").unwrap();
        // A crash now: `a` has its name, `c` leaves nothing.
        v.maintenance().commit().unwrap();
        let again = TestVolume::on(t.device.snapshot(), Options::default());
        assert_eq!(again.volume.lookup(d, b"a").unwrap().ino, a.ino);
        assert!(matches!(again.volume.getattr(c.ino), Err(Error::Stale(_))));
        again.check();
        v.forget(a.ino, 2);
        v.forget(c.ino, 2);
        v.unlink(d, b"a").unwrap();
        v.rmdir(Ino::ROOT, b"d").unwrap();
        v.forget(d, 1);
        v.maintenance().commit().unwrap();
        assert_eq!(v.statfs().free_inodes, free.free_inodes);
    });
}

#[test]
fn access_times_follow_relatime() {
    let t = TestVolume::new("24M", IMAGES[0]);
    let v = &t.volume;
    let f = file(v, Ino::ROOT, "f");
    let at = |secs| Some(SetTime::At(Timestamp { secs, nanos: 0 }));
    let atime = || v.getattr(f.ino).unwrap().atime.secs;
    let now = v.engine().now().secs;
    // Newer than both others, and not a day old: stays.
    v.setattr(f.ino, &SetAttr { atime: at(now + 100), mtime: at(1), ..SetAttr::default() }).unwrap();
    v.touch_atime(f.ino).unwrap();
    assert_eq!(atime(), now + 100);
    v.setattr(f.ino, &SetAttr { atime: at(5), mtime: at(6), ..SetAttr::default() }).unwrap();
    v.touch_atime(f.ino).unwrap();
    assert!(atime() >= now);
    v.setattr(f.ino, &SetAttr { atime: at(5), mtime: at(6), ..SetAttr::default() }).unwrap();
    v.inode_flags().set(f.ino, flags::NOATIME | flags::EXTENTS).unwrap();
    v.touch_atime(f.ino).unwrap();
    assert_eq!(atime(), 5);
    t.check();
}

#[test]
fn a_full_disk_leaves_nothing_half_done() {
    for args in [IMAGES[0], IMAGES[1], IMAGES[4], IMAGES[6]] {
        // Few inodes: they run out first. Many: the blocks do.
        for inodes in ["40", "3000"] {
            let t = TestVolume::on(mke2fs("4M", &[args, &["-N", inodes]].concat()), Options::default());
            let v = &t.volume;
            let (root, before) = (Ino::ROOT, v.statfs());
            let long = [b'x'; 900];
            let mut made = 0;
            let refused = loop {
                let kind = if made % 3 == 0 { NewKind::Dir } else { NewKind::Symlink(&long) };
                let name = format!("{made:0200}");
                let full = v.statfs();
                match v.create(root, name.as_bytes(), &new(kind, 0o755)) {
                    Ok(_) => made += 1,
                    Err(e) => {
                        assert_eq!(v.statfs(), full, "N8");
                        break e;
                    }
                }
            };
            assert!(matches!(refused, Error::NoSpace | Error::NoInodes), "{refused:?}");
            assert_eq!(names(v, root).len(), made + 3);
            give_back_all(v);
            for n in 0..made {
                let name = format!("{n:0200}");
                if n % 3 == 0 { v.rmdir(root, name.as_bytes()) } else { v.unlink(root, name.as_bytes()) }.unwrap();
            }
            let after = v.statfs();
            assert_eq!(after.free_inodes, before.free_inodes);
            t.check();
        }
    }
}

/// N6. Counts that would take hours to reach by hand are set first.
#[test]
fn links_end_at_65000() {
    let t = TestVolume::new("24M", IMAGES[1]);
    let v = &t.volume;
    let set_links = |ino: Ino, n: u16| {
        let set = v.run(|op| {
            let mut i = records::inode(op, ino)?;
            i.set_links(n);
            records::put_inode(op, ino, &mut i)
        });
        set.unwrap();
    };
    let f = file(v, Ino::ROOT, "f").ino;
    set_links(f, 64_999);
    assert_eq!(v.link(f, Ino::ROOT, b"last").unwrap().links, 65_000);
    assert!(matches!(v.link(f, Ino::ROOT, b"more"), Err(Error::TooManyLinks)));
    set_links(f, 2);
    let (linear, many) = (dir(v, Ino::ROOT, "linear").ino, dir(v, Ino::ROOT, "many").ino);
    for n in 0..200 {
        file(v, many, &format!("a long name to make the index grow {n}"));
    }
    set_links(linear, 65_000);
    assert!(matches!(v.create(linear, b"d", &new(NewKind::Dir, 0)), Err(Error::TooManyLinks)));
    file(v, linear, "a file is no link");
    set_links(linear, 2);
    set_links(many, 64_999);
    dir(v, many, "d1");
    assert_eq!(links(v, many), 65_000);
    dir(v, many, "d2");
    assert_eq!(links(v, many), 1);
    dir(v, many, "d3");
    v.rmdir(many, b"d1").unwrap();
    assert_eq!(links(v, many), 1, "forever");
    // e2fsck counts two directories in it, and lets 1 be.
    t.check();
}

/// N10.
#[test]
fn a_synchronous_directory_needs_no_sync() {
    for (flag, args) in [(flags::DIRSYNC, IMAGES[0]), (flags::SYNC, IMAGES[3]), (flags::DIRSYNC, IMAGES[6])] {
        let t = TestVolume::new("24M", args);
        let v = &t.volume;
        let d = dir(v, Ino::ROOT, "d").ino;
        file(v, d, "before");
        let e = v.inode_flags().get(d).unwrap();
        v.inode_flags().set(d, e | flag).unwrap();
        let crashed = |name: &[u8]| {
            let again = TestVolume::on(t.device.snapshot(), Options::default()).volume;
            again.lookup(d, name).map(|a| a.ino).ok()
        };
        let f = file(v, d, "made").ino;
        assert_eq!(crashed(b"made"), Some(f));
        v.rename(d, b"made", d, b"moved", RenameFlags::default()).unwrap();
        assert_eq!((crashed(b"made"), crashed(b"moved")), (None, Some(f)));
        v.link(f, d, b"linked").unwrap();
        assert_eq!(crashed(b"linked"), Some(f));
        v.unlink(d, b"moved").unwrap();
        assert_eq!(crashed(b"moved"), None);
        // Others wait for a commit.
        file(v, Ino::ROOT, "later");
        let again = TestVolume::on(t.device.snapshot(), Options::default()).volume;
        assert!(again.lookup(Ino::ROOT, b"later").is_err());
        t.check();
    }
}

/// N8, at every allocation of a call that needs several: with 0, 1, 2, ... blocks left.
#[test]
fn each_allocation_of_a_call_may_fail() {
    // Owner, a named user, group, mask, others: everything.
    let acl = b"\x02\0\0\0\x01\0\x07\0\xff\xff\xff\xff\x02\0\x07\0\x05\0\0\0\x04\0\x07\0\xff\xff\xff\xff\
                \x10\0\x07\0\xff\xff\xff\xff\x20\0\x07\0\xff\xff\xff\xff";
    for args in [IMAGES[4], IMAGES[5], IMAGES[6]] {
        let t = TestVolume::on(mke2fs("4M", &[args, &["-N", "3000"]].concat()), Options::default());
        let v = &t.volume;
        let (fill, d) = (dir(v, Ino::ROOT, "fill").ino, dir(v, Ino::ROOT, "d").ino);
        v.xattrs().set(d, b"system.posix_acl_default", acl, XattrFlags::Any).unwrap();
        let f = file(v, fill, "f").ino;
        let long = [b'x'; 300];
        let filler = |n: usize| v.create(fill, format!("{n}").as_bytes(), &new(NewKind::Symlink(&long), 0));
        let full = (0..).find(|n| filler(*n).is_err()).unwrap();
        give_back_all(v);
        let (mut refused, mut done) = (0, 0);
        for left in 0..12 {
            v.unlink(fill, format!("{left}").as_bytes()).unwrap();
            let name = format!("{left:0240}");
            // Names of a full block make their directory grow, too.
            for round in 0..3 {
                v.sync().unwrap();
                let before = (v.statfs(), v.getattr(d).unwrap(), v.getattr(f).unwrap());
                let name = format!("{name}{round}");
                let result = match round {
                    0 => v.create(d, name.as_bytes(), &new(NewKind::Dir, 0o777)).map(drop),
                    1 => v.link(f, d, name.as_bytes()).map(drop),
                    _ => v.xattrs().set(f, b"trusted.label", &vec![left; 400], XattrFlags::Any),
                };
                match result {
                    Ok(()) => done += 1,
                    Err(Error::NoSpace) => {
                        refused += 1;
                        assert_eq!((v.statfs(), v.getattr(d).unwrap(), v.getattr(f).unwrap()), before);
                    }
                    Err(e) => panic!("{e}"),
                }
            }
        }
        assert!(full > 100 && refused > 5 && done > 5, "{full} {refused} {done}: the test has lost its point");
        t.check();
    }
}
