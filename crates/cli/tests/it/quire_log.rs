//! An image whose log is Quire's: other tools refuse it and change nothing until it is clean, and ours show and recover
//! it (Q8).

use crate::common::{Place, check, has, is_root, needs_mounts, needs_tools, ok, quire, said, text, tool};
use quire_device::sync::Arc;
use quire_device::{FileDevice, OpenOptions, SystemClock};
use quire_fs::{Choices, CommitMode, Cred, Devices, New, NewKind, Options, Record, Route, Volume, WriteFlags};
use quire_layout::Ino;
use std::fs;
use std::path::Path;

fn open(image: &Path, record: Record) -> Volume {
    let device = Arc::new(FileDevice::open(image, OpenOptions::default()).unwrap());
    let choices = Choices { record, commit: CommitMode::Checksum, ..Choices::of_route(Route::Journal) };
    Volume::open(Devices::one(device), Arc::new(SystemClock), Options::default().with(choices)).unwrap()
}

/// Works on an image, and loses the power: what was made durable is in the log only.
fn leave_unrecovered(image: &Path, record: Record) {
    let v = open(image, record);
    let new = New { kind: NewKind::File, mode: 0o644, umask: 0, cred: Cred { uid: 0, gid: 0 } };
    for n in 0..20u8 {
        let ino = v.create(Ino::ROOT, format!("file{n}").as_bytes(), &new).unwrap().ino;
        v.write(ino, 0, &vec![n; 3000], WriteFlags::default()).unwrap();
        v.fsync(ino, false).unwrap();
        v.write(ino, 100, b"over it", WriteFlags::default()).unwrap();
        v.fsync(ino, false).unwrap();
        v.forget(ino, 1);
    }
}

fn debugfs(image: &Path, command: &str) -> String {
    said(tool("debugfs").args(["-R", command]).arg(image)).1
}

#[test]
fn other_tools_refuse_an_unrecovered_image_and_change_nothing() {
    needs_tools(&["mke2fs", "e2fsck", "tune2fs", "debugfs", "resize2fs"]);
    let place = Place::new("64M", &["-b", "1024"]);
    let image = place.image();
    leave_unrecovered(&image, Record::Range);
    let before = fs::read(&image).unwrap();
    let untouched = |what: &str| assert!(fs::read(&image).unwrap() == before, "{what} has changed the image");
    for command in [
        &["e2fsck", "-fy"][..],
        &["e2fsck", "-fp"],
        &["e2fsck", "-y", "-E", "journal_only"],
        &["e2fsck", "-fy", "-b", "8193", "-B", "1024"],
        &["tune2fs", "-L", "label"],
        &["tune2fs", "-O", "^has_journal"],
        &["resize2fs"],
    ] {
        let (code, words) = said(tool(command[0]).args(&command[1..]).arg(&image));
        assert_ne!(code, 0, "{command:?} works on it: {words}");
        untouched(&format!("{command:?}"));
    }
    let said_by_debugfs = said(tool("debugfs").args(["-w", "-R", "jr"]).arg(&image)).1;
    assert!(said_by_debugfs.contains("unsupported") || said_by_debugfs.contains("not open"), "{said_by_debugfs}");
    untouched("debugfs jr");
    if has("fuse2fs") {
        let (code, words) = said(tool("fuse2fs").args(["-o", "rw"]).arg(&image).arg(place.mnt()));
        assert_ne!(code, 0, "fuse2fs mounts it: {words}");
        untouched("fuse2fs");
    }
    if is_root() && has("losetup") {
        for options in ["loop", "loop,ro", "loop,ro,noload", "loop,sb=8193"] {
            let (code, words) = said(tool("mount").args(["-t", "ext4", "-o", options]).arg(&image).arg(place.mnt()));
            assert_ne!(code, 0, "the kernel mounts it with {options}: {words}");
            untouched(&format!("mount -o {options}"));
        }
    } else {
        println!("the kernel is not asked to mount it: that needs root and losetup");
    }
}

#[test]
fn ours_show_it_recover_it_and_take_the_recovery_back() {
    needs_tools(&["mke2fs", "e2fsck", "e2undo", "debugfs"]);
    for record in Record::ALL {
        let place = Place::new("64M", &["-b", "4096"]);
        let image = place.image();
        leave_unrecovered(&image, record);
        let before = fs::read(&image).unwrap();
        let dump = ok(&mut quire(&["dump", text(&image), "journal"]));
        let word = match record {
            Record::Block => "image of",
            Record::RangeData | Record::Range => "ranges of",
            Record::Delta => "delta of",
        };
        assert!(
            dump.contains("Quire's log version 1") && dump.contains("transaction") && dump.contains(word),
            "{dump}"
        );
        let info = ok(&mut quire(&["info", text(&image)]));
        assert!(info.contains("quire_log"), "{info}");
        let (code, forecast) = said(&mut quire(&["recover", "--dry-run", text(&image)]));
        assert!(code == 4 && forecast.contains("transactions to replay"), "{code}: {forecast}");
        assert!(fs::read(&image).unwrap() == before, "a dry run changes nothing");
        let undo = place.path("undo");
        let (code, words) = said(&mut quire(&["recover", "--undo", text(&undo), text(&image)]));
        assert!(code == 1 && words.contains("transactions replayed"), "{code}: {words}");
        check(&image);
        assert!(!debugfs(&image, "features").contains("FEATURE_I"), "plain ext4 when clean");
        assert!(debugfs(&image, "cat /file7").contains("over it"));
        ok(tool("e2undo").arg(&undo).arg(&image));
        let again = fs::read(&image).unwrap();
        let differ = again.iter().zip(&before).filter(|(a, b)| a != b).count();
        assert!(differ <= 8, "{record}: {differ} bytes differ after e2undo");
        fs::write(&image, &before).unwrap();
        // A mount recovers it as well, and leaves plain ext4.
        open(&image, Record::Range).close().unwrap();
        check(&image);
        assert!(debugfs(&image, "cat /file7").contains("over it"));
    }
}

/// The profile of a mount stands in /proc/mounts and in `quire stats`; what cannot be had is refused with the nearest.
#[test]
fn a_mount_shows_its_profile() {
    needs_mounts();
    let place = Place::new("32M", &[]);
    for (options, label) in
        [("profile=wasteless", "wasteless"), ("data=ordered,record=range", "ordered+range+barrier+lazy")]
    {
        let m = place.mount(options);
        fs::write(m.path("f"), vec![5; 100_000]).unwrap();
        fs::File::open(m.path("f")).unwrap().sync_all().unwrap();
        let mounts = fs::read_to_string("/proc/mounts").unwrap();
        let line = mounts.lines().find(|l| l.contains(text(&place.mnt()))).unwrap();
        assert!(line.contains(&format!(" fuse.quire.{label} ")), "{line}");
        let stats = ok(&mut quire(&["stats", m.dir()]));
        assert!(stats.contains(&format!("profile {label} (")) && stats.contains("records: "), "{stats}");
        m.unmount();
        place.check();
    }
    let (code, words) =
        said(&mut quire(&["mount", "-o", "data=none,record=range", text(&place.image()), text(&place.mnt())]));
    assert!(code != 0 && words.contains("the nearest combination is data=none,record=block"), "{code}: {words}");
}
