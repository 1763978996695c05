//! Atomic updates of one file: seen by no other before the commit, whole after it, nothing without it.

use super::{Bench, file, image, options};
use crate::config::{Choices, Route};
use crate::data::{Falloc, WriteFlags};
use crate::error::Error;
use crate::{Cred, FileUpdate, New, NewKind, Privileges, RenameFlags};
use quire_device::{DeviceStats, Region};
use quire_layout::Ino;

const LOGGED: [Route; 6] =
    [Route::Writeback, Route::Ordered, Route::Journal, Route::Overwrite, Route::Auto, Route::Selective];

fn bench(route: Route) -> Bench {
    Bench::new("32M", &["-t", "ext4", "-b", "4096"], 2, options(route))
}

/// With Quire's own log, where the route has it.
fn bench_as_mounted(route: Route) -> Bench {
    Bench::new("32M", &["-t", "ext4", "-b", "4096"], 2, options(route).with(Choices::of_route(route)))
}

fn write(b: &Bench, ino: Ino, at: u64, data: &[u8]) {
    assert_eq!(b.volume.write(ino, at, data, WriteFlags::default()).unwrap(), data.len());
}

fn put(u: &mut FileUpdate, at: u64, data: &[u8]) -> Result<(), Error> {
    u.write(at, data, Privileges::Keep)
}

/// The bytes of file 0 after `changes`, each a place and some bytes.
fn with(mut bytes: Vec<u8>, changes: &[(usize, &[u8])]) -> Vec<u8> {
    for (at, new) in changes {
        bytes.resize(bytes.len().max(at + new.len()), 0);
        bytes[*at..at + new.len()].copy_from_slice(new);
    }
    bytes
}

fn all(d: &DeviceStats) -> u64 {
    d.total(|r| r.reads).count + d.total(|r| r.writes).count + d.total(|r| r.zeroes).count + d.flushes.count
}

#[test]
fn only_the_update_sees_its_bytes_before_the_commit() {
    for route in LOGGED {
        let mut b = bench(route);
        write(&b, file(0), 0, &[1; 10_000]);
        let old = b.read_all(file(0), 100_000);
        let changes: &[(usize, &[u8])] = &[(100, &[2; 50]), (8000, &[3; 4096]), (40_000, &[4; 5000]), (120, &[5; 10])];
        let new = with(old.clone(), changes);
        for commits in [false, true] {
            let mut u = FileUpdate::begin(&b.volume, file(0)).unwrap();
            changes.iter().for_each(|(at, bytes)| put(&mut u, *at as u64, bytes).unwrap());
            assert_eq!(b.read_all(file(0), 100_000), old, "{route:?}: others see the update");
            assert_eq!(b.volume.getattr(file(0)).unwrap().size, 10_000, "{route:?}");
            let mut seen = vec![9; 100_000];
            let n = u.read(0, &mut seen).unwrap();
            assert_eq!(&seen[..n], new, "{route:?}: the update does not see itself");
            let n = u.read(110, &mut seen[..30]).unwrap();
            assert_eq!(&seen[..n], &new[110..140], "{route:?}");
            if commits {
                u.commit().unwrap();
            } else {
                drop(u);
            }
            let want = if commits { &new } else { &old };
            assert_eq!(b.read_all(file(0), 100_000), *want, "{route:?}, committed: {commits}");
        }
        assert_eq!(b.volume.getattr(file(0)).unwrap().size, new.len() as u64);
        b.remount();
        assert_eq!(b.read_all(file(0), 100_000), new, "{route:?}: after a mount");
        b.check();
    }
}

#[test]
fn an_update_of_an_indirect_file_with_small_blocks_is_whole() {
    let mut b = Bench::new("16M", &["-t", "ext3", "-b", "1024"], 1, options(Route::Auto));
    write(&b, file(0), 300, &[1; 20_000]);
    let old = b.read_all(file(0), 500_000);
    let changes: &[(usize, &[u8])] = &[(0, &[7; 100]), (900, &[8; 300]), (400_000, &[9; 9000])];
    let mut u = FileUpdate::begin(&b.volume, file(0)).unwrap();
    changes.iter().for_each(|(at, bytes)| put(&mut u, *at as u64, bytes).unwrap());
    u.commit().unwrap();
    b.remount();
    assert_eq!(b.read_all(file(0), 500_000), with(old, changes));
    b.check();
}

