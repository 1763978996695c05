//! A volume that grows while it is used: judged by e2fsck, and compared with what resize2fs makes of the same image.

use crate::config::Route;
use crate::testing::TestVolume;
use crate::{Cred, Devices, Error, New, NewKind, Options, Volume, WriteFlags};
use quire_device::SystemClock;
use quire_device::sync::Arc;
use quire_layout::Ino;
use quire_testkit::image::Image;
use quire_testkit::powerloss::{Completion, PowerLossDevice, PowerLossOptions};
use quire_testkit::{MemDevice, fsck, mke2fs, run};

const MIB: u64 = 1 << 20;

fn write_file(v: &Volume, name: &str, len: usize, byte: u8) -> Result<Ino, Error> {
    let new = New { kind: NewKind::File, mode: 0o644, umask: 0, cred: Cred::default() };
    let ino = v.create(Ino::ROOT, name.as_bytes(), &new)?.ino;
    v.write(ino, 0, &vec![byte; len], WriteFlags::default())?;
    v.fsync(ino, false)?;
    Ok(ino)
}

fn fill(v: &Volume, prefix: &str) -> u64 {
    (0u64..).take_while(|n| write_file(v, &format!("{prefix}{n}"), 2 << 20, 7).is_ok()).count() as u64
}

/// What dumpe2fs tells of an image: the counts that a growth changes.
fn counts(image: &[u8]) -> Vec<String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), image).unwrap();
    let text = run("dumpe2fs", &[file.path().to_str().unwrap()]);
    let names = ["Inode count", "Block count", "Reserved block count", "Free blocks:", "Free inodes:", "Reserved GDT"];
    let mut found: Vec<String> =
        text.lines().filter(|l| names.iter().any(|n| l.starts_with(n))).map(str::to_owned).collect();
    found.push(format!("{} groups", text.lines().filter(|l| l.starts_with("Group ")).count()));
    found
}

/// What resize2fs makes of an image.
fn resized(image: &[u8], bytes: u64) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), image).unwrap();
    let path = file.path().to_str().unwrap();
    file.as_file().set_len(bytes).unwrap();
    run("e2fsck", &["-fy", path]);
    run("resize2fs", &[path, &format!("{}K", bytes >> 10)]);
    std::fs::read(path).unwrap()
}

fn check_now(t: &TestVolume) {
    t.volume.maintenance().freeze().unwrap();
    fsck(&t.device.snapshot());
    t.volume.maintenance().thaw().unwrap();
}

/// Grows an image in use, uses what it has got, and compares the counts with those of resize2fs.
fn grows(args: &[&str], from: &str, to: u64) {
    let image = mke2fs(from, args);
    let empty = TestVolume::on(image.clone(), Options::default());
    let before = empty.volume.statfs();
    empty.volume.maintenance().grow(to).unwrap_or_else(|e| panic!("{args:?}: {e}"));
    let after = empty.volume.statfs();
    assert!(after.blocks > before.blocks && after.free > before.free, "{args:?}: {before:?} {after:?}");
    empty.check();
    let theirs = counts(&resized(&image, to));
    assert_eq!(counts(&empty.device.snapshot()), theirs, "{args:?}: ours is left, that of resize2fs right");
    let t = TestVolume::on(image, Options::default());
    let first = fill(&t.volume, "before");
    t.volume.maintenance().grow(to).unwrap();
    check_now(&t);
    assert!(fill(&t.volume, "after") > 0, "{args:?}: no space after {first} files");
    t.check();
}

#[test]
fn the_last_group_gets_blocks() {
    grows(&["-t", "ext4", "-b", "4096"], "40M", 100 * MIB);
    grows(&["-t", "ext4", "-b", "1024"], "20M", 23 * MIB);
}

#[test]
fn groups_are_added_over_several_blocks_of_descriptors() {
    // 16 descriptors of 64 bytes to a block: 40 groups need three blocks.
    grows(&["-t", "ext4", "-b", "1024"], "20M", 320 * MIB);
    grows(&["-t", "ext4", "-b", "1024", "-O", "^64bit"], "20M", 520 * MIB + (77 << 10));
}

