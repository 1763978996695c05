//! Changes within one tick of the clock: times stand still, and the inode's record may stay as it is.

use super::{Bench, file, image, options};
use crate::config::Route;
use crate::data::WriteFlags;
use crate::{Error, Options, XattrFlags, records};
use quire_device::Region;
use quire_device::sync::Arc;
use quire_testkit::VirtualClock;
use std::time::Duration;

/// A volume whose time stands still, and its clock.
fn bench(route: Route) -> (Bench, Arc<VirtualClock>) {
    let clock = Arc::new(VirtualClock::default());
    let image = image("16M", &["-t", "ext4", "-b", "4096"], 1);
    (Bench::by_clock(image, options(route), clock.clone()), clock)
}

/// A journaled overwrite logs its inode once a tick, as in the kernel.
#[test]
fn a_journaled_overwrite_logs_the_inode_once_a_tick() {
    let (b, clock) = bench(Route::Journal);
    b.volume.write(file(0), 0, &[1; 8192], WriteFlags::default()).unwrap();
    b.volume.fsync(file(0), false).unwrap();
    let logged = |byte| {
        let d = b.counted(|| {
            b.volume.write(file(0), 0, &[byte; 4096], WriteFlags::default()).unwrap();
            b.volume.fsync(file(0), false).unwrap();
        });
        assert_eq!(b.after_a_crash().getattr(file(0)).unwrap(), b.volume.getattr(file(0)).unwrap());
        assert_eq!(b.read_after_a_crash(file(0), 1), [byte], "an fsync covers data whose inode has not changed");
        d.region(Region::Log).writes.bytes
    };
    for round in 0..3 {
        clock.advance(Duration::from_millis(4));
        let first = logged(10 * round + 2);
        let second = logged(10 * round + 3);
        assert_eq!((second, second), (first - 4096, logged(10 * round + 4)));
    }
    b.check();
}

/// F12: an fsync covers what belongs to an inode but is not in its record, though the record stays as it is.
#[test]
fn an_fsync_covers_an_attribute_that_was_set_twice_in_a_tick() {
    let (b, _clock) = bench(Route::Ordered);
    // Too large for the record: it has a block of its own.
    for byte in 1..4 {
        b.volume.xattrs().set(file(0), b"user.large", &[byte; 600], XattrFlags::Any).unwrap();
        b.volume.fsync(file(0), false).unwrap();
        assert_eq!(b.after_a_crash().xattrs().get(file(0), b"user.large").unwrap(), [byte; 600]);
    }
    b.check();
}

/// A record that stays as it is cannot be put on a volume that is read-only, as no other can.
#[test]
fn a_record_that_stays_as_it_is_is_refused_on_a_read_only_volume() {
    let read_only = Options { read_only: true, ..options(Route::Ordered) };
    let b = Bench::new("16M", &["-t", "ext4"], 1, read_only);
    let put = b.volume.run(|op| {
        let mut inode = records::inode(op, file(0))?;
        records::put_inode(op, file(0), &mut inode)
    });
    assert!(matches!(put, Err(Error::ReadOnly(_))), "{put:?}");
}
