//! A disk without a free block: what was accepted is written back, and what was allocated beforehand can be written.

use super::{Bench, Numbers, file, options};
use crate::config::{Choices, CommitMode, Record, Route};
use crate::data::{Falloc, WriteFlags};
use crate::error::Error;
use crate::space::{self, Pool, Reservation};
use crate::testing::tie_to_log;
use crate::{Devices, FileUpdate, Options, Privileges, Volume};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Buf, Region, SystemClock};
use quire_testkit::{MemDevice, PowerLossDevice};
use std::collections::{BTreeMap, BTreeSet};

const BLOCK: u64 = 4096;
/// What allocated blocks hold before anything is written to them.
const STALE: u8 = 0xAA;

fn bench(files: u32, route: Route) -> Bench {
    Bench::new("16M", &["-t", "ext4", "-b", "4096", "-m", "0"], files, options(route))
}

/// Fills file `n` with `byte` until there is no space; returns how many blocks it has.
fn fill(v: &Volume, n: u32, byte: u8) -> u64 {
    let refused = |at: &u64| match v.write(file(n), at * BLOCK, &[byte; 4096], WriteFlags::default()) {
        Ok(_) => None,
        Err(Error::NoSpace) => Some(*at),
        Err(e) => panic!("{e}"),
    };
    let blocks = (0..).find_map(|at| refused(&at)).expect("a full disk");
    v.sync().unwrap();
    blocks
}

/// Allocates the first `bytes` of a file. The blocks hold [`STALE`].
fn allocate(b: &Bench, n: u32, keep_size: bool, bytes: u64) {
    b.volume.fallocate(file(n), Falloc::Allocate { keep_size }, 0, bytes).unwrap();
    for e in b.volume.extents(file(n), 0, u64::MAX, 9).unwrap() {
        assert!(e.unwritten);
        let bytes = vec![STALE; usize::try_from(e.len).unwrap()];
        b.device.write(e.physical, Arc::new(Buf::copy_of(&bytes)), Region::Data).unwrap();
    }
}

/// Leaves no block for a file's map that has reserved none.
fn take_reserve(v: &Volume) {
    let all = |op: &mut crate::txn::Op<'_>| {
        let table = &op.tables().space;
        let (available, reserved) = (table.available(), table.reserved());
        space::reserve(op, Reservation::data(available - reserved.data - reserved.map), Pool::Metadata)
    };
    v.run(all).unwrap();
}

/// F13: files of many extents. Each needs a block of its tree, for which there is no other space than what the write
/// has reserved.
fn accepted_pages_are_written_back(route: Route, b: &mut Bench, block: u64, per_file: u64) {
    let all = (0..700).flat_map(|n| (0..per_file).map(move |k| (n, k)));
    let mut accepted = Vec::new();
    let refused =
        all.map(|(n, k)| (n, k, u8::try_from((u64::from(n) * 5 + k) % 251 + 1).unwrap())).find(|(n, k, byte)| {
            let bytes = vec![*byte; usize::try_from(block).unwrap()];
            match b.volume.write(file(*n), 2 * k * block, &bytes, WriteFlags::default()) {
                Ok(_) => accepted.push((*n, *k, *byte)),
                Err(Error::NoSpace) => return true,
                Err(e) => panic!("{e}"),
            }
            false
        });
    assert!(refused.is_some() && accepted.len() > 2000, "{route:?}: {} accepted", accepted.len());
    b.volume.sync().unwrap();
    b.remount();
    for (n, k, byte) in accepted {
        let mut read = vec![0; usize::try_from(block).unwrap()];
        b.volume.read(file(n), 2 * k * block, &mut read).unwrap();
        assert!(read.iter().all(|b| *b == byte), "{route:?}: file {n}, block {}", 2 * k);
    }
    b.check();
}

#[test]
fn accepted_pages_of_files_with_many_extents_are_written_back() {
    for route in [Route::Ordered, Route::Auto, Route::Selective] {
        accepted_pages_are_written_back(route, &mut bench(700, route), BLOCK, 5);
    }
}

/// The same with trees of more levels than one, and with leaves that are split.
#[test]
fn accepted_pages_of_long_maps_are_written_back() {
    let args = ["-t", "ext4", "-b", "1024", "-m", "0"];
    let mut b = Bench::new("16M", &args, 700, options(Route::Ordered));
    accepted_pages_are_written_back(Route::Ordered, &mut b, 1024, 900);
}

