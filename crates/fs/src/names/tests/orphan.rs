//! Orphans across crashes, in both records, and what a broken record does.

use crate::data::{Falloc, WriteFlags};
use crate::error::Error;
use crate::names::evict::{evict_some, free_or_warn};
use crate::names::orphan::add;
use crate::names::orphan_scan::read_list;
use crate::names::tests::objects::{IMAGES, each_image, file, give_back_all, new};
use crate::records;
use crate::tables::OrphanPlace;
use crate::testing::TestVolume;
use crate::{NewKind, Options, Volume, XattrFlags};
use quire_layout::inode::Time;
use quire_layout::{Ino, Structure, orphan_file};
use quire_testkit::{Mounted, fsck, mke2fs, run};
use std::process::Command;

/// A file with `runs` runs of blocks, every second block a hole, and an attribute block.
fn holey(v: &Volume, name: &str, runs: u64) -> Ino {
    let ino = file(v, Ino::ROOT, name).ino;
    let bs = v.superblock().block_size().bytes64();
    for n in 0..runs {
        v.write(ino, 2 * n * bs, &[u8::try_from(n % 251).unwrap(); 100], WriteFlags::default()).unwrap();
    }
    v.xattrs().set(ino, b"trusted.label", &[5; 300], XattrFlags::Any).unwrap();
    v.sync().unwrap();
    ino
}

/// The image as a power loss would leave it, with all that was done so far in its log.
fn crash(t: &TestVolume) -> TestVolume {
    t.volume.sync().unwrap();
    TestVolume::on(t.device.snapshot(), Options::default())
}

fn free(v: &Volume) -> (u64, u64) {
    v.sync().unwrap();
    let s = v.statfs();
    (s.free, s.free_inodes)
}

/// N1: at every point between the last link and the end of the eviction.
#[test]
fn an_eviction_that_a_crash_ends_is_continued() {
    each_image(|t| {
        let v = &t.volume;
        let before = free(v);
        let ino = holey(v, "f", 300);
        v.unlink(Ino::ROOT, b"f").unwrap();
        let mut steps = 0;
        let all = loop {
            let again = crash(t);
            assert_eq!(free(&again.volume), before, "after {steps} steps");
            again.check();
            if steps == 0 {
                // As forget does, but one small operation at a time.
                v.engine().tables().refs.clear();
            }
            steps += 1;
            if !v.run(|op| evict_some(op, ino, 1)).unwrap() {
                break steps;
            }
            if steps > 6 {
                free_or_warn(v.engine(), ino);
                break steps;
            }
        };
        assert!(all > 1, "the test has lost its point");
        assert_eq!(free(v), before);
    });
}

/// N1: a truncate of several operations.
#[test]
fn a_truncate_that_a_crash_ends_is_continued() {
    each_image(|t| {
        let v = &t.volume;
        let ino = holey(v, "f", 300);
        let bs = v.superblock().block_size().bytes64();
        let half = v.getattr(ino).unwrap().sectors;
        v.run(|op| {
            let mut inode = records::inode(op, ino)?;
            inode.set_size(10 * bs + 50);
            add(op, ino, &mut inode)
        })
        .unwrap();
        let again = crash(t);
        let a = again.volume.getattr(ino).unwrap();
        assert_eq!((a.links, a.size), (1, 10 * bs + 50));
        assert!(a.sectors < half / 10, "{} of {half}", a.sectors);
        let mut data = [0; 100];
        again.volume.read(ino, 8 * bs, &mut data).unwrap();
        assert_eq!(data, [4; 100]);
        again.check();
        // Unmount ends it, too.
    });
}

#[test]
fn a_full_orphan_file_goes_over_to_the_list() {
    let t = TestVolume::new("24M", &["-t", "ext4", "-b", "1024", "-O", "orphan_file", "-E", "orphan_file_size=2k"]);
    let v = &t.volume;
    let before = free(v);
    let slots = 2 * orphan_file::slots(1024);
    let inos: Vec<Ino> = (0..slots + 40).map(|n| file(v, Ino::ROOT, &format!("f{n}")).ino).collect();
    for n in 0..inos.len() {
        v.unlink(Ino::ROOT, format!("f{n}").as_bytes()).unwrap();
    }
    {
        let state = v.engine().tables();
        let in_file = state.orphans.places.values().filter(|p| matches!(p, OrphanPlace::File { .. })).count();
        assert_eq!((in_file, state.orphans.used, state.orphans.places.len()), (slots, slots, slots + 40));
    }
    let again = crash(&t);
    assert_eq!(free(&again.volume).1, before.1);
    again.check();
    // In an order that is neither that of the list nor its reverse; freed slots are used again.
    for (n, ino) in inos.iter().enumerate().filter(|(n, _)| n % 3 != 1) {
        v.forget(*ino, 1);
        if n % 7 == 0 {
            let name = format!("g{n}");
            file(v, Ino::ROOT, &name);
            v.unlink(Ino::ROOT, name.as_bytes()).unwrap();
        }
    }
    let again = crash(&t);
    assert_eq!(free(&again.volume).1, before.1);
    again.check();
    give_back_all(v);
    assert_eq!(free(v).1, before.1);
    t.check();
}

