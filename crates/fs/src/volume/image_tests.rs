//! Images that are damaged, odd or foreign: what a mount does with them. Each is made by mke2fs and debugfs.

use super::recovery::JournalError;
use crate::testing::TestVolume;
use crate::{Attr, Cred, Devices, Error, New, NewKind, Options, Volume, WriteFlags, XattrFlags};
use quire_device::sync::Arc;
use quire_device::{ErrorKind, IoOp, SystemClock};
use quire_layout::features::incompat;
use quire_layout::superblock::{Superblock, state};
use quire_layout::{Corrupt, Ino, Structure};
use quire_testkit::{Fault, FaultKind, Faulty, MemDevice, fsck, mke2fs, run};
use std::path::Path;

/// An image of `size` with a file "source" of `len` bytes put in by debugfs, after which it runs `commands`.
fn image(size: &str, args: &[&str], len: usize, commands: &[&str]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("source");
    std::fs::write(&source, vec![0x5a; len]).unwrap();
    let write = format!("write {} source", source.display());
    let all: Vec<&str> = [write.as_str()].into_iter().chain(commands.iter().copied()).collect();
    debugfs(&mke2fs(size, args), &all)
}

/// What debugfs makes of an image.
pub(super) fn debugfs(image: &[u8], commands: &[&str]) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let (path, script) = (dir.path().join("image"), dir.path().join("script"));
    std::fs::write(&path, image).unwrap();
    std::fs::write(&script, commands.join("\n")).unwrap();
    run("debugfs", &["-w", "-f", text(&script), text(&path)]);
    std::fs::read(path).unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn superblock(image: &[u8]) -> Superblock {
    Superblock::decode(&image[1024..]).unwrap()
}

fn new(kind: NewKind<'_>) -> New<'_> {
    New { kind, mode: 0o644, umask: 0, cred: Cred::default() }
}

fn file(v: &Volume, name: &str, len: usize) -> Result<Attr, Error> {
    let attr = v.create(Ino::ROOT, name.as_bytes(), &new(NewKind::File))?;
    v.write(attr.ino, 0, &vec![0xa5; len], WriteFlags::default())?;
    v.fsync(attr.ino, false)?;
    Ok(attr)
}

/// A mount that must be refused as corrupt, with the image as it was.
pub(super) fn refused(image: Vec<u8>, options: Options) -> Corrupt {
    let device = Arc::new(MemDevice::new(image.clone()));
    let opened = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options);
    assert!(device.snapshot() == image, "a refused mount has changed the image");
    match opened {
        Err(Error::Corrupt(c) | Error::Journal(JournalError::Corrupt(c))) => c,
        Err(e) => panic!("{e}"),
        Ok(_) => panic!("it was mounted"),
    }
}

fn source_is_whole(v: &Volume, len: usize) {
    let ino = v.lookup(Ino::ROOT, b"source").unwrap().ino;
    let mut content = vec![0; len];
    assert_eq!(v.read(ino, 0, &mut content).unwrap(), len);
    assert!(content.iter().all(|b| *b == 0x5a), "the file's content has changed");
}

/// What other tools need to use an image after an unmount, and that e2fsck repairs it.
fn left_for_e2fsck(t: &TestVolume) {
    t.volume.close().unwrap();
    let left = t.device.snapshot();
    let sb = superblock(&left);
    let ours = incompat::RECOVER | incompat::QUIRE_LOG;
    assert_eq!(sb.features().incompat & ours, 0, "features of a mounted image are left");
    assert_ne!(sb.state() & state::ERROR, 0, "the damage is recorded");
    let path = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(path.path(), &left).unwrap();
    let said = std::process::Command::new("e2fsck").arg("-fy").arg(path.path()).output().unwrap();
    assert!(matches!(said.status.code(), Some(0 | 1)), "{}", String::from_utf8_lossy(&said.stdout));
    fsck(&std::fs::read(path.path()).unwrap());
}

#[test]
fn a_corrupt_record_of_orphans_leaves_an_image_that_others_can_use() {
    for args in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^metadata_csum"], &["-t", "ext2"]] {
        let t = TestVolume::on(image("16M", args, 9000, &["ssv last_orphan 50"]), Options::default());
        let why = t.volume.status().read_only.expect("it is only read");
        assert!(why.contains("orphan") && why.contains("e2fsck"), "{why}");
        source_is_whole(&t.volume, 9000);
        assert!(matches!(file(&t.volume, "f", 1), Err(Error::ReadOnly(_))));
        left_for_e2fsck(&t);
    }
}

