//! `chattr +j` and `-j`: the way of a file's data changes while records of it are live in the log (F9).

use super::{Bench, Numbers, file, options};
use crate::Volume;
use crate::config::Route;
use crate::data::{Falloc, WriteFlags};
use quire_device::Region;
use quire_layout::inode::flags;

fn set_journaled(v: &Volume, on: bool) {
    let old = v.inode_flags().get(file(0)).unwrap();
    let new = if on { old | flags::JOURNAL_DATA } else { old & !flags::JOURNAL_DATA };
    v.inode_flags().set(file(0), new).unwrap();
}

#[test]
fn a_live_record_never_comes_back_over_newer_data() {
    let b = Bench::new("16M", &["-t", "ext4", "-b", "4096"], 1, options(Route::Ordered));
    let v = &b.volume;
    let mut r = Numbers(4711);
    let mut content = vec![0; 40_000];
    v.write(file(0), 0, &content, WriteFlags::default()).unwrap();
    for round in 0..40 {
        set_journaled(v, round % 2 == 0);
        for _ in 0..3 {
            let at = usize::try_from(r.below(25_000)).unwrap();
            let len = usize::try_from(r.below(15_000) + 1).unwrap();
            if r.below(3) == 0 {
                let how = if r.below(2) == 0 { Falloc::PunchHole } else { Falloc::ZeroRange { keep_size: true } };
                v.fallocate(file(0), how, at as u64, len as u64).unwrap();
                content[at..at + len].fill(0);
            } else {
                let data = r.bytes(len);
                v.write(file(0), at as u64, &data, WriteFlags::default()).unwrap();
                content[at..at + len].copy_from_slice(&data);
            }
            let mut buf = vec![0; content.len()];
            v.read(file(0), 0, &mut buf).unwrap();
            assert!(buf == content, "round {round}");
        }
        v.fsync(file(0), round % 3 == 0).unwrap();
        assert!(b.read_after_a_crash(file(0), 50_000) == content, "round {round}, after a crash");
    }
    b.check();
}

/// The image that the block cache keeps of journaled data does not outlive a write in place.
#[test]
fn a_cached_image_does_not_hide_what_is_written_in_place() {
    let b = Bench::new("16M", &["-t", "ext4", "-b", "4096"], 1, options(Route::Ordered));
    let v = &b.volume;
    set_journaled(v, true);
    v.write(file(0), 0, &[1; 8192], WriteFlags::default()).unwrap();
    v.maintenance().freeze().unwrap();
    v.maintenance().thaw().unwrap();
    set_journaled(v, false);
    v.write(file(0), 0, &[2; 8192], WriteFlags::default()).unwrap();
    v.fsync(file(0), false).unwrap();
    assert_eq!(b.read_all(file(0), 8192), [2; 8192]);
    b.check();
}

/// While the record is live an overwrite goes through the log; when it is not any more, in place.
#[test]
fn an_overwrite_of_a_live_block_is_journaled() {
    let mut b = Bench::new("16M", &["-t", "ext4", "-b", "4096"], 1, options(Route::Ordered));
    set_journaled(&b.volume, true);
    b.volume.write(file(0), 0, &[1; 8192], WriteFlags::default()).unwrap();
    b.volume.fsync(file(0), false).unwrap();
    set_journaled(&b.volume, false);
    let overwrite = |b: &Bench, byte| {
        b.counted(|| {
            b.volume.write(file(0), 0, &[byte; 8192], WriteFlags::default()).unwrap();
            b.volume.fsync(file(0), true).unwrap();
        })
    };
    let d = overwrite(&b, 2);
    assert_eq!(d.region(Region::Data).writes.count, 0, "{d:?}");
    assert_eq!(b.read_after_a_crash(file(0), 9000), [2; 8192]);
    b.remount();
    let d = overwrite(&b, 3);
    assert_eq!((d.region(Region::Data).writes.count, d.region(Region::Log).writes.count), (1, 0), "{d:?}");
    assert_eq!(b.read_after_a_crash(file(0), 9000), [3; 8192]);
    b.check();
}