/// Three open unlinked files on a plain image without a log, so that debugfs may change what is there.
fn three() -> (TestVolume, Vec<Ino>) {
    let t = TestVolume::new("24M", &["-t", "ext4", "-b", "1024", "-O", "^has_journal,^metadata_csum"]);
    let inos: Vec<Ino> = (0..3).map(|n| file(&t.volume, Ino::ROOT, &format!("f{n}")).ino).collect();
    for n in 0..3 {
        t.volume.unlink(Ino::ROOT, format!("f{n}").as_bytes()).unwrap();
    }
    t.volume.sync().unwrap();
    (t, inos)
}

/// The image after debugfs commands.
fn damaged(image: &[u8], commands: &[String]) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), image).unwrap();
    for c in commands {
        run("debugfs", &["-w", "-R", c, file.path().to_str().unwrap()]);
    }
    std::fs::read(file.path()).unwrap()
}

/// N2.
#[test]
fn a_broken_list_is_named_and_nothing_is_written() {
    let (t, inos) = three();
    let next = |ino: Ino, to: u32| format!("set_inode_field <{}> dtime {to:#x}", ino.0);
    let head = |to: u32| format!("set_super_value last_orphan {to}");
    let cases = [
        (vec![next(inos[0], inos[2].0)], "goes in a circle"),
        (vec![next(inos[1], inos[1].0)], "goes in a circle"),
        (vec![next(inos[1], 7)], "cannot be an orphan"),
        (vec![next(inos[1], 2)], "cannot be an orphan"),
        (vec![head(99_999_999)], "cannot be an orphan"),
        (vec![head(500)], "names a free inode"),
    ];
    for (commands, why) in cases {
        let image = damaged(&t.device.snapshot(), &commands);
        let v = TestVolume::on(image.clone(), Options::default()).volume;
        match read_list(v.engine()) {
            Err(Error::Corrupt(c)) => assert!(c.structure == Structure::OrphanList && c.why.contains(why), "{c}"),
            other => panic!("{commands:?}: {other:?}"),
        }
        assert!(matches!(v.unlink(Ino::ROOT, b"lost+found"), Err(Error::IsDir | Error::ReadOnly(_))));
        assert!(matches!(v.rmdir(Ino::ROOT, b"lost+found"), Err(Error::ReadOnly(_))));
        assert_eq!(v.getattr(Ino::ROOT).unwrap().links, 3, "it can be read");
    }
}

#[test]
fn a_read_only_mount_leaves_orphans_alone() {
    let (t, inos) = three();
    let image = t.device.snapshot();
    let ro = TestVolume::on(image.clone(), Options { read_only: true, ..Options::default() });
    assert_eq!(ro.device.snapshot(), image);
    let again = TestVolume::on(image, Options::default());
    assert!(matches!(again.volume.getattr(inos[0]), Err(Error::Stale(_))));
    again.check();
}

#[test]
fn a_freeze_keeps_what_is_open() {
    let t = TestVolume::new("24M", IMAGES[3]);
    let v = &t.volume;
    let ino = holey(v, "f", 20);
    v.unlink(Ino::ROOT, b"f").unwrap();
    let gone = holey(v, "gone", 20);
    v.unlink(Ino::ROOT, b"gone").unwrap();
    v.maintenance().freeze().unwrap();
    // A snapshot of the frozen image: the file is an orphan there.
    let again = TestVolume::on(t.device.snapshot(), Options::default());
    assert!(matches!(again.volume.getattr(ino), Err(Error::Stale(_))));
    again.check();
    v.forget(gone, 1);
    v.maintenance().thaw().unwrap();
    assert!(matches!(v.getattr(gone), Err(Error::Stale(_))), "forgotten while frozen, freed at the thaw");
    let mut data = [0; 100];
    v.read(ino, 0, &mut data).unwrap();
    assert_eq!(v.getattr(ino).unwrap().links, 0);
    give_back_all(v);
    t.check();
}