/// The kernel goes on without the orphan, too.
#[test]
fn an_orphan_that_is_damaged_does_not_stop_the_mount() {
    let args = &["-t", "ext4", "-O", "^metadata_csum"];
    // An extent tree of garbage.
    let commands =
        ["sif source links_count 0", "sif source block[0] 0x11223344", "ssv last_orphan 12", "unlink source"];
    let t = TestVolume::on(image("16M", args, 9000, &commands), Options::default());
    assert_eq!(t.volume.status().read_only, None);
    file(&t.volume, "f", 5000).unwrap();
    left_for_e2fsck(&t);
}

#[test]
fn an_image_made_for_the_hurd_stays_one() {
    for args in [&["-t", "ext2", "-o", "hurd"][..], &["-t", "ext2", "-o", "hurd", "-b", "1024", "-I", "256"]] {
        let t = TestVolume::on(image("16M", args, 9000, &[]), Options::default());
        let v = &t.volume;
        let dir = v.create(Ino::ROOT, b"d", &new(NewKind::Dir)).unwrap();
        let f = v.create(dir.ino, b"f", &new(NewKind::File)).unwrap();
        v.write(f.ino, 0, &[7; 20_000], WriteFlags::default()).unwrap();
        v.xattrs().set(f.ino, b"user.a", &[3; 300], XattrFlags::Any).unwrap();
        v.unlink(Ino::ROOT, b"source").unwrap();
        t.check();
    }
}

#[test]
fn a_root_directory_that_cannot_be_used_is_refused_by_its_number() {
    let damage: &[&[&str]] = &[
        &["sif <2> mode 0100644"],
        &["sif <2> links_count 0"],
        &["clri <2>"],
        &["sif <2> size 0"],
        &["sif <2> block[0] 0"],
        &["sif <2> block[5] 0"],
        // INLINE_DATA: without the feature, and with it without a parent.
        &["sif <2> flags 0x10000000"],
        &["sif <2> flags 0x10000000", "sif <2> block[0] 0"],
    ];
    for args in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^metadata_csum"], &["-t", "ext4", "-O", "inline_data"]] {
        for commands in damage {
            for read_only in [false, true] {
                let spoilt = image("16M", args, 9000, commands);
                let c = refused(spoilt, Options { read_only, ..Options::default() });
                assert!(c.structure == Structure::ExtentNode || c.object == Some(2), "{commands:?}: {c}");
                assert!(c.to_string().contains('2'), "{commands:?}: {c}");
            }
        }
    }
}

