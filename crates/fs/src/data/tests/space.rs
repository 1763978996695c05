//! Full disks, and offsets at the edge of what a file can hold.

use super::{Bench, Numbers, file, options};
use crate::config::{Options, Route};
use crate::data::{Falloc, Seek, WriteFlags};
use crate::error::Error;

fn tiny(route: Route, args: &[&str]) -> Bench {
    Bench::new("3M", &[&["-m", "0", "-O", "^resize_inode", "-J", "size=1"], args].concat(), 3, options(route))
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
