//! Many threads on few files.

use super::{Bench, Numbers, file, options};
use crate::Step;
use crate::config::{Options, Route};
use crate::data::{Falloc, WriteFlags};
use quire_device::sync::atomic::{AtomicBool, Ordering};
use quire_device::sync::thread;

const THREADS: u64 = 4;
/// Bytes of the stripe that one thread owns in each file; not a multiple of the block.
const STRIPE: u64 = 20_000;

fn bench(route: Route) -> Bench {
    let o = Options { cache_bytes: 1 << 20, ..options(route) };
    Bench::new("48M", &["-t", "ext4", "-b", "4096"], 4, o)
}

/// Each thread writes and reads its own stripes, which share blocks with others'; batches, steps and syncs go on
/// meanwhile.
#[test]
fn stripes_of_shared_blocks_stay_whole() {
    for route in [Route::Ordered, Route::Journal] {
        let mut b = bench(route);
        let done = AtomicBool::new(false);
        let mut stripes: Vec<Vec<Vec<u8>>> = Vec::new();
        thread::scope(|scope| {
            let workers: Vec<_> = (0..THREADS)
                .map(|t| {
                    scope.spawn({
                        let b = &b;
                        move || stripe_worker(b, t)
                    })
                })
                .collect();
            let background = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    if b.volume.maintenance().step().expect("step") != Step::Did {
                        b.volume.sync().expect("sync");
                    }
                }
            });
            stripes.extend(workers.into_iter().map(|w| w.join().expect("worker")));
            done.store(true, Ordering::Relaxed);
            background.join().expect("background");
        });
        b.remount();
        for (t, files) in (0..).zip(&stripes) {
            for (n, stripe) in (0..).zip(files) {
                let mut buf = vec![0; stripe.len()];
                b.volume.read(file(n), t * STRIPE, &mut buf).unwrap();
                assert!(buf == *stripe, "{route:?}: stripe {t} of file {n}");
            }
        }
        b.check();
    }
}

fn stripe_worker(b: &Bench, t: u64) -> Vec<Vec<u8>> {
    let mut r = Numbers(1000 + t);
    let size = usize::try_from(STRIPE).unwrap();
    let mut stripes = vec![vec![0; size]; 3];
    for n in 0..3 {
        b.volume
            .write(file(n), t * STRIPE, &stripes[usize::try_from(n).unwrap()], WriteFlags::default())
            .expect("write");
    }
    for _ in 0..600 {
        let n = r.below(3);
        let (ino, stripe) = (file(u32::try_from(n).unwrap()), &mut stripes[usize::try_from(n).unwrap()]);
        let at = r.below(STRIPE);
        let len = r.below((STRIPE - at).min(9000)) + 1;
        let range = usize::try_from(at).unwrap()..usize::try_from(at + len).unwrap();
        match r.below(10) {
            0..=4 => {
                let data = r.bytes(range.len());
                assert_eq!(
                    b.volume.write(ino, t * STRIPE + at, &data, WriteFlags::default()).expect("write"),
                    data.len()
                );
                stripe[range].copy_from_slice(&data);
            }
            5 => b.volume.fsync(ino, at.is_multiple_of(2)).expect("fsync"),
            6 => {
                b.volume.fallocate(ino, Falloc::PunchHole, t * STRIPE + at, len).expect("punch");
                stripe[range].fill(0);
            }
            _ => {
                let mut buf = vec![1; range.len()];
                assert_eq!(b.volume.read(ino, t * STRIPE + at, &mut buf).expect("read"), buf.len());
                assert!(buf == stripe[range], "stripe {t} of {ino} at {at}+{len}");
            }
        }
    }
    stripes
}

/// Appends of one request each do not mix.
#[test]
fn appends_are_atomic() {
    for route in [Route::Ordered, Route::Journal] {
        let b = bench(route);
        thread::scope(|scope| {
            for t in 0..THREADS {
                let b = &b;
                scope.spawn(move || {
                    let mut r = Numbers(5 + t);
                    for _ in 0..200 {
                        let len = u16::try_from(r.below(3000) + 3).unwrap();
                        let mut record = vec![u8::try_from(t).unwrap() + 1; usize::from(len)];
                        record[..2].copy_from_slice(&len.to_le_bytes());
                        let append = WriteFlags { append: true, ..WriteFlags::default() };
                        b.volume.write(file(0), 0, &record, append).expect("append");
                        if len % 16 == 0 {
                            b.volume.fsync(file(0), false).expect("fsync");
                        }
                    }
                });
            }
        });
        let size = b.volume.getattr(file(0)).unwrap().size;
        let all = b.read_all(file(0), usize::try_from(size).unwrap());
        let (mut at, mut records) = (0, 0);
        while at < all.len() {
            let len = usize::from(u16::from_le_bytes([all[at], all[at + 1]]));
            let record = &all[at + 2..at + len];
            assert!(record.iter().all(|b| *b == record[0] && *b > 0), "{route:?}: record at {at}");
            (at, records) = (at + len, records + 1);
        }
        assert_eq!(records, THREADS * 200);
        b.check();
    }
}

/// A file that grows, shrinks and is read at once never shows what is not its own.
#[test]
fn readers_never_see_strange_bytes() {
    for route in [Route::Ordered, Route::Journal] {
        let b = bench(route);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            // Fills the disk with bytes that are nobody else's, and gives them back.
            scope.spawn(|| {
                let mut n = 0;
                while !done.load(Ordering::Relaxed) {
                    b.volume.write(file(2), (n % 8) << 20, &vec![0xAA; 1 << 20], WriteFlags::default()).expect("write");
                    n += 1;
                    if n % 8 == 0 {
                        b.volume.truncate(file(2), 0).expect("truncate");
                    }
                }
            });
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut buf = vec![0; 300_000];
                    while !done.load(Ordering::Relaxed) {
                        let n = b.volume.read(file(0), 0, &mut buf).expect("read");
                        assert!(buf[..n].iter().all(|b| *b == 0 || *b == 0x55), "{route:?}");
                    }
                });
            }
            let mut r = Numbers(9);
            for _ in 0..300 {
                let at = r.below(250_000);
                match r.below(5) {
                    0 => b.volume.truncate(file(0), at).expect("truncate"),
                    1 => b
                        .volume
                        .fallocate(file(0), Falloc::Allocate { keep_size: false }, at, 40_000)
                        .expect("allocate"),
                    2 => b.volume.fsync(file(0), false).expect("fsync"),
                    _ => drop(b.volume.write(file(0), at, &[0x55; 30_000], WriteFlags::default()).expect("write")),
                }
            }
            done.store(true, Ordering::Relaxed);
        });
        b.check();
    }
}