/// A log whose transaction is whole, and leaves something that no mount can use: block N of the image, as zeros.
fn with_log_that_zeroes(which: &str) -> Vec<u8> {
    let whole = image("16M", &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"], 9000, &[]);
    let said = run_on(&whole, &format!("imap {which}"));
    let block = said.split("at block ").nth(1).and_then(|rest| rest.split(',').next()).expect("where the inode is");
    let zeros = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(zeros.path(), [0; 1024]).unwrap();
    let write = format!("jw -b {block} {}", text(zeros.path()));
    let spoilt = debugfs(&whole, &["jo", &write, "jc"]);
    assert!(superblock(&spoilt).features().has_incompat(incompat::RECOVER), "the log must be replayed");
    spoilt
}

#[test]
fn a_log_that_spoils_the_root_is_refused_before_it_is_replayed() {
    for (which, named) in [("<2>", 2), ("<8>", 8)] {
        for read_only in [false, true] {
            let c = refused(with_log_that_zeroes(which), Options { read_only, ..Options::default() });
            assert_eq!(c.object, Some(named), "{c}");
        }
    }
}

/// Without the feature, the kernel says EUCLEAN as well.
#[test]
fn values_in_inodes_without_their_feature_are_refused() {
    let args = &["-t", "ext4", "-O", "^metadata_csum"];
    let mut spoilt = image("16M", args, 9000, &["ea_set source user.a value"]);
    // The first entry comes after the magic number: e_name_len, e_name_index and e_value_offs, then e_value_inum, and
    // the name at 16.
    let entry = spoilt.windows(4).position(|w| w == 0xEA02_0000_u32.to_le_bytes()).expect("attributes") + 4;
    assert_eq!((spoilt[entry], spoilt[entry + 16]), (1, b'a'));
    spoilt[entry + 4..entry + 8].copy_from_slice(&11u32.to_le_bytes());
    let t = TestVolume::on(spoilt, Options::default());
    let (v, ino) = (&t.volume, t.volume.lookup(Ino::ROOT, b"source").unwrap().ino);
    let corrupt = |r: Result<(), Error>| assert!(matches!(&r, Err(e) if e.errno() == 117), "{r:?}");
    corrupt(v.xattrs().get(ino, b"user.a").map(drop));
    corrupt(v.xattrs().set(ino, b"user.b", &[1; 2000], XattrFlags::Any));
    corrupt(v.xattrs().remove(ino, b"user.a"));
    assert_eq!(v.getattr(ino).unwrap().sectors, 18);
}

/// A group of 8192 blocks whose blocks are in use, though it says that it was never used.
#[test]
fn a_used_group_that_says_it_was_never_used_keeps_its_data() {
    const LEN: usize = 6 << 20;
    let args = &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg,^flex_bg,^resize_inode"];
    let dump = |image: &[u8], command: &str| {
        let path = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(path.path(), image).unwrap();
        run("debugfs", &["-R", command, text(path.path())])
    };
    let whole = image("24M", args, LEN, &[]);
    let blocks = dump(&whole, "blocks source");
    let last: u64 = blocks.split_whitespace().last().unwrap().parse().unwrap();
    let group = (last - 1) / 8192;
    let flags = format!("set_bg {group} flags 0x6");
    let spoilt = debugfs(&whole, &[&flags, &format!("set_bg {group} checksum calc")]);
    let t = TestVolume::on(spoilt, Options::default());
    // More than the other groups hold.
    let mut refused = 0;
    for n in 0..24 {
        refused += u32::from(file(&t.volume, &format!("f{n}"), 700 << 10).is_err());
    }
    assert!(refused > 0, "the groups that are whole do not hold so much");
    t.volume.sync().unwrap();
    source_is_whole(&t.volume, LEN);
    // Deleting what lies there changes nothing of that.
    t.volume.unlink(Ino::ROOT, b"f0").unwrap();
    t.volume.sync().unwrap();
    for n in 0..8 {
        file(&t.volume, &format!("g{n}"), 200 << 10).ok();
    }
    source_is_whole(&t.volume, LEN);
}

/// A group whose inodes are in use, though it says that none was ever used, or fewer. Their records are not zeroed.
#[test]
fn a_group_that_says_of_its_inodes_that_none_was_ever_used_keeps_them() {
    let args = &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg,^flex_bg,^resize_inode"];
    let old: Vec<String> = (0..40).map(|n| format!("old{n}")).collect();
    let writes: Vec<String> = old.iter().map(|name| format!("write /etc/passwd {name}")).collect();
    let whole = image("24M", args, 9000, &writes.iter().map(String::as_str).collect::<Vec<_>>());
    let all = superblock(&whole).inodes_per_group();
    let passwd = std::fs::metadata("/etc/passwd").unwrap().len();
    for said in [format!("itable_unused {all}"), format!("itable_unused {}", all - 20), "flags 0x5".to_owned()] {
        let spoilt = debugfs(&whole, &[&format!("set_bg 0 {said}"), "set_bg 0 checksum calc"]);
        let t = TestVolume::on(spoilt, Options::default());
        for n in 0..50 {
            file(&t.volume, &format!("new{n}"), 100).unwrap_or_else(|e| panic!("{said}: {e}"));
        }
        t.volume.close().unwrap();
        // By what e2fsck believes of such a group it would throw the inodes away.
        let left = t.device.snapshot();
        assert_ne!(superblock(&left).state() & state::ERROR, 0, "the damage is recorded");
        let t = TestVolume::on(left, Options::default());
        source_is_whole(&t.volume, 9000);
        for name in &old {
            let attr = t.volume.lookup(Ino::ROOT, name.as_bytes()).unwrap_or_else(|e| panic!("{said}, {name}: {e}"));
            assert_eq!((attr.size, attr.links), (passwd, 1), "{said}, {name}");
        }
    }
}

/// A bad sector under a bitmap of the first group, where the root directory is.
#[test]
fn a_bitmap_that_cannot_be_read_keeps_no_file_from_being_written() {
    let args = &["-t", "ext4", "-b", "1024", "-O", "^flex_bg,^resize_inode"];
    let whole = image("24M", args, 9000, &[]);
    let path = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(path.path(), &whole).unwrap();
    let stats = run("dumpe2fs", &[text(path.path())]);
    for bitmap in ["Block bitmap at ", "Inode bitmap at "] {
        let digits = stats.split_once(bitmap).unwrap().1.split(|c: char| !c.is_ascii_digit()).next().unwrap();
        let at = digits.parse::<u64>().unwrap() * 1024;
        let device = Arc::new(Faulty::new(MemDevice::new(whole.clone())));
        let v = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), Options::default()).unwrap();
        let fault = Fault::always(IoOp::Read, FaultKind::Error(ErrorKind::Io));
        device.inject(fault.within(at..at + 1));
        for n in 0..5 {
            let made = file(&v, &format!("f{n}"), 50 << 10).unwrap_or_else(|e| panic!("{bitmap}, {n}: {e}"));
            let mut content = vec![0; 50 << 10];
            assert_eq!(v.read(made.ino, 0, &mut content).unwrap(), content.len());
            assert!(content.iter().all(|b| *b == 0xa5), "{bitmap}, {n}");
        }
        assert!(device.hits() > 0, "{bitmap}");
        v.sync().unwrap();
    }
}

