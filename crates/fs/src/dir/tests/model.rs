//! Random changes against a map, on every kind of image; and many names.

use super::*;
use crate::RenameFlags;
use crate::error::Error;
use crate::records;
use std::time::Instant;

/// Block sizes, with and without checksums, index, file types; ext2, ext3 and ext4.
const IMAGES: &[(&str, &[&str])] = &[
    ("ext4, 1 KiB", &["-t", "ext4", "-b", "1024"]),
    ("ext4, 2 KiB", &["-t", "ext4", "-b", "2048"]),
    ("ext4, 4 KiB", &["-t", "ext4", "-b", "4096"]),
    ("ext4, csum seed", &["-t", "ext4", "-b", "1024", "-O", "metadata_csum_seed"]),
    ("ext4, no checksums", &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"]),
    ("ext4, no index", &["-t", "ext4", "-b", "1024", "-O", "^dir_index"]),
    ("ext4, no file types", &["-t", "ext4", "-b", "1024", "-O", "^filetype"]),
    ("ext4, large_dir", &["-t", "ext4", "-b", "1024", "-O", "large_dir"]),
    ("ext3, 1 KiB", &["-t", "ext3", "-b", "1024"]),
    ("ext3, 4 KiB", &["-t", "ext3", "-b", "4096"]),
    ("ext2, no index", &["-t", "ext2", "-b", "1024", "-O", "^dir_index"]),
];

/// Invariants D1 (clean), D4 (found).
#[test]
fn random_changes_agree_with_a_model() {
    let seed = seed("random_changes_agree_with_a_model");
    for (kind, args) in IMAGES {
        println!("{kind}");
        let mut d = Dirs::new("16M", args);
        let mut n = Numbers(seed);
        let mut model: BTreeMap<Vec<u8>, Ino> = BTreeMap::new();
        for step in 0..4000 {
            let name = n.name(1500);
            let to = d.file(step);
            let before = d.lookup(&name).unwrap();
            assert_eq!(before, model.get(&name).copied());
            match (before, n.next(3)) {
                (None, _) => {
                    d.add(&name, to).unwrap();
                    model.insert(name, to);
                }
                (Some(was), 0) => {
                    let replaced =
                        d.run(|op, ino, inode| super::super::replace(op, ino, inode, &name, to, FileType::Regular));
                    assert_eq!(replaced.unwrap().ino, was);
                    model.insert(name, to);
                }
                (Some(was), _) => {
                    assert_eq!(d.remove(&name).unwrap().ino, was);
                    assert!(matches!(d.remove(&name), Err(Error::NotFound)));
                    model.remove(&name);
                }
            }
        }
        assert_eq!(d.names(), model);
        assert_eq!(d.levels().is_some(), !kind.contains("no index"));
        d.check();
        for name in model.keys() {
            d.remove(name).unwrap();
        }
        assert!(d.is_empty());
        d.check();
    }
}

/// Adds `count` names, looks each up, lists them, lets e2fsck check, removes all. D1, D4.
fn many(size: &str, args: &[&str], count: usize, name: impl Fn(usize) -> Vec<u8>) -> Dirs {
    let mut d = Dirs::new(size, args);
    let start = Instant::now();
    for i in 0..count {
        d.add(&name(i), d.file(i)).unwrap();
    }
    println!("{count} names added in {:?}, {:?} levels", start.elapsed(), d.levels());
    let start = Instant::now();
    for i in 0..count {
        assert_eq!(d.lookup(&name(i)).unwrap(), Some(d.file(i)));
    }
    assert_eq!(d.lookup(b"not there").unwrap(), None);
    println!("looked up in {:?}", start.elapsed());
    let start = Instant::now();
    assert_eq!(d.names().len(), count);
    println!("listed in {:?}", start.elapsed());
    d.check();
    d
}

#[test]
fn two_hundred_thousand_names() {
    let name = |i| format!("file-number-{i}.txt").into_bytes();
    let mut d = many("64M", &["-t", "ext4", "-b", "4096"], 200_000, name);
    assert_eq!(d.levels(), Some(1));
    let start = Instant::now();
    for i in 0..200_000 {
        d.remove(&name(i)).unwrap();
    }
    println!("removed in {:?}", start.elapsed());
    let start = Instant::now();
    assert!(d.is_empty());
    println!("empty in {:?}", start.elapsed());
    d.check();
}

#[test]
fn large_dir_gets_a_third_level() {
    let name = |i| format!("{i:0250}").into_bytes();
    let d = many("64M", &["-t", "ext4", "-b", "1024", "-O", "large_dir"], 40_000, name);
    assert_eq!(d.levels(), Some(2));
}

/// Without large_dir the index ends at two levels: no space, and nothing is half done. D1.
#[test]
fn a_full_index_is_no_space() {
    let mut d = Dirs::new("64M", &["-t", "ext4", "-b", "1024"]);
    let mut added = 0;
    let error = loop {
        match d.add(format!("{added:0250}").as_bytes(), d.file(added)) {
            Ok(()) => added += 1,
            Err(e) => break e,
        }
    };
    assert!(matches!(error, Error::NoSpace), "{error}");
    assert!(added > 10_000, "{added}");
    assert_eq!((d.names().len(), d.levels()), (added, Some(1)));
    d.check();
}

#[test]
fn a_full_disk_is_no_space() {
    let mut d = Dirs::new("2M", &["-t", "ext4", "-b", "1024"]);
    let mut added = 0;
    while d.add(format!("{added:0250}").as_bytes(), d.file(added)).is_ok() {
        added += 1;
    }
    assert_eq!(d.names().len(), added);
    d.check();
}

#[test]
fn dots_and_names_that_cannot_be() {
    for args in [&["-t", "ext4"][..], &["-t", "ext3"]] {
        let mut d = Dirs::new("16M", args);
        for grown in [false, true] {
            for i in 0..if grown { 300 } else { 0 } {
                d.add(format!("{i:0200}").as_bytes(), d.file(i)).unwrap();
            }
            assert_eq!(d.levels(), grown.then_some(0));
            assert_eq!(d.lookup(b".").unwrap(), Some(d.dir));
            assert_eq!(d.lookup(b"..").unwrap(), Some(Ino::ROOT));
            assert_eq!(d.run(|op, ino, inode| super::super::parent(op, ino, inode)).unwrap(), Ino::ROOT);
            for to in [d.file(0), Ino::ROOT] {
                d.run(|op, ino, inode| super::super::set_parent(op, ino, inode, to)).unwrap();
                assert_eq!(d.lookup(b"..").unwrap(), Some(to));
            }
            assert!(matches!(d.remove(b".."), Err(Error::Invalid(_))));
            assert!(matches!(d.lookup(&[b'x'; 256]), Err(Error::NameTooLong)));
            assert!(matches!(d.add(b"a/b", d.file(0)), Err(Error::Invalid(_))));
            assert!(matches!(d.add(b"", d.file(0)), Err(Error::NotFound)));
        }
        assert!(matches!(d.add(format!("{:0200}", 7).as_bytes(), d.file(0)), Err(Error::Exists)));
        d.check();
    }
}

/// A directory many times the size of the cache: found, listed, seen to be empty. D5.
#[test]
fn a_directory_larger_than_the_cache() {
    let small = || Options { cache_bytes: 128 << 10, ..Options::default() };
    let name = |i: usize| format!("{i:0200}").into_bytes();
    let mut d = Dirs::new("16M", &["-t", "ext4", "-b", "1024"]);
    for i in 0..3000 {
        d.add(&name(i), d.file(i)).unwrap();
    }
    d.check();
    let d = Dirs::with(d.t.device.snapshot(), small());
    assert!(!d.is_empty());
    assert_eq!(d.list(0, usize::MAX).unwrap().0.len(), 3002);
    for i in (0..3000).step_by(17) {
        assert_eq!(d.lookup(&name(i)).unwrap(), Some(d.file(i)));
    }
    for i in 0..2999 {
        d.remove(&name(i)).unwrap();
    }
    let mut d = Dirs::with(unmounted(&d), small());
    assert!(!d.is_empty());
    d.remove(&name(2999)).unwrap();
    assert!(d.is_empty());
    d.add(b"one more", d.file(0)).unwrap();
    assert!(!d.is_empty());
    d.remove(b"one more").unwrap();
    assert!(d.is_empty());
    assert_eq!(d.list(0, usize::MAX).unwrap().0.len(), 2);
    d.check();
}

/// The same without an index: every search has to look at all of it, piece by piece. D4, D5.
#[test]
fn a_linear_directory_larger_than_the_cache() {
    let name = |i: usize| format!("{i:0200}").into_bytes();
    let mut d = Dirs::new("16M", &["-t", "ext4", "-b", "1024", "-O", "^dir_index"]);
    for i in 0..500 {
        d.add(&name(i), d.file(i)).unwrap();
    }
    d.check();
    let d = Dirs::with(d.t.device.snapshot(), Options { cache_bytes: 128 << 10, ..Options::default() });
    let (v, dir) = (&d.t.volume, d.dir);
    assert_eq!(d.list(0, usize::MAX).unwrap().0.len(), 502);
    assert!(!d.is_empty());
    let size = v.getattr(dir).unwrap().size;
    assert!(size > 2 * (128 << 10) / 3);
    let mut model: BTreeMap<Vec<u8>, Ino> = (0..500).map(|i| (name(i), d.file(i))).collect();
    let mut r = Numbers(seed("a_linear_directory_larger_than_the_cache"));
    let mut below = |n: usize| r.next(n);
    for _ in 0..400 {
        let (a, b) = (name(below(520)), name(below(520)));
        let (has_a, has_b) = (model.get(&a).copied(), model.get(&b).copied());
        match below(4) {
            0 => assert_eq!(v.lookup(dir, &a).map(|x| x.ino).ok(), has_a),
            1 => match has_a {
                Some(_) => {
                    v.unlink(dir, &a).unwrap();
                    model.remove(&a);
                }
                None => assert!(matches!(v.unlink(dir, &a), Err(Error::NotFound))),
            },
            2 => match has_a {
                Some(_) => assert!(matches!(v.link(d.file(0), dir, &a), Err(Error::Exists))),
                None => {
                    v.link(d.file(0), dir, &a).unwrap();
                    model.insert(a, d.file(0));
                }
            },
            // Two names of one file stay, by POSIX.
            _ => match (has_a, has_b) {
                (None, _) => {
                    assert!(matches!(v.rename(dir, &a, dir, &b, RenameFlags::default()), Err(Error::NotFound)))
                }
                (Some(x), y) => {
                    v.rename(dir, &a, dir, &b, RenameFlags::default()).unwrap();
                    if y != Some(x) {
                        model.remove(&a);
                        model.insert(b, x);
                    }
                }
            },
        }
    }
    for i in 0..520 {
        assert_eq!(v.lookup(dir, &name(i)).map(|x| x.ino).ok(), model.get(&name(i)).copied(), "{i}");
    }
    assert!(v.getattr(dir).unwrap().size <= size + 20 * 1024, "room of names that are gone is used again");
    d.t.check();
}

/// The image after an unmount.
fn unmounted(d: &Dirs) -> Vec<u8> {
    d.t.volume.close().unwrap();
    d.t.device.snapshot()
}

/// A linear directory of several blocks stays linear although the file system has dir_index. D1.
#[test]
fn several_linear_blocks_stay_linear() {
    let mut d = Dirs::new("16M", &["-t", "ext4", "-b", "1024"]);
    let own = d.dir;
    d.dir = Ino(11);
    assert_eq!(d.list(0, usize::MAX).unwrap().0.len(), 2, "lost+found has empty blocks");
    for i in 0..500 {
        d.add(format!("{i:0100}").as_bytes(), d.file(i)).unwrap();
    }
    assert_eq!((d.levels(), d.names().len()), (None, 500));
    d.check();
    for i in 0..500 {
        d.remove(format!("{i:0100}").as_bytes()).unwrap();
    }
    d.dir = own;
    d.check();
}

/// A new directory from nothing. D1.
#[test]
fn a_new_directory() {
    for args in [&["-t", "ext4"][..], &["-t", "ext3", "-b", "1024"], &["-t", "ext4", "-O", "^filetype"]] {
        let mut d = Dirs::new("16M", args);
        let made = d.run(|op, parent, inode| {
            let extents = inode.uses_extents();
            let ino = crate::space::alloc_inode(op, parent, 0o40_755)?;
            let mut new = Inode::new(op.sb().inode_size(), op.sb().want_extra_isize());
            new.set_mode(0o40_755);
            new.set_links(2);
            if extents {
                new.set_flags(quire_layout::inode::flags::EXTENTS);
                quire_layout::extent::NodeMut::init(new.block_area_mut(), 0);
            }
            super::super::init(op, ino, &mut new, parent, Pool::User)?;
            super::super::add(op, parent, inode, b"new", ino, FileType::Directory, Pool::User)?;
            inode.set_links(inode.links() + 1);
            records::put_inode(op, parent, inode)?;
            assert_eq!(super::super::parent(op, ino, &new)?, parent);
            assert!(super::super::is_empty(op, ino, &new)?);
            Ok(ino)
        });
        assert_eq!(d.lookup(b"new").unwrap(), Some(made.unwrap()));
        d.check();
    }
}