/// What SQLite does in DELETE mode: some pages, then COMMIT, then an fsync that finds nothing to do.
#[test]
fn an_update_costs_one_write_and_one_flush() {
    let b = bench_as_mounted(Route::Auto);
    write(&b, file(0), 0, &vec![1; 256 << 10]);
    b.volume.sync().unwrap();
    for n in 1..20u64 {
        let d = b.counted(|| {
            let mut u = FileUpdate::begin(&b.volume, file(0)).unwrap();
            for page in [0, n, 63 - n] {
                let mut bytes = vec![0; 4096];
                u.read(page * 4096, &mut bytes).unwrap();
                bytes[100..108].copy_from_slice(&n.to_le_bytes());
                put(&mut u, page * 4096, &bytes).unwrap();
            }
            u.commit().unwrap();
            b.volume.fsync(file(0), false).unwrap();
        });
        assert_eq!((d.region(Region::Log).writes.count, d.flushes.count), (1, 1), "update {n}: {d:?}");
        assert_eq!(d.total(|r| r.writes).count, 1, "update {n}: {d:?}");
        assert_eq!(all(&b.counted(|| b.volume.fsync(file(0), false).unwrap())), 0);
    }
    b.check();
}

#[test]
fn a_second_update_of_a_file_is_busy_until_the_first_ends() {
    let b = bench(Route::Auto);
    let first = FileUpdate::begin(&b.volume, file(0)).unwrap();
    assert!(matches!(FileUpdate::begin(&b.volume, file(0)), Err(Error::Busy(_))));
    let other = FileUpdate::begin(&b.volume, file(1)).unwrap();
    drop(first);
    let second = FileUpdate::begin(&b.volume, file(0)).unwrap();
    assert!(matches!(FileUpdate::begin(&b.volume, file(1)), Err(Error::Busy(_))));
    second.commit().unwrap();
    FileUpdate::begin(&b.volume, file(0)).unwrap().commit().unwrap();
    drop(other);
    b.check();
}

/// 10,000 pages are more than a transaction holds. All updates together hold at most twice what one may.
#[test]
fn an_update_beyond_a_transaction_is_refused_and_leaves_nothing() {
    let b = bench(Route::Auto);
    write(&b, file(0), 0, &[1; 4096]);
    let fill = |ino| {
        let mut u = FileUpdate::begin(&b.volume, ino).unwrap();
        let refused = (0..10_000u64).find_map(|n| put(&mut u, n * 4096, &[2; 4096]).err().map(|e| (n, e)));
        let (n, e) = refused.expect("no update has 10,000 pages");
        assert!(matches!(e, Error::UpdateFull { .. }), "{e}");
        assert_eq!(e.errno(), 27, "EFBIG: SQLite goes on with its journal");
        (u, n)
    };
    let (first, n) = fill(file(0));
    assert!(n >= 32, "{n} pages");
    let (second, _) = fill(file(1));
    let third = b.volume.create(Ino::ROOT, b"f", &new()).unwrap().ino;
    let mut u = FileUpdate::begin(&b.volume, third).unwrap();
    assert!(matches!(put(&mut u, 0, &[3; 4096]), Err(Error::UpdateFull { .. })), "no memory is left for a third");
    drop(first);
    put(&mut u, 0, &[3; 4096]).unwrap();
    drop((second, u));
    assert_eq!(b.read_all(file(0), 100_000), [1; 4096]);
    // As much as it took is committed as a whole.
    let mut u = FileUpdate::begin(&b.volume, file(0)).unwrap();
    (0..n).for_each(|n| put(&mut u, n * 4096, &[2; 4096]).unwrap());
    u.commit().unwrap();
    assert_eq!(b.read_all(file(0), usize::try_from(n).unwrap() * 4096).len() as u64, n * 4096);
    b.check();
}

fn new() -> New<'static> {
    New { kind: NewKind::File, mode: 0o600, umask: 0, cred: Cred { uid: 0, gid: 0 } }
}

#[test]
fn without_a_journal_nothing_is_updated_atomically() {
    let b = bench(Route::None);
    assert!(!FileUpdate::is_supported(&b.volume));
    assert!(matches!(FileUpdate::begin(&b.volume, file(0)), Err(Error::NotSupported(_))));
    b.check();
}

