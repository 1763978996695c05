//! Operations on a mounted volume: all or nothing, on each kind of image.

use crate::error::Error;
use crate::records;
use crate::testing::TestVolume;
use quire_layout::Ino;
use quire_layout::inode::Time;

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
