//! Full disks, and offsets at the edge of what a file can hold.

use super::{Bench, Numbers, Then, file, image, options};
use crate::config::{Options, Route};
use crate::data::{Falloc, Seek, WriteFlags};
use crate::error::Error;
use crate::{Devices, Volume};
use quire_device::sync::Arc;
use quire_device::{ErrorKind, Io, IoOp, SystemClock};
use quire_layout::features::ro_compat;
use quire_layout::inode::flags;
use quire_layout::superblock::OnError;
use quire_testkit::{Fault, FaultKind, fsck};

const TINY: [&str; 6] = ["-m", "0", "-O", "^resize_inode", "-J", "size=1"];

fn tiny(route: Route, args: &[&str]) -> Bench {
    Bench::new("3M", &[&TINY, args].concat(), 3, options(route))
}

/// F13: what was accepted can be written back, however little space is left; what is refused leaves no trace.
#[test]
fn a_full_disk_refuses_and_keeps_what_it_accepted() {
    for (route, args) in [
        (Route::Ordered, &["-t", "ext4", "-b", "1024"][..]),
        (Route::Ordered, &["-t", "ext3", "-b", "1024"]),
        (Route::Journal, &["-t", "ext4", "-b", "1024"]),
        (Route::Journal, &["-t", "ext3", "-b", "1024"]),
    ] {
        // The last: each block needs a block of pointers of its own, where there are such.
        for stride in [1, 2, 3, 300] {
            let mut b = tiny(route, args);
            let mut r = Numbers(77 + stride);
            let mut accepted = Vec::new();
            let mut refused = 0;
            for n in 0..4000 {
                let (ino, at) = (file(u32::try_from(n % 3).unwrap()), n / 3 * stride * 1024);
                let data = r.bytes(1024);
                match b.volume.write(ino, at, &data, WriteFlags::default()) {
                    Ok(n) => {
                        assert_eq!(n, 1024);
                        accepted.push((ino, at, data));
                    }
                    Err(Error::NoSpace) => refused += 1,
                    Err(e) => panic!("{e}"),
                }
                if n % 97 == 0 {
                    b.volume.fsync(ino, false).unwrap();
                }
            }
            assert!(refused > 100 && accepted.len() > 500, "{} accepted, {refused} refused", accepted.len());
            b.volume.sync().unwrap();
            b.remount();
            for (ino, at, data) in &accepted {
                let mut buf = [0; 1024];
                assert_eq!(b.volume.read(*ino, *at, &mut buf).unwrap(), 1024);
                assert_eq!(buf[..], data[..], "{route:?} {args:?} {ino} at {at}");
            }
            // Space that was given back is there again.
            b.volume.truncate(file(0), 0).unwrap();
            b.volume.write(file(0), 0, &vec![1; 100 << 10], WriteFlags::default()).unwrap();
            b.check();
        }
    }
}

/// Every operation on a disk with 0, 1, 2, ... free blocks: it is done, or refused with no space.
#[test]
fn operations_meet_the_end_of_space_at_every_point() {
    for route in [Route::Ordered, Route::Journal] {
        for free in 0..12 {
            let b = tiny(route, &["-t", "ext4", "-b", "1024"]);
            let v = &b.volume;
            let mut content = vec![0; 30 << 10];
            for n in 0..15 {
                v.write(file(0), n * 2048, &[7; 1024], WriteFlags::default()).unwrap();
                content[usize::try_from(n * 2048).unwrap()..][..1024].fill(7);
            }
            content.truncate(29 << 10);
            v.sync().unwrap();
            let mut n = 0;
            while v.fallocate(file(1), Falloc::Allocate { keep_size: false }, 0, n + 1024).is_ok() {
                n += 1024;
            }
            v.truncate(file(1), n.saturating_sub(free * 1024)).unwrap();
            v.sync().unwrap();
            let mut refused = 0;
            for (how, at, len) in [
                (Falloc::Allocate { keep_size: true }, 0, 30 << 10),
                (Falloc::ZeroRange { keep_size: true }, 4096, 3000),
                (Falloc::PunchHole, 8192, 2000),
                (Falloc::Insert, 1024, 1024),
                (Falloc::Collapse, 1024, 1024),
            ] {
                match v.fallocate(file(0), how, at, len) {
                    Ok(()) => {}
                    Err(Error::NoSpace) => refused += 1,
                    Err(e) => panic!("{how:?} with {free} blocks: {e}"),
                }
            }
            for n in 0..20 {
                match v.write(file(2), n * 3000, &[1; 2500], WriteFlags::default()) {
                    Ok(_) => {}
                    Err(Error::NoSpace) => refused += 1,
                    Err(e) => panic!("write with {free} blocks: {e}"),
                }
            }
            assert!(refused > 0, "{free} blocks");
            v.sync().unwrap();
            b.check();
        }
    }
}

