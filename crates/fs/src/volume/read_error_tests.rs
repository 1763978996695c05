//! Sectors that cannot be read: what lies in one fails, and nothing that is only read together with it.

use crate::config::Route;
use crate::names::begin_cut;
use crate::records;
use crate::testing::TestVolume;
use crate::{Attributes, Cred, Devices, Error, New, NewKind, Options, Volume, WriteFlags};
use quire_device::sync::Arc;
use quire_device::{ErrorKind, IoOp, SystemClock};
use quire_layout::superblock::{OnError, state};
use quire_layout::{BlockNo, GroupNo, Ino};
use quire_testkit::{Fault, FaultKind, Faulty, MemDevice, mke2fs};

const BLOCK: u64 = 1024;
/// Blocks of an inode table that are read together, and inodes of each.
const WINDOW: u64 = 8;
const PER_BLOCK: u64 = 4;

fn new(kind: NewKind<'static>) -> New<'static> {
    New { kind, mode: 0o755, umask: 0, cred: Cred { uid: 0, gid: 0 } }
}

/// A volume on an image of which a block cannot be read.
fn with_bad_block(image: &[u8], bad: BlockNo, options: Options) -> (Volume, Arc<Faulty<MemDevice>>) {
    let device = Arc::new(Faulty::new(MemDevice::new(image.to_vec())));
    let volume = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options).expect("mount");
    let fault = Fault::always(IoOp::Read, FaultKind::Error(ErrorKind::Io));
    device.inject(fault.within(bad.0 * BLOCK..(bad.0 + 1) * BLOCK));
    (volume, device)
}

/// The errors that the superblock counts.
fn errors(v: &Volume) -> u32 {
    v.run(|op| Ok(records::superblock(op)?.error_count())).expect("the superblock")
}

/// An image with files, and the first block of a window of its inode table that a mount does not read.
fn image_and_window() -> (Vec<u8>, BlockNo, u64) {
    let t = TestVolume::new("16M", &["-t", "ext4", "-b", "1024", "-I", "256"]);
    for n in 0..100 {
        t.volume.create(Ino::ROOT, format!("f{n}").as_bytes(), &new(NewKind::File)).expect("create");
    }
    let table = t.volume.run(|op| Ok(records::group(op, GroupNo(0))?.inode_table())).expect("the group");
    t.check();
    let first = (WINDOW..2 * WINDOW).find(|n| (table.0 + n).is_multiple_of(WINDOW)).expect("one of them");
    (t.device.snapshot(), table.plus(first), first)
}

/// The first inode in a block of the inode table.
fn first_inode(block: u64) -> Ino {
    Ino(u32::try_from(block * PER_BLOCK + 1).expect("small"))
}

/// A bad sector under the last block of a window of the inode table, whichever inode of it is looked for first.
#[test]
fn a_bad_sector_that_is_only_read_ahead_fails_no_inode() {
    let (image, window, first) = image_and_window();
    for n in 0..WINDOW {
        let (v, device) = with_bad_block(&image, window.plus(WINDOW - 1), Options::default());
        let found = v.getattr(first_inode(first + n));
        assert!(device.hits() > 0, "{n}: nothing was read ahead");
        let is_bad = n == WINDOW - 1;
        assert_eq!(found.as_ref().err().map(Error::errno), is_bad.then_some(5), "{n}: {found:?}");
        assert_eq!(errors(&v), u32::from(is_bad), "{n}");
    }
}

#[test]
fn a_bad_sector_that_is_only_read_ahead_fails_no_name() {
    let t = TestVolume::new("16M", &["-t", "ext4", "-b", "1024", "-O", "^dir_index"]);
    let dir = t.volume.create(Ino::ROOT, b"d", &new(NewKind::Dir)).expect("a directory").ino;
    // Three names of this length to a block.
    let name = |n: u32| format!("{n:0>250}").into_bytes();
    for n in 0..60 {
        t.volume.create(dir, &name(n), &new(NewKind::File)).expect("a file");
    }
    let run = t.volume.inspect().extents(dir, 1).expect("its map")[0];
    assert!(run.len > 1, "nothing is read ahead");
    t.check();
    let last = run.phys.plus(u64::from(run.len) - 1);
    let (v, device) = with_bad_block(&t.device.snapshot(), last, Options::default());
    assert_eq!(v.lookup(Ino::ROOT, b"d").expect("the root is sound").ino, dir);
    v.lookup(dir, &name(0)).expect("it is in the first block");
    assert!(device.hits() > 0 && errors(&v) == 0, "{} reads failed, {} errors", device.hits(), errors(&v));
    assert_eq!(v.lookup(dir, &name(59)).expect_err("it is in the bad block, or behind it").errno(), 5);
    assert_eq!(errors(&v), 1);
}