#[test]
fn a_full_disk_refuses_the_commit_and_the_file_stays_as_it_was() {
    for route in [Route::Ordered, Route::Auto] {
        let b = Bench::on(image("8M", &["-t", "ext4", "-b", "1024", "-m", "0"], 2), options(route));
        write(&b, file(0), 0, &[1; 3000]);
        let mut at = 0;
        while b.volume.write(file(1), at, &[2; 1024], WriteFlags::default()).is_ok() {
            at += 1024;
        }
        b.volume.sync().unwrap();
        let mut u = FileUpdate::begin(&b.volume, file(0)).unwrap();
        put(&mut u, 0, &[9; 2000]).unwrap();
        put(&mut u, 100_000, &[9; 40_000]).unwrap();
        assert!(matches!(u.commit(), Err(Error::NoSpace)), "{route:?}");
        assert_eq!(b.read_all(file(0), 200_000), [1; 3000], "{route:?}");
        // Overwriting needs no space.
        let mut u = FileUpdate::begin(&b.volume, file(0)).unwrap();
        put(&mut u, 0, &[9; 2000]).unwrap();
        u.commit().unwrap();
        assert_eq!(b.read_all(file(0), 200_000), [&[9; 2000][..], &[1; 1000]].concat(), "{route:?}");
        b.check();
    }
}

/// Writes, truncates and names of others take effect at once, and the commit writes over what it has staged.
#[test]
fn what_others_do_meanwhile_happens_at_once() {
    for route in LOGGED {
        let b = bench(route);
        let ino = b.volume.create(Ino::ROOT, b"db", &new()).unwrap().ino;
        write(&b, ino, 0, &[1; 20_000]);
        let mut u = FileUpdate::begin(&b.volume, ino).unwrap();
        put(&mut u, 4096, &[2; 4096]).unwrap();
        put(&mut u, 16_384, &[3; 1000]).unwrap();
        write(&b, ino, 0, &[4; 6000]);
        b.volume.rename(Ino::ROOT, b"db", Ino::ROOT, b"other", RenameFlags::default()).unwrap();
        b.volume.fallocate(ino, Falloc::PunchHole, 8192, 4096).unwrap();
        b.volume.truncate(ino, 10_000).unwrap();
        b.volume.unlink(Ino::ROOT, b"other").unwrap();
        b.volume.fsync(ino, false).unwrap();
        let cut = with(vec![1; 10_000], &[(0, &[4; 6000]), (8192, &[0; 1808])]);
        assert_eq!(b.read_all(ino, 40_000), cut, "{route:?}");
        u.commit().unwrap();
        let want = with(cut, &[(4096, &[2; 4096]), (16_384, &[3; 1000])]);
        assert_eq!(b.read_all(ino, 40_000), want, "{route:?}");
        b.volume.forget(ino, 1);
        b.check();
    }
}

#[test]
fn an_update_of_a_file_that_may_not_change_is_refused() {
    let b = bench(Route::Auto);
    let flag = quire_layout::inode::flags::IMMUTABLE;
    let mut u = FileUpdate::begin(&b.volume, file(0)).unwrap();
    put(&mut u, 0, &[1; 100]).unwrap();
    let had = b.volume.inode_flags().get(file(0)).unwrap();
    b.volume.inode_flags().set(file(0), had | flag).unwrap();
    assert!(matches!(u.commit(), Err(Error::NotPermitted(_))));
    assert!(matches!(FileUpdate::begin(&b.volume, file(0)), Err(Error::NotPermitted(_))));
    assert!(matches!(FileUpdate::begin(&b.volume, Ino::ROOT), Err(Error::IsDir)));
    let mut u = FileUpdate::begin(&b.volume, file(1)).unwrap();
    assert!(matches!(put(&mut u, u64::MAX - 5, &[1; 100]), Err(Error::TooLarge)));
    assert!(matches!(put(&mut u, 1 << 60, &[1; 100]), Err(Error::TooLarge)));
    put(&mut u, 0, &[]).unwrap();
    u.commit().unwrap();
    assert_eq!(b.volume.getattr(file(1)).unwrap().size, 0);
    b.check();
}