/// A5: a map for which nothing is reserved takes no block that is reserved for another file.
#[test]
fn a_block_of_a_map_is_not_taken_from_what_others_have_reserved() {
    type Change = fn(&Volume) -> crate::Result<()>;
    let changes: [(&str, Change); 4] = [
        ("zero range", |v| v.fallocate(file(0), Falloc::ZeroRange { keep_size: true }, BLOCK, BLOCK)),
        ("punch", |v| v.fallocate(file(0), Falloc::PunchHole, BLOCK, BLOCK)),
        ("insert", |v| v.fallocate(file(0), Falloc::Insert, BLOCK, BLOCK)),
        ("direct", |v| v.write(file(0), 20 * BLOCK, &[1; 4 * 4096], WriteFlags::default()).map(drop)),
    ];
    for (how, change) in changes {
        let o = Options { direct_bytes: 4 * 4096, ..options(Route::Ordered) };
        let b = Bench::new("16M", &["-t", "ext4", "-b", "4096", "-m", "0"], 1, o);
        let v = &b.volume;
        for n in 0..4 {
            v.write(file(0), 4 * n * BLOCK, &[5; 3 * 4096], WriteFlags::default()).unwrap();
        }
        v.sync().unwrap();
        let before = v.extents(file(0), 0, u64::MAX, 99).unwrap();
        assert_eq!(before.len(), 4, "the inode has no room for more");
        take_reserve(v);
        let refused = change(v);
        assert!(matches!(refused, Err(Error::NoSpace)), "{how}: {refused:?}");
        assert_eq!(v.extents(file(0), 0, u64::MAX, 99).unwrap(), before, "{how}");
        b.check();
    }
}

/// The blocks of the files that [`write_in_allocated`] writes; the first and the last stay as they are.
const ALLOCATED: u64 = 9;

/// Allocates blocks for many files, fills the disk, and writes every second block of theirs.
fn write_in_allocated(route: Route, keep_size: bool) {
    const FILES: u32 = 250;
    let mut b = bench(FILES + 1, route);
    let v = &b.volume;
    (0..FILES).for_each(|n| allocate(&b, n, keep_size, ALLOCATED * BLOCK));
    fill(v, FILES, 3);
    let byte = |n: u32, k: u64| u8::try_from((u64::from(n) + k) % 100 + 1).unwrap();
    let mut accepted = BTreeSet::new();
    for k in [1, 3, 5, 7] {
        for n in 0..FILES {
            match v.write(file(n), k * BLOCK, &[byte(n, k); 4096], WriteFlags::default()) {
                Ok(4096) => drop(accepted.insert((n, k))),
                // Behind the end of a file only the reserve helps, as with ext4.
                Err(Error::NoSpace) if keep_size => {}
                done => panic!("{route:?}: file {n}, block {k}: {done:?}"),
            }
        }
    }
    v.sync().unwrap();
    b.remount();
    for n in 0..FILES {
        let mut read = vec![0; usize::try_from(ALLOCATED * BLOCK).unwrap()];
        let len = b.volume.read(file(n), 0, &mut read).unwrap();
        assert!(keep_size || len == read.len(), "{route:?}: file {n}");
        for (k, block) in (0..).zip(read.chunks(4096)) {
            let want = if accepted.contains(&(n, k)) { byte(n, k) } else { 0 };
            assert!(block.iter().all(|b| *b == want), "{route:?}: file {n}, block {k} has {}", block[0]);
        }
    }
    b.check();
}

/// F29: what was allocated can be written on a full disk, and is not lost; blocks around the write read as zeros.
#[test]
fn allocated_blocks_can_be_written_on_a_full_disk() {
    for route in [Route::Ordered, Route::Auto, Route::Overwrite, Route::Selective, Route::Journal] {
        for keep_size in [false, true] {
            write_in_allocated(route, keep_size);
        }
    }
}

/// F29: the same in every way to write, without a single block for a tree.
#[test]
fn every_way_to_write_finds_space_in_allocated_blocks() {
    type Write = fn(&Volume) -> crate::Result<()>;
    let ways: [(&str, Write); 4] = [
        ("pages", |v| v.write(file(0), 5 * BLOCK, &[7; 4096], WriteFlags::default()).map(drop)),
        ("direct", |v| v.write(file(0), 5 * BLOCK, &[7; 4 * 4096], WriteFlags::default()).map(drop)),
        ("append", |v| crate::append(v, file(0), &[7; 100], WriteFlags::default()).map(drop)),
        ("update", |v| {
            let mut update = FileUpdate::begin(v, file(0))?;
            update.write(5 * BLOCK, &[7; 100], Privileges::Keep)?;
            update.write(7 * BLOCK, &[7; 100], Privileges::Keep)?;
            update.commit()
        }),
    ];
    for route in [Route::Ordered, Route::Auto, Route::Journal] {
        for (how, write) in ways {
            let mut b = Bench::new(
                "16M",
                &["-t", "ext4", "-b", "4096", "-m", "0"],
                2,
                Options { direct_bytes: 4 * 4096, ..options(route) },
            );
            let v = &b.volume;
            allocate(&b, 0, false, 12 * BLOCK - 100);
            // Three extents; a cut in the last makes five.
            v.write(file(0), 2 * BLOCK, &[5; 4096], WriteFlags::default()).unwrap();
            v.fsync(file(0), false).unwrap();
            take_reserve(v);
            write(v).unwrap_or_else(|e| panic!("{route:?}, {how}: {e}"));
            v.sync().unwrap();
            let seen = b.read_all(file(0), 12 << 12);
            assert!(seen.contains(&7) && seen.iter().all(|b| [0, 5, 7].contains(b)), "{route:?}, {how}");
            assert!(v.extents(file(0), 0, u64::MAX, 9).unwrap().len() <= 4, "{route:?}, {how}: no space for more");
            b.remount();
            assert!(b.read_all(file(0), 12 << 12) == seen, "{route:?}, {how}");
            b.check();
        }
    }
}

