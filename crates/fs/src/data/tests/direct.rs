//! Requests that go to the device without pages (F19).

use super::{Bench, Numbers, file, options};
use crate::Step;
use crate::config::{Options, Route};
use crate::data::{Falloc, WriteFlags};
use quire_device::Region;
use quire_device::sync::atomic::{AtomicBool, Ordering};
use quire_device::sync::thread;

const BLOCK: usize = 4096;
const LARGE: usize = 256 << 10;

fn bench(route: Route) -> Bench {
    let o = Options { auto_threshold: Some(16 << 10), ..options(route) };
    Bench::new("64M", &["-t", "ext4", "-b", "4096"], 2, o)
}

#[test]
fn large_requests_make_no_pages() {
    for (route, overwrites_in_place) in [
        (Route::Ordered, true),
        (Route::Writeback, true),
        (Route::None, true),
        (Route::Selective, true),
        (Route::Auto, false),
        (Route::Overwrite, false),
        (Route::Journal, false),
    ] {
        let mut b = bench(route);
        let mut r = Numbers(7);
        let (first, second) = (r.bytes(LARGE), r.bytes(LARGE));
        let write = |at: usize, data: &[u8]| {
            let did = b.counted(|| {
                let n = b.volume.write(file(0), at as u64, data, WriteFlags::default()).unwrap();
                assert_eq!(n, data.len());
            });
            did.region(Region::Data).writes.bytes
        };
        let new = if route == Route::Journal { 0 } else { LARGE as u64 };
        assert_eq!(write(0, &first), new, "{route:?}: new blocks");
        assert_eq!(write(LARGE, &first), new, "{route:?}: the file grows");
        let in_place = if overwrites_in_place { LARGE as u64 } else { 0 };
        assert_eq!(write(BLOCK, &second), in_place, "{route:?}: blocks that hold data");
        // What is not of whole blocks goes by way of pages, or of the log.
        assert_eq!(write(2 * LARGE + 1, &first), 0, "{route:?}: a part of a block");
        let mut expected = [&first[..], &first, &[0], &first].concat();
        expected[BLOCK..BLOCK + LARGE].copy_from_slice(&second);
        assert!(b.read_all(file(0), expected.len()) == expected, "{route:?}: before the unmount");
        b.remount();
        assert!(b.read_all(file(0), expected.len()) == expected, "{route:?}: after it");
        b.check();
    }
}

/// Large requests, small ones, holes and truncates of the same blocks at once: every block is as one of them left it.
#[test]
fn what_overlaps_waits() {
    const CHUNKS: u64 = 8;
    for route in [Route::Ordered, Route::Auto] {
        let mut b = bench(route);
        let done = AtomicBool::new(false);
        let chunk = |r: &mut Numbers| r.below(CHUNKS) * LARGE as u64;
        thread::scope(|scope| {
            let background = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if b.volume.maintenance().step().expect("step") != Step::Did {
                        b.volume.fsync(file(0), false).expect("fsync");
                    }
                }
            });
            let large = |t: u64| {
                let (v, mut r) = (&b.volume, Numbers(100 + t));
                move || {
                    for n in 0..60 {
                        let data = vec![u8::try_from(1 + t * 60 + n).expect("few"); LARGE];
                        v.write(file(0), chunk(&mut r), &data, WriteFlags::default()).expect("large write");
                    }
                }
            };
            let small = || {
                let mut r = Numbers(5);
                for n in 0..120u8 {
                    let at = chunk(&mut r) + r.below(64) * BLOCK as u64;
                    b.volume.write(file(0), at, &[200 + n % 50; BLOCK], WriteFlags::default()).expect("small write");
                    match n % 8 {
                        0 => b.volume.truncate(file(0), at).expect("truncate"),
                        4 => b.volume.fallocate(file(0), Falloc::PunchHole, at, 3 * BLOCK as u64).expect("punch"),
                        _ => {}
                    }
                }
            };
            let workers = [scope.spawn(large(0)), scope.spawn(large(1))];
            let other = scope.spawn(small);
            workers.into_iter().for_each(|w| w.join().expect("worker"));
            other.join().expect("worker");
            done.store(true, Ordering::Relaxed);
            background.join().expect("background");
        });
        let size = usize::try_from(b.volume.getattr(file(0)).unwrap().size).unwrap();
        let before = b.read_all(file(0), size);
        for (n, block) in before.chunks(BLOCK).enumerate() {
            assert!(block.iter().all(|x| *x == block[0]), "{route:?}: block {n} is a mixture");
        }
        b.remount();
        assert!(b.read_all(file(0), size) == before, "{route:?}: after the unmount");
        b.check();
    }
}