/// The kernel and e2fsck end what we left, and we end what the kernel left.
#[test]
fn orphans_change_hands_with_the_kernel() {
    for args in IMAGES {
        println!("mke2fs {args:?}");
        let image = tempfile::NamedTempFile::new().unwrap();
        let path = image.path().to_str().unwrap().to_owned();
        // Ours, for e2fsck and for the kernel.
        let t = TestVolume::new("24M", args);
        let before = free(&t.volume);
        for n in 0..5 {
            holey(&t.volume, &format!("f{n}"), 40);
            t.volume.unlink(Ino::ROOT, format!("f{n}").as_bytes()).unwrap();
        }
        t.volume.sync().unwrap();
        std::fs::write(&path, t.device.snapshot()).unwrap();
        let out = Command::new("e2fsck").args(["-fp", &path]).output().unwrap();
        assert!(out.status.code().is_some_and(|c| c <= 1), "{}", String::from_utf8_lossy(&out.stdout));
        let mended = std::fs::read(&path).unwrap();
        fsck(&mended);
        assert_eq!(free(&TestVolume::on(mended, Options::default()).volume), before);
        if args.contains(&"ext2") {
            continue;
        }
        std::fs::write(&path, t.device.snapshot()).unwrap();
        let Some(m) = Mounted::if_possible(image.path(), "noatime") else { return };
        drop(m);
        let mended = std::fs::read(&path).unwrap();
        fsck(&mended);
        assert_eq!(free(&TestVolume::on(mended, Options::default()).volume), before);
        // The kernel's, for us: copied while the files are open.
        std::fs::write(&path, mke2fs("24M", args)).unwrap();
        let m = Mounted::new(image.path(), "noatime");
        let open: Vec<std::fs::File> = (0..5)
            .map(|n| {
                let p = m.at.path().join(format!("f{n}"));
                std::fs::write(&p, vec![7; 50_000]).unwrap();
                let f = std::fs::File::open(&p).unwrap();
                f.sync_all().unwrap();
                std::fs::remove_file(&p).unwrap();
                f
            })
            .collect();
        run("sync", &["-f", m.at.path().to_str().unwrap()]);
        let copy = std::fs::read(&path).unwrap();
        drop(open);
        drop(m);
        let again = TestVolume::on(copy, Options::default());
        assert_eq!(free(&again.volume), before);
        again.check();
    }
}

/// Deleted inodes must not look like links of the list.
#[test]
fn a_deletion_time_is_never_an_inode_number() {
    let t = TestVolume::new("24M", IMAGES[0]);
    let ino = file(&t.volume, Ino::ROOT, "f").ino;
    t.volume.unlink(Ino::ROOT, b"f").unwrap();
    t.volume.forget(ino, 1);
    t.volume.sync().unwrap();
    let inode = t.volume.run(|op| records::inode(op, ino)).unwrap();
    assert!(inode.dtime() > t.volume.superblock().inodes_count());
    assert_eq!((inode.links(), inode.size()), (0, 0));
    assert!(inode.time(Time::Change).is_some());
    t.check();
}