/// An inode that cannot be read does not hide the other names of its directory.
#[test]
fn a_bad_sector_under_an_inode_hides_no_name_from_a_listing() {
    let (image, window, first) = image_and_window();
    let (v, device) = with_bad_block(&image, window, Options::default());
    let mut names = Vec::new();
    let listed = v.readdir_plus(Ino::ROOT, 0, Attributes::All, &mut |item, attr| {
        names.push((item.ino, attr.is_some()));
        true
    });
    listed.expect("the directory itself can be read");
    assert!(device.hits() > 0, "no inode of the bad block was looked at");
    let bad = u64::from(first_inode(first).0)..u64::from(first_inode(first + 1).0);
    assert!(names.iter().all(|(ino, known)| !known || !bad.contains(&u64::from(ino.0))), "{names:?}");
    assert_eq!(names.len(), 100 + 3, "with lost+found and the two dots: {names:?}");
}

#[test]
fn metadata_that_cannot_be_read_is_recorded_and_obeys_the_policy() {
    let (image, window, first) = image_and_window();
    let ino = first_inode(first);
    for policy in [OnError::Continue, OnError::RemountReadOnly] {
        let options = Options { on_error: Some(policy), ..Options::default() };
        let (v, device) = with_bad_block(&image, window, options);
        assert_eq!(v.getattr(ino).expect_err("it cannot be read").errno(), 5);
        assert_eq!(errors(&v), 1, "{policy:?}");
        let read_only = v.status().read_only;
        assert_eq!(read_only.is_some(), policy == OnError::RemountReadOnly, "{policy:?}: {read_only:?}");
        device.heal();
        v.getattr(ino).expect("it can be read again");
        v.close().ok();
        let again = TestVolume::on(device.inner().snapshot(), Options::default());
        assert_eq!(errors(&again.volume), 1, "{policy:?}: it is not durable");
        assert_ne!(again.volume.superblock().state() & state::ERROR, 0, "{policy:?}");
        again.check();
    }
}

/// Also where an operation reads it: the kernel tells the caller, and goes on.
#[test]
fn file_data_that_cannot_be_read_is_no_error_of_the_file_system() {
    for route in [Route::Ordered, Route::Journal] {
        let options = Options { on_error: Some(OnError::RemountReadOnly), route, ..Options::default() };
        let t = TestVolume::on(mke2fs("16M", &["-t", "ext4", "-b", "1024"]), options.clone());
        let ino = t.volume.create(Ino::ROOT, b"f", &new(NewKind::File)).expect("a file").ino;
        t.volume.write(ino, 0, &[1; 4096], WriteFlags::default()).expect("write");
        t.volume.fsync(ino, false).expect("fsync");
        let bad = t.volume.inspect().place(ino, 1).expect("its map").expect("a block");
        t.check();
        let (v, _device) = with_bad_block(&t.device.snapshot(), BlockNo(bad), options);
        let written = v.write(ino, 1100, &[2; 10], WriteFlags::default());
        assert!(matches!(written, Err(Error::Device(_))), "{route:?}: {written:?}");
        let cut = v.truncate(ino, 1500);
        assert!(matches!(cut, Err(Error::Device(_))), "{route:?}: {cut:?}");
        assert_eq!(v.read(ino, 1024, &mut [0; 10]).expect_err("a bad sector").errno(), 5, "{route:?}");
        assert_eq!((errors(&v), v.status().read_only), (0, None), "{route:?}");
    }
}

/// Where a device has a bad sector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bad {
    /// Under the bytes behind the end of a file whose truncate a crash has ended.
    Tail,
    /// Under its inode.
    Inode,
    /// Under a node of its extent tree.
    Node,
    /// Nowhere.
    Nothing,
}