#[test]
fn a_file_ends_where_its_map_ends() {
    for (args, block) in [(&["-t", "ext4", "-b", "4096"][..], 4096), (&["-t", "ext3", "-b", "1024"], 1024)] {
        let mut b = Bench::new("16M", args, 2, options(Route::Ordered));
        let max = crate::map::max_size(b.volume.superblock(), block == 4096);
        b.volume.write(file(0), max - 10, &[9; 10], WriteFlags::default()).unwrap();
        assert_eq!(b.volume.write(file(0), max - 4, &[8; 10], WriteFlags::default()).unwrap(), 4);
        assert!(matches!(b.volume.write(file(0), max, &[1], WriteFlags::default()), Err(Error::TooLarge)));
        assert!(matches!(b.volume.truncate(file(1), max + 1), Err(Error::TooLarge)));
        b.volume.truncate(file(1), max).unwrap();
        b.remount();
        let mut buf = [0; 20];
        assert_eq!(b.volume.read(file(0), max - 12, &mut buf).unwrap(), 12);
        assert_eq!(buf[..12], [0, 0, 9, 9, 9, 9, 9, 9, 8, 8, 8, 8]);
        assert_eq!(b.volume.seek(file(0), 0, Seek::Data).unwrap(), (max - 10) / block * block);
        assert_eq!(b.volume.seek(file(1), 5, Seek::Hole).unwrap(), 5);
        assert!(matches!(b.volume.seek(file(1), 5, Seek::Data), Err(Error::NoSuchRange)));
        assert!(matches!(b.volume.seek(file(1), max, Seek::Hole), Err(Error::NoSuchRange)));
        b.check();
    }
}

/// F5: however much is written, what is not clean stays bounded.
#[test]
fn dirty_pages_are_bounded() {
    let o = Options { cache_bytes: 1 << 20, ..options(Route::Ordered) };
    let b = Bench::new("64M", &["-t", "ext4", "-b", "4096"], 2, o);
    let files = &b.volume.data().files;
    for n in 0..32 {
        b.volume.write(file(n % 2), u64::from(n / 2) << 20, &vec![5; 1 << 20], WriteFlags::default()).unwrap();
        assert!(files.pages() <= b.volume.data().limits.max_pages, "{} pages", files.pages());
    }
    b.volume.sync().unwrap();
    assert_eq!(files.pages(), 0);
    b.check();
}

/// A5, F13: what was accepted is written back while FITRIM has claimed what it discards.
#[test]
fn accepted_data_is_written_back_while_free_space_is_trimmed() {
    for min in [0, 400 << 10] {
        let image = image("3M", &[&TINY[..], &["-t", "ext4", "-b", "1024"]].concat(), 1);
        let device = Arc::new(Then::new(image, |io| matches!(io, Io::Discard { .. })));
        let options = Options { direct_bytes: usize::MAX, ..options(Route::Ordered) };
        let v = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options.clone()).unwrap();
        let blocks = usize::try_from(v.statfs().available).unwrap() / 10 * 9;
        let bytes = Numbers(5).bytes(blocks << 10);
        v.write(file(0), 0, &bytes, WriteFlags::default()).unwrap();
        let theirs = v.clone();
        device.set(move || theirs.fsync(file(0), false).unwrap());
        assert!(v.maintenance().trim(0, u64::MAX, min).unwrap() > 0);
        assert!(device.has_done_it(), "at least {min}");
        v.fsync(file(0), false).unwrap();
        v.close().unwrap();
        fsck(&device.inner.snapshot());
        let v = Volume::open(Devices::one(device), Arc::new(SystemClock), options).unwrap();
        let mut read = vec![0; bytes.len()];
        v.read(file(0), 0, &mut read).unwrap();
        assert!(read == bytes, "at least {min}");
    }
}

/// A10: a discard that fails makes freed blocks available all the same, and is no error of the write that takes them.
#[test]
fn a_discard_that_fails_fails_no_write() {
    let o = Options { discard: true, on_error: Some(OnError::RemountReadOnly), ..options(Route::Ordered) };
    let b = Bench::on(image("3M", &[&TINY[..], &["-t", "ext4", "-b", "1024"]].concat(), 2), o);
    let v = &b.volume;
    let full = (0..).take_while(|n| v.write(file(0), n << 10, &[7; 1024], WriteFlags::default()).is_ok()).count();
    assert!(full > 500, "{full} blocks");
    v.sync().unwrap();
    v.truncate(file(0), 0).unwrap();
    b.device.inner().inject(Fault::always(IoOp::Discard, FaultKind::Error(ErrorKind::Io)));
    v.write(file(1), 0, &vec![8; 200 << 10], WriteFlags::default()).unwrap();
    assert!(b.device.inner().hits() > 0, "no discard");
    v.fsync(file(1), false).unwrap();
    assert_eq!(v.status().read_only, None);
    b.check();
}