/// Each bit of a bitmap is a cluster then. Such an image is mounted for reading.
#[test]
fn nothing_is_made_in_an_image_of_clusters() {
    let args = &["-t", "ext4", "-b", "1024", "-C", "4096", "-O", "bigalloc,^flex_bg,^resize_inode"];
    let t = TestVolume::on(mke2fs("128M", args), Options::default());
    assert!(superblock(&t.device.snapshot()).group_count() > 1);
    for (name, kind) in [("d", NewKind::Dir), ("f", NewKind::File)] {
        let made = t.volume.create(Ino::ROOT, name.as_bytes(), &new(kind));
        assert!(matches!(&made, Err(e) if e.errno() == 30), "{name}: {made:?}");
    }
}

/// A truncate that was under way when the power was lost, of a file system that writes the zeros later.
#[test]
fn a_truncate_that_another_has_begun_leaves_zeros_behind_the_end() {
    let commands = ["sif source size 500", "ssv last_orphan 12"];
    let t = TestVolume::on(image("16M", &["-t", "ext4", "-b", "1024"], 9000, &commands), Options::default());
    t.check();
    let left = t.device.snapshot();
    let at: usize = run_on(&left, "blocks source").split_whitespace().next().unwrap().parse().unwrap();
    let block = &left[at * 1024..(at + 1) * 1024];
    assert!(block[..500].iter().all(|b| *b == 0x5a) && block[500..].iter().all(|b| *b == 0));
}

/// Of two files whose blocks are marked free one is deleted, which tells that the bitmap is wrong.
#[test]
fn after_a_free_of_blocks_that_are_free_nothing_is_discarded_in_their_group() {
    let args = &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^flex_bg,^resize_inode,^has_journal"];
    let whole = image("16M", args, 40 << 10, &["write /etc/passwd other"]);
    let blocks = |name: &str| -> Vec<u64> {
        run_on(&whole, &format!("blocks {name}")).split_whitespace().map(|b| b.parse().unwrap()).collect()
    };
    let all = [blocks("source"), blocks("other")].concat();
    let group = (all[0] - 1) / 8192;
    assert!(all.iter().all(|b| (b - 1) / 8192 == group), "{all:?}");
    let path = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(path.path(), &whole).unwrap();
    let stats = run("dumpe2fs", &[text(path.path())]);
    let line = stats.lines().filter(|l| l.contains("free blocks,")).nth(usize::try_from(group).unwrap()).unwrap();
    let free: usize = line.trim().split(' ').next().unwrap().parse().unwrap();
    let mut commands: Vec<String> = all.iter().map(|b| format!("freeb {b}")).collect();
    commands.push(format!("set_bg {group} free_blocks_count {}", free + all.len()));
    commands.push(format!("set_bg {group} checksum calc"));
    let commands: Vec<&str> = commands.iter().map(String::as_str).collect();
    let t = TestVolume::on(debugfs(&whole, &commands), Options::default());
    t.volume.unlink(Ino::ROOT, b"other").unwrap();
    t.volume.sync().unwrap();
    t.volume.maintenance().trim(0, u64::MAX, 0).unwrap();
    source_is_whole(&t.volume, 40 << 10);
}