#[test]
fn every_layout_grows() {
    for args in [
        &["-t", "ext4", "-b", "1024", "-O", "^flex_bg"][..],
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,uninit_bg"],
        &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^uninit_bg"],
        &["-t", "ext4", "-b", "2048", "-I", "128", "-O", "^64bit"],
        &["-t", "ext3", "-b", "1024"],
        &["-t", "ext4", "-b", "1024", "-O", "^resize_inode,meta_bg"],
        &["-t", "ext4", "-b", "1024", "-O", "^resize_inode,meta_bg,^flex_bg"],
        &["-t", "ext4", "-b", "1024", "-G", "4", "-g", "3000"],
        &["-t", "ext4", "-b", "1024", "-N", "20000"],
    ] {
        grows(args, "40M", 110 * MIB);
    }
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_changes() {
    let cases: [(&[&str], u64, &str); 6] = [
        (&["-t", "ext4", "-b", "1024"], 20 * MIB, "a mounted volume can only grow"),
        (&["-t", "ext4", "-b", "1024"], 7 * MIB, "a mounted volume can only grow"),
        (&["-t", "ext4", "-b", "1024", "-O", "^resize_inode"], 999 * MIB, "unsupported: growing to more than"),
        (&["-t", "ext4", "-b", "1024"], 65536 * MIB, "unsupported: growing to more than"),
        (&["-t", "ext4", "-b", "1024", "-O", "sparse_super2,^resize_inode"], 30 * MIB, "with sparse_super2"),
        (&["-t", "ext4", "-b", "4096", "-g", "5120"], 20 * MIB + 16384, "too few to make a group"),
    ];
    for (args, to, why) in cases {
        let t = TestVolume::on(mke2fs("20M", args), Options::default());
        t.volume.sync().unwrap();
        let before = t.device.snapshot();
        match t.volume.maintenance().grow(to) {
            Err(e) => assert!(e.to_string().contains(why), "{args:?}: {e}"),
            Ok(n) => panic!("{args:?} has grown to {n}"),
        }
        assert!(before == t.device.snapshot(), "{args:?}: the image has changed");
        t.check();
    }
}

#[test]
fn a_volume_that_has_grown_is_read_again() {
    let t = TestVolume::on(mke2fs("20M", &["-t", "ext4", "-b", "1024", "-O", "orphan_file"]), Options::default());
    t.volume.maintenance().grow(60 * MIB).unwrap();
    t.volume.maintenance().grow(150 * MIB).unwrap();
    let ino = write_file(&t.volume, "large", 90 << 20, 3).unwrap();
    t.volume.close().unwrap();
    let device = Arc::new(MemDevice::new(t.device.snapshot()));
    let again = Volume::open(Devices::one(device), Arc::new(SystemClock), Options::default()).unwrap();
    let mut last = [0; 16];
    assert_eq!(again.read(ino, (90 << 20) - 16, &mut last).unwrap(), 16);
    assert_eq!(last, [3; 16]);
}

/// The power fails between any two writes of a growth, and what the disk had not written yet is lost in part. The file
/// system is that of before, of after, or of some step between, and what was synced is there.
fn survives_power_losses(args: &[&str], options: &Options) {
    let mut start = mke2fs("6M", &[&["-b", "1024", "-g", "512"], args].concat());
    start.resize(16 << 20, 0xEE);
    let o = PowerLossOptions { completion: Completion::AtWait, record: true, ..PowerLossOptions::default() };
    let device = Arc::new(PowerLossDevice::from_image(Image::from_bytes(&start), o));
    let v = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options.clone()).unwrap();
    let before = v.superblock().blocks_count();
    let ino = write_file(&v, "kept", 300_000, 9).unwrap();
    let begun = device.completed();
    v.maintenance().grow(14 << 20).unwrap();
    write_file(&v, "in the new blocks", 3 << 20, 8).unwrap();
    let recording = device.recording().unwrap();
    let mut sizes = std::collections::BTreeSet::new();
    for (n, (done, point)) in (0u64..).zip(recording.crash_points().filter(|(done, _)| *done >= begun)) {
        let crashed = Arc::new(MemDevice::new(point.crash(n).image.to_vec()));
        let what = format!("{args:?} {:?}, after {done} writes, seed {n}", options.route);
        let again = Volume::open(Devices::one(crashed.clone()), Arc::new(SystemClock), options.clone())
            .unwrap_or_else(|e| panic!("{what}: {e}"));
        sizes.insert(again.superblock().blocks_count());
        let mut bytes = vec![0; 300_000];
        assert_eq!(again.read(ino, 0, &mut bytes).unwrap(), bytes.len(), "{what}");
        assert!(bytes.iter().all(|b| *b == 9), "{what}");
        again.close().unwrap_or_else(|e| panic!("{what}: {e}"));
        fsck(&crashed.snapshot());
    }
    println!("{args:?}: found {sizes:?}");
    assert!(sizes.contains(&before) && sizes.contains(&(14 << 10)), "{args:?}: {sizes:?}");
    assert!(sizes.len() > 2, "{args:?}: only {sizes:?}");
}

/// G1.
#[test]
fn a_growth_that_loses_power_leaves_a_whole_file_system() {
    let jbd2 = Options { route: Route::Ordered, ..Options::default() };
    survives_power_losses(&["-t", "ext4", "-E", "resize=30000"], &jbd2);
    survives_power_losses(&["-t", "ext4", "-E", "resize=30000", "-G", "4"], &Options::default());
    survives_power_losses(&["-t", "ext4", "-O", "^resize_inode,meta_bg,^uninit_bg,^metadata_csum"], &jbd2);
}