/// N3: what a batch has left unused is freed after it, and keeps nobody waiting who asks for space or figures. A freed
/// inode has no record of changes that fsync would look through.
#[test]
fn what_waits_to_be_freed_keeps_nobody_waiting() {
    for image in IMAGES {
        let t = TestVolume::new("24M", image);
        let v = &t.volume;
        let before = free(v);
        let waits = || v.engine().tables().pending_evictions.len();
        let make = |name: &str| {
            let ino = file(v, Ino::ROOT, name).ino;
            v.write(ino, 0, &[7; 5000], WriteFlags::default()).unwrap();
            v.fsync(ino, false).unwrap();
            ino
        };
        let gone = |ino: Ino, name: &str| {
            v.unlink(Ino::ROOT, name.as_bytes()).unwrap();
            v.forget(ino, 1);
        };
        let in_batch = |ino: Ino, name: &str| {
            let batch = v.begin_batch().unwrap();
            gone(ino, name);
            drop(batch);
            assert_eq!(waits(), 1);
        };
        let files: Vec<_> = (0..100).map(|n| (make(&format!("f{n}")), format!("f{n}"))).collect();
        files.iter().for_each(|(ino, name)| gone(*ino, name));
        assert_eq!((waits(), v.engine().tables().orphans.all().len()), (0, 0), "freed by whoever gives them back");
        for (ino, _) in files {
            assert_eq!(v.engine().tables().changes.last(ino, false), None, "{ino}: no caller can ask for it");
        }
        in_batch(make("asked for"), "asked for");
        let _ = v.statfs();
        assert_eq!((waits(), v.engine().tables().orphans.all().len()), (0, 0));
        in_batch(make("in the background"), "in the background");
        v.maintenance().step().unwrap();
        assert_eq!(waits(), 0);
        in_batch(make("in a freeze"), "in a freeze");
        v.maintenance().freeze().unwrap();
        assert_eq!(waits(), 0);
        v.maintenance().thaw().unwrap();
        // All inodes taken: what waits makes room.
        let last = make("last");
        let mut more = 0;
        while v.create(Ino::ROOT, format!("more{more}").as_bytes(), &new(NewKind::File, 0o600)).is_ok() {
            more += 1;
        }
        in_batch(last, "last");
        file(v, Ino::ROOT, "instead");
        assert_eq!(waits(), 0);
        (0..more).for_each(|n| v.unlink(Ino::ROOT, format!("more{n}").as_bytes()).unwrap());
        v.unlink(Ino::ROOT, b"instead").unwrap();
        v.close().unwrap();
        let again = TestVolume::on(t.device.snapshot(), Options::default());
        // The directory has grown, and stays so.
        assert_eq!(free(&again.volume).1, before.1);
        again.check();
    }
}

/// N3: a batch that takes the last name of a large file has room for more calls; the file is freed after it.
#[test]
fn an_unlink_in_a_batch_leaves_the_file_to_be_freed_after_it() {
    let t = TestVolume::new("24M", &["-t", "ext4", "-b", "1024", "-J", "size=1"]);
    let v = &t.volume;
    let ino = file(v, Ino::ROOT, "large").ino;
    for n in 0..200 {
        // Each block has a pointer block, or an extent and a bitmap, of its own.
        v.fallocate(ino, Falloc::Allocate { keep_size: false }, n << 16, 1024).unwrap();
    }
    v.forget(ino, 1);
    v.sync().unwrap();
    let free_before = v.statfs().free;
    let batch = v.begin_batch().unwrap();
    v.unlink(Ino::ROOT, b"large").unwrap();
    for n in 0..3 {
        v.create(Ino::ROOT, format!("more{n}").as_bytes(), &new(NewKind::File, 0o600)).unwrap();
    }
    drop(batch);
    assert_eq!(v.engine().tables().pending_evictions, [ino]);
    v.maintenance().step().unwrap();
    assert_eq!(v.engine().tables().orphans.all(), []);
    v.sync().unwrap();
    assert!(v.statfs().free >= free_before + 200);
    t.check();
}

/// The superblock is written once by each operation, however many orphans go on the list and off it.
#[test]
fn the_head_of_the_list_is_what_the_operation_has_left() {
    let t = TestVolume::new("16M", &["-t", "ext4", "-O", "^orphan_file"]);
    let v = &t.volume;
    let inos: Vec<Ino> = (0..5).map(|n| file(v, Ino::ROOT, &format!("f{n}")).ino).collect();
    (0..5).for_each(|n| v.unlink(Ino::ROOT, format!("f{n}").as_bytes()).unwrap());
    let head = || v.run(|op| Ok(records::superblock(op)?.last_orphan())).unwrap();
    assert_eq!(head(), inos[4]);
    let seen = v.run(|op| {
        records::superblock_mut(op)?.set_last_orphan(inos[3]);
        records::superblock_mut(op)?.set_last_orphan(inos[2]);
        records::superblock(op).map(|sb| sb.last_orphan())
    });
    assert_eq!((seen.unwrap(), head()), (inos[2], inos[2]), "within the operation, and after it");
    let undone = v.run(|op| {
        records::superblock_mut(op)?.set_last_orphan(inos[0]);
        Err::<(), _>(Error::NotFound)
    });
    assert!(undone.is_err() && head() == inos[2], "what fails leaves no trace (J4)");
    let back = v.run(|op| {
        records::superblock_mut(op)?.set_last_orphan(inos[4]);
        Ok(())
    });
    back.unwrap();
    // The last one first: each takes the head along, several in one operation.
    inos.iter().rev().for_each(|ino| v.forget(*ino, 1));
    v.sync().unwrap();
    assert_eq!(head(), Ino(0));
    t.check();
}
