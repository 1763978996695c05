//! Operations on a mounted volume: all or nothing, on each kind of image.

use crate::error::Error;
use crate::records;
use crate::testing::TestVolume;
use crate::{Cred, Devices, New, NewKind, Options, Volume};
use quire_device::sync::Arc;
use quire_device::{ErrorKind, IoOp, Region, SystemClock};
use quire_layout::Ino;
use quire_layout::inode::Time;
use quire_testkit::{Fault, FaultKind, Faulty, MemDevice, mke2fs};

#[test]
fn an_operation_joins_or_leaves_no_trace() {
    let t = TestVolume::new("16M", &["-t", "ext4"]);
    let before = t.volume.run(|op| records::inode(op, Ino::ROOT)).unwrap();
    let refused = t.volume.run(|op| {
        let mut i = records::inode(op, Ino::ROOT)?;
        i.set_mode(0o40_700);
        records::put_inode(op, Ino::ROOT, &mut i)?;
        Err::<(), _>(Error::NoSpace)
    });
    assert!(matches!(refused, Err(Error::NoSpace)));
    assert_eq!(t.volume.run(|op| records::inode(op, Ino::ROOT)).unwrap(), before);
    let at = t.volume.run(|op| {
        let mut i = records::inode(op, Ino::ROOT)?;
        i.set_mode(0o40_700);
        i.set_time(Time::Change, op.now());
        records::put_inode(op, Ino::ROOT, &mut i)?;
        Ok(op.now())
    });
    t.check();
    let again = TestVolume::on(t.device.snapshot(), crate::Options::default());
    let i = again.volume.run(|op| records::inode(op, Ino::ROOT)).unwrap();
    assert_eq!((i.mode(), i.time(Time::Change)), (0o40_700, Some(at.unwrap())));
}

/// L1: the write that marks the image clean fails after its flags have arrived, and so does the one that takes that
/// back. What is acknowledged afterwards survives a crash.
#[test]
fn a_freeze_that_cannot_be_taken_back_leaves_no_writable_volume_on_a_clean_image() {
    let device = Arc::new(Faulty::new(MemDevice::new(mke2fs("16M", &["-t", "ext4"]))));
    let open = |device| Volume::open(Devices::one(device), Arc::new(SystemClock), Options::default()).expect("mount");
    let volume = open(device.clone());
    let torn = Fault::once(IoOp::Write, FaultKind::Torn { sectors: 1 });
    device.inject(torn.in_region(Region::Superblock));
    device.inject(Fault::always(IoOp::Write, FaultKind::Error(ErrorKind::Io)).in_region(Region::Superblock));
    assert!(volume.maintenance().freeze().is_err() && device.hits() >= 2, "{} faults", device.hits());
    device.heal();
    let new = New { kind: NewKind::File, mode: 0o644, umask: 0, cred: Cred::default() };
    let acknowledged = volume.create(Ino::ROOT, b"after", &new).is_ok() && volume.fsync(Ino::ROOT, false).is_ok();
    let left = Arc::new(MemDevice::new(device.inner().snapshot()));
    let found = open(left).lookup(Ino::ROOT, b"after").is_ok();
    assert!(found || !acknowledged, "what was synced on an image marked clean is lost");
}

#[test]
fn every_descriptor_and_inode_of_a_fresh_image_is_read() {
    for args in [&["-t", "ext4"][..], &["-t", "ext3"], &["-t", "ext4", "-b", "1024", "-I", "128"], &["-t", "ext2"]] {
        let t = TestVolume::new("48M", args);
        let sb = t.volume.superblock();
        for g in 0..sb.group_count() {
            t.volume.run(|op| records::group(op, quire_layout::GroupNo(g))).unwrap();
        }
        for n in 1..=sb.inodes_count().min(64) {
            t.volume.run(|op| records::inode(op, Ino(n))).unwrap();
        }
    }
}