#[test]
fn after_a_free_of_blocks_that_are_free_nothing_is_taken_in_their_group() {
    let args = &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^flex_bg,^resize_inode,^has_journal"];
    let whole = image("16M", args, 100 << 10, &["write /etc/passwd other"]);
    let path = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(path.path(), &whole).unwrap();
    let blocks = run("debugfs", &["-R", "blocks source", text(path.path())]);
    let first: u64 = blocks.split_whitespace().next().unwrap().parse().unwrap();
    let group = (first - 1) / 8192;
    let free: u32 = {
        let stats = run("dumpe2fs", &[text(path.path())]);
        let line = stats.lines().filter(|l| l.contains("free blocks,")).nth(usize::try_from(group).unwrap()).unwrap();
        line.trim().split(' ').next().unwrap().parse().unwrap()
    };
    let count = format!("set_bg {group} free_blocks_count {}", free + 50);
    let mark = format!("freeb {first} 50");
    let calc = format!("set_bg {group} checksum calc");
    let t = TestVolume::on(debugfs(&whole, &[&mark, &count, &calc]), Options::default());
    let v = &t.volume;
    v.unlink(Ino::ROOT, b"source").unwrap();
    v.sync().unwrap();
    let used = |ino| v.inspect().extents(ino, 100).unwrap();
    let made = file(v, "new", 50 << 10).unwrap();
    let in_group = |b: u64| (b - 1) / 8192 == group;
    assert!(used(made.ino).iter().all(|e| !in_group(e.phys.0)), "taken in a group that cannot be trusted");
}

#[test]
fn an_inode_in_use_that_is_marked_free_is_not_handed_out() {
    for args in [&["-t", "ext4"][..], &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"]] {
        let whole = image("24M", args, 9000, &[]);
        let inodes = superblock(&whole).free_inodes();
        let per_group = superblock(&whole).inodes_per_group();
        let free = if inodes < per_group { inodes } else { per_group - 12 };
        let count = format!("set_bg 0 free_inodes_count {}", free + 1);
        let commands = ["freei <12>", &count, "set_bg 0 checksum calc"];
        let t = TestVolume::on(debugfs(&whole, &commands), Options::default());
        let made = file(&t.volume, "new", 5000);
        assert!(made.as_ref().map_or(true, |a| a.ino != Ino(12)), "{args:?}: {made:?}");
        assert!(made.is_ok() == (inodes >= per_group), "{args:?}: {made:?}");
        source_is_whole(&t.volume, 9000);
        left_for_e2fsck(&t);
    }
}

/// The kernel says that a reserved inode was found cleared, and takes inodes in the next group, too.
#[test]
fn a_reserved_inode_that_is_marked_free_keeps_no_file_from_being_made() {
    for args in [&["-t", "ext4"][..], &["-t", "ext4", "-O", "^metadata_csum,uninit_bg"], &["-t", "ext3"]] {
        let args = [args, &["-b", "1024", "-N", "96"]].concat();
        let whole = image("24M", &args, 9000, &[]);
        let per_group = superblock(&whole).inodes_per_group();
        assert_eq!(superblock(&whole).group_count(), 3);
        // The eleven reserved ones and the source are in use.
        let count = format!("set_bg 0 free_inodes_count {}", per_group - 12 + 1);
        let t = TestVolume::on(debugfs(&whole, &["freei <9>", &count, "set_bg 0 checksum calc"]), Options::default());
        let made: Vec<u32> = (0..per_group - 12 + 3)
            .map(|n| file(&t.volume, &format!("f{n}"), 1).unwrap_or_else(|e| panic!("{args:?}, {n}: {e}")).ino.0)
            .collect();
        assert_eq!(made.iter().filter(|ino| **ino <= per_group).count(), usize::try_from(per_group).unwrap() - 12);
        source_is_whole(&t.volume, 9000);
        left_for_e2fsck(&t);
    }
}

#[test]
fn an_inline_flag_without_its_feature_is_refused() {
    let args = &["-t", "ext4", "-O", "^metadata_csum"];
    let t = TestVolume::on(image("16M", args, 40, &["sif source flags 0x10000000"]), Options::default());
    let before = t.device.snapshot();
    let e = t.volume.getattr(Ino(12)).unwrap_err();
    assert!(e.errno() == 117 && e.to_string().contains("inline_data"), "{e}");
    assert_eq!(t.volume.write(Ino(12), 40, &[1; 9000], WriteFlags::default()).unwrap_err().errno(), 117);
    t.volume.sync().unwrap();
    let at = |image: &[u8]| run_on(image, "stat source");
    assert_eq!(at(&before), at(&t.device.snapshot()));
}

pub(super) fn run_on(image: &[u8], command: &str) -> String {
    let path = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(path.path(), image).unwrap();
    run("debugfs", &["-R", command, text(path.path())])
}
