//! Files with more pages than one batch writes back: a writeback of several batches.

use super::{Numbers, Then, file, image, options};
use crate::config::Route;
use crate::data::WriteFlags;
use crate::{Devices, Options, Volume};
#[cfg(feature = "mutants")]
use quire_device::Mutant;
use quire_device::sync::Arc;
use quire_device::{Io, Region, SystemClock};
use quire_testkit::{MemDevice, fsck};

const BLOCK: usize = 4096;
const BLOCKS: usize = 80;

/// F8: an fsync of several batches makes all of it durable, also if a page of the first batch changes meanwhile, as a
/// store through a mapping does; and no block lies behind the size.
fn a_page_changes_between_two_batches() {
    for route in [Route::Ordered, Route::Writeback, Route::Selective] {
        let is_data = |io: &Io| matches!(io, Io::Write { region: Region::Data, .. });
        let device = Arc::new(Then::new(image("16M", &["-t", "ext4", "-b", "4096"], 1), is_data));
        // A batch has half of what may be dirty, which is three eighths of this.
        let options = Options { cache_bytes: 1 << 20, direct_bytes: usize::MAX, ..options(route) };
        let v = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options.clone()).unwrap();
        assert!(v.data().limits.batch_pages() < BLOCKS);
        let bytes = Numbers(3).bytes(BLOCKS * BLOCK);
        v.write(file(0), 0, &bytes, WriteFlags::default()).unwrap();
        let theirs = v.clone();
        device.set(move || {
            assert_eq!(theirs.write(file(0), 0, &[7; 10], WriteFlags::default()).unwrap(), 10);
        });
        v.fsync(file(0), false).unwrap();
        assert!(device.has_done_it(), "{route:?}");
        let after = Arc::new(MemDevice::new(device.inner.snapshot()));
        let again = Volume::open(Devices::one(after.clone()), Arc::new(SystemClock), options).unwrap();
        assert_eq!(again.getattr(file(0)).unwrap().size, bytes.len() as u64, "{route:?}: after a crash");
        let mut read = vec![0; bytes.len()];
        again.read(file(0), 0, &mut read).unwrap();
        assert!(read[10..] == bytes[10..], "{route:?}");
        again.close().unwrap();
        fsck(&after.snapshot());
    }
}

#[test]
fn an_fsync_of_several_batches_is_whole_though_an_earlier_page_changes() {
    a_page_changes_between_two_batches();
}

/// F7: what an operation zeroes in a block is gone, also where the block's image has left memory and a clean page of
/// before would be the base of the next write.
fn zeros_in_operations_and_no_image_in_memory() {
    type Cut = fn(&Volume);
    let cuts: [(Cut, usize); 3] = [
        (|v| v.truncate(file(0), 100).and_then(|()| v.truncate(file(0), 4000)).unwrap(), 100),
        (|v| v.truncate(file(0), 100).and_then(|()| v.truncate(file(0), 9000)).unwrap(), 100),
        (|v| v.fallocate(file(0), crate::data::Falloc::PunchHole, 1000, 3096).unwrap(), 1000),
    ];
    for (route, (cut, left)) in
        [Route::Auto, Route::Selective, Route::Overwrite].into_iter().flat_map(|r| cuts.map(|c| (r, c)))
    {
        let device = Arc::new(MemDevice::new(image("16M", &["-t", "ext4", "-b", "4096"], 1)));
        let options = Options { cache_bytes: 1 << 18, ..options(route) };
        let v = Volume::open(Devices::one(device.clone()), Arc::new(SystemClock), options).unwrap();
        v.write(file(0), 0, &[b'A'; BLOCK], WriteFlags::default()).unwrap();
        v.fsync(file(0), false).unwrap();
        cut(&v);
        v.sync().unwrap();
        v.maintenance().checkpoint().unwrap();
        // More blocks than memory holds.
        let others: Vec<_> = (1000..1200).map(quire_layout::BlockNo).collect();
        for some in others.chunks(10) {
            v.engine().journal.load(some).unwrap();
        }
        v.write(file(0), 0, b"B", WriteFlags::default()).unwrap();
        let mut read = [0; BLOCK];
        let n = v.read(file(0), 0, &mut read).unwrap();
        assert!(read[..left] == [&b"B"[..], &vec![b'A'; left - 1]].concat(), "{route:?}, {left}");
        assert!(read[left..n].iter().all(|b| *b == 0), "{route:?}, {left}: what was cut off is back");
        v.close().unwrap();
        fsck(&device.snapshot());
    }
}

#[test]
fn what_an_operation_zeroes_stays_zero_when_its_image_has_left_memory() {
    zeros_in_operations_and_no_image_in_memory();
}

/// As ext4: a truncate to the size that a file has gives back what was allocated behind its end.
#[test]
fn a_truncate_to_the_same_size_frees_what_was_allocated_beforehand() {
    let b = super::Bench::new("16M", &["-t", "ext4", "-b", "4096"], 1, options(Route::Ordered));
    let v = &b.volume;
    v.write(file(0), 0, b"123456", WriteFlags::default()).unwrap();
    v.fallocate(file(0), crate::data::Falloc::Allocate { keep_size: true }, 0, 1 << 20).unwrap();
    assert_eq!(v.getattr(file(0)).unwrap().sectors, 2048);
    v.truncate(file(0), 6).unwrap();
    assert_eq!(v.getattr(file(0)).unwrap().sectors, 8);
    assert_eq!(b.read_all(file(0), 10), b"123456");
    b.check();
}

#[cfg(feature = "mutants")]
#[test]
fn every_mutant_of_pages_is_found() {
    for mutant in Mutant::OF_PAGES {
        Mutant::set(Some(mutant));
        let all = || {
            a_page_changes_between_two_batches();
            zeros_in_operations_and_no_image_in_memory();
            super::beside::an_fsync_and_a_sync_end_while_the_file_grows();
            super::errors::a_failed_write_loses_its_own_pages_and_no_others();
        };
        let found = std::panic::catch_unwind(all).is_err();
        Mutant::set(None);
        assert!(found, "{mutant:?} is not found");
    }
}