/// F29, Q5: the zeros around a write are durable before the extent is written. The log is on a device of its own, all
/// of which survives; of the file system's only what a flush covered does.
#[test]
fn zeros_around_a_write_are_durable_before_their_extent_is_written() {
    for commit in [CommitMode::Checksum, CommitMode::Barrier] {
        let choices = Choices { record: Record::Range, commit, ..Choices::of_route(Route::Ordered) };
        let options = Options::default().with(choices);
        let b = Bench::new("16M", &["-t", "ext4", "-b", "4096", "-O", "^has_journal"], 2, options.clone());
        allocate(&b, 0, false, ALLOCATED * BLOCK);
        b.volume.write(file(0), BLOCK, &[5; 4096], WriteFlags::default()).unwrap();
        b.check();
        let mut image = b.device.inner().inner().snapshot();
        let log = Arc::new(MemDevice::new(tie_to_log(&mut image, "8M")));
        let fs = Arc::new(PowerLossDevice::from_bytes(&image));
        let open = |fs: Arc<dyn BlockDevice>, log: &Arc<MemDevice>| {
            let devices = Devices { fs, journal: Some(log.clone()), nvram: None };
            Volume::open(devices, Arc::new(SystemClock), options.clone()).unwrap()
        };
        let v = open(fs.clone(), &log);
        take_reserve(&v);
        v.write(file(0), 4 * BLOCK, &[7; 4096], WriteFlags::default()).unwrap();
        v.maintenance().commit().unwrap();
        let log = Arc::new(MemDevice::new(log.snapshot()));
        let v = open(Arc::new(MemDevice::new(fs.durable().to_vec())), &log);
        let extents = v.extents(file(0), 0, u64::MAX, 9).unwrap();
        let is_written = extents.last().is_some_and(|e| e.logical + e.len == ALLOCATED * BLOCK && !e.unwritten);
        assert!(is_written, "{commit:?}: {extents:?}");
        let mut bytes = vec![0; usize::try_from(ALLOCATED * BLOCK).unwrap()];
        v.read(file(0), 0, &mut bytes).unwrap();
        assert!(!bytes.contains(&STALE), "{commit:?}: stale bytes in the file");
    }
}

/// F13: direct writes, pages and conversions of one file beside each other, at random, on a disk that fills up.
#[test]
fn random_writes_on_a_disk_that_fills_up_are_kept() {
    for (seed, route) in [(1, Route::Ordered), (2, Route::Auto), (3, Route::Selective), (4, Route::Journal)] {
        let o = Options { direct_bytes: 8 << 10, ..options(route) };
        let mut b = Bench::new("16M", &["-t", "ext4", "-b", "1024", "-m", "0"], 8, o);
        let (v, mut r) = (&b.volume, Numbers(seed * 7919));
        let mut model = vec![BTreeMap::new(); 8];
        let mut refused = 0;
        for _ in 0..12_000 {
            let n = usize::try_from(r.below(8)).unwrap();
            let ino = file(u32::try_from(n).unwrap());
            let (at, blocks) = (r.below(4000), [1, 1, 1, 2, 8][usize::try_from(r.below(5)).unwrap()]);
            if r.below(20) == 0 {
                refused +=
                    u32::from(v.fallocate(ino, Falloc::Allocate { keep_size: false }, at << 10, 9 << 10).is_err());
                continue;
            }
            let bytes = r.bytes(usize::try_from(blocks << 10).unwrap());
            match v.write(ino, at << 10, &bytes, WriteFlags::default()) {
                Ok(done) => {
                    assert_eq!(done, bytes.len());
                    model[n].extend((at..).zip(bytes.chunks(1024).map(<[u8]>::to_vec)));
                }
                Err(Error::NoSpace) => refused += 1,
                Err(e) => panic!("{e}"),
            }
            if r.below(300) == 0 {
                v.fsync(ino, false).unwrap();
            }
        }
        assert!(refused > 100, "{route:?}: {refused} refused");
        v.sync().unwrap();
        b.remount();
        for (n, blocks) in (0..).zip(&model) {
            for (at, bytes) in blocks {
                let mut read = [0; 1024];
                b.volume.read(file(n), at << 10, &mut read).unwrap();
                assert!(read[..] == bytes[..], "{route:?}: file {n}, block {at}");
            }
        }
        b.check();
    }
}