/// Without `huge_file` an inode counts less than 2 TiB of blocks: a file cannot become larger, as with the kernel.
#[test]
fn a_file_ends_where_its_inode_can_count_no_more() {
    for (args, max) in [
        (&["-t", "ext4", "-O", "^huge_file", "-b", "4096"][..], ((1 << 29) - 1) << 12),
        (&["-t", "ext4", "-O", "^huge_file", "-b", "1024"], ((1 << 31) - 1) << 10),
        (&["-t", "ext3", "-b", "4096"], 2_196_873_666_560),
        (&["-t", "ext3", "-b", "1024"], 17_247_252_480),
    ] {
        let b = Bench::new("16M", args, 1, options(Route::Ordered));
        assert!(matches!(b.volume.truncate(file(0), max + 1), Err(Error::TooLarge)), "{args:?}");
        b.volume.truncate(file(0), max).unwrap();
        b.check();
    }
}

/// Without `huge_file`: data whose blocks the inode could not count is refused, and not lost by its writeback.
#[test]
fn what_an_inode_cannot_count_is_refused() {
    for direct_bytes in [usize::MAX, 4096] {
        let o = Options { direct_bytes, ..options(Route::Ordered) };
        let b = Bench::on(image("16M", &["-t", "ext4", "-O", "^huge_file", "-b", "4096"], 1), o);
        let v = &b.volume;
        v.write(file(0), 0, &[1; 40 << 10], WriteFlags::default()).unwrap();
        v.fsync(file(0), false).unwrap();
        let counted = v.run(|op| {
            let mut inode = crate::records::inode(op, file(0))?;
            let (features, bs) = (op.sb().features(), op.sb().block_size().bytes64());
            assert!(inode.set_sectors(features, bs, u64::from(u32::MAX) - 100 * 8) && !inode.has(flags::HUGE_FILE));
            crate::records::put_inode(op, file(0), &mut inode)
        });
        counted.unwrap();
        let mut accepted = 10;
        let refused = loop {
            match v.write(file(0), accepted << 12, &[2; 4096], WriteFlags::default()) {
                Ok(n) => accepted += u64::from(n == 4096),
                Err(e) => break e,
            }
            assert!(accepted < 200, "the inode cannot count them");
        };
        assert!(matches!(refused, Error::TooLarge) && accepted > 40, "{refused}, {accepted} blocks");
        v.write(file(0), 0, &[3; 40 << 10], WriteFlags::default()).unwrap();
        v.fsync(file(0), false).unwrap();
        assert_eq!(v.extents(file(0), 0, u64::MAX, 100).unwrap().iter().map(|e| e.len).sum::<u64>(), accepted << 12);
    }
}

/// Without `large_file` the first file of 2 GiB sets it in the transaction that has its size, as with the kernel.
#[test]
fn the_first_large_file_sets_its_feature() {
    type Grow = fn(&Volume);
    let grow: [Grow; 3] = [
        |v| v.truncate(file(0), 3 << 30).unwrap(),
        |v| assert_eq!(v.write(file(0), (1 << 31) - 10, &[7; 20], WriteFlags::default()).unwrap(), 20),
        |v| assert_eq!(v.write(file(0), 5 << 30, &[7; 20_000], WriteFlags::default()).unwrap(), 20_000),
    ];
    let all = [Route::Ordered, Route::Journal, Route::Overwrite];
    for args in [
        &["-t", "ext4", "-O", "^large_file"][..],
        &["-t", "ext3", "-b", "1024", "-O", "^large_file"],
        &["-t", "ext2", "-b", "4096", "-r", "0"],
    ] {
        for (route, grow) in all.iter().flat_map(|route| grow.iter().map(move |grow| (*route, grow))) {
            let has_log = !args.contains(&"ext2");
            let route = if has_log { route } else { Route::None };
            let mut b = Bench::new("16M", args, 1, options(route));
            let has = |v: &Volume| {
                v.run(|op| Ok(crate::records::superblock(op)?.features().has_ro_compat(ro_compat::LARGE_FILE))).unwrap()
            };
            b.volume.truncate(file(0), (1 << 31) - 1).unwrap();
            b.volume.fsync(file(0), false).unwrap();
            assert!(!has(&b.volume), "{args:?}: nothing needs it");
            grow(&b.volume);
            b.volume.fsync(file(0), false).unwrap();
            let size = b.volume.getattr(file(0)).unwrap().size;
            assert!(size >= 1 << 31);
            if has_log {
                let again = b.after_a_crash();
                assert!(has(&again) && again.getattr(file(0)).unwrap().size == size, "{args:?}, {route:?}");
            }
            b.remount();
            assert!(has(&b.volume) && b.volume.getattr(file(0)).unwrap().size == size, "{args:?}, {route:?}");
            b.volume.truncate(file(0), 0).unwrap();
            b.check();
        }
    }
}