/// An image with two files whose truncates a crash has ended; where the first of them is, and the inodes of both.
fn image_with_orphans(orphan_file: bool, bad: Bad) -> (Vec<u8>, BlockNo, [Ino; 2]) {
    let feature = if orphan_file { "orphan_file" } else { "^orphan_file" };
    let t = TestVolume::new("16M", &["-t", "ext4", "-b", "1024", "-I", "256", "-O", feature]);
    let inos: Vec<Ino> = (0..100)
        .map(|n| t.volume.create(Ino::ROOT, format!("f{n}").as_bytes(), &new(NewKind::File)).expect("create").ino)
        .collect();
    // The one with the bad sector lies in another block of the inode table.
    let [first, second] = [inos[90], inos[5]];
    for ino in [first, second] {
        (0..100).for_each(|n| {
            t.volume.write(ino, 2 * n * BLOCK, &[1; 100], WriteFlags::default()).expect("write");
        });
    }
    t.check();
    let t = TestVolume::on(t.device.snapshot(), Options::default());
    let found = t.volume.run(|op| {
        let inode = records::inode(op, first)?;
        let table = records::group(op, GroupNo(0))?.inode_table();
        let root = quire_layout::extent::Node::new(inode.block_area());
        Ok((table.plus(u64::from(first.0 - 1) / PER_BLOCK), root.index(0).child))
    });
    let (table, node) = found.expect("its inode");
    let tail = BlockNo(t.volume.inspect().place(first, 10).expect("its map").expect("a block"));
    for ino in [second, first] {
        let cut = t.volume.run(|op| {
            let mut inode = records::inode(op, ino)?;
            inode.set_size(10 * BLOCK + 50);
            begin_cut(op, ino, &mut inode)
        });
        cut.expect("it is recorded");
    }
    t.volume.sync().expect("sync");
    let bad = match bad {
        Bad::Tail | Bad::Nothing => tail,
        Bad::Inode => table,
        Bad::Node => node,
    };
    (t.device.snapshot(), bad, [first, second])
}

/// N2: a bad sector under one orphan neither keeps the image from being mounted nor the other orphans from being
/// finished. Where it hides the rest of the list, the volume is only read.
fn mounts_with_a_bad_sector_under_an_orphan(orphan_file: bool, bad: Bad) {
    let (image, at, [first, second]) = image_with_orphans(orphan_file, bad);
    let hides = bad == Bad::Inode && !orphan_file;
    for read_only in [false, true] {
        // What the log has of these blocks comes home first.
        let device = Arc::new(Faulty::new(MemDevice::new(image.clone())));
        let range = at.0 * BLOCK..(at.0 + 1) * BLOCK;
        let fault = Fault::always(IoOp::Read, FaultKind::Error(ErrorKind::Io)).within(range);
        if bad != Bad::Nothing {
            device.inject(fault);
        }
        let case = format!("{bad:?}, {orphan_file}, {read_only}");
        let options = Options { read_only, on_error: Some(OnError::Continue), ..Options::default() };
        let opened = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options);
        let v = opened.unwrap_or_else(|e| panic!("{case}: {e}"));
        assert_eq!(device.hits() > 0, bad != Bad::Nothing, "{case}: {} reads failed", device.hits());
        assert_eq!(v.status().read_only.is_some(), read_only || hides, "{case}: {:?}", v.status().read_only);
        let whole = |ino| v.inspect().extents(ino, 1000).map(|runs| runs.iter().any(|e| e.at.0 > 11));
        assert_eq!(whole(second).expect("it is sound"), hides, "{case}: it is not finished");
        if bad != Bad::Inode && bad != Bad::Node {
            assert!(!whole(first).expect("its map is sound"), "{case}: blocks behind the end are mapped");
        }
        v.close().ok();
        // Once it can be read, the next mount finishes it.
        device.heal();
        let again = TestVolume::on(device.inner().snapshot(), Options::default());
        assert!(again.volume.inspect().extents(first, 1000).expect("sound").iter().all(|e| e.at.0 < 11), "{case}");
        again.check();
    }
}

#[test]
fn a_bad_sector_under_an_orphan_does_not_stop_the_mount() {
    for orphan_file in [false, true] {
        for bad in [Bad::Tail, Bad::Inode, Bad::Node, Bad::Nothing] {
            mounts_with_a_bad_sector_under_an_orphan(orphan_file, bad);
        }
    }
}
