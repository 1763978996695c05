//! Changes within one tick of the clock: times stand still, and the inode's record may stay as it is.

use super::{Bench, TestDevice, file, image, options};
use crate::config::Route;
use crate::data::WriteFlags;
use crate::{Devices, Error, Options, Volume, XattrFlags, records};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Counted, Region, SystemClock};
use quire_testkit::{Faulty, MemDevice, VirtualClock};
use std::time::Duration;

/// A volume whose time stands still, and its clock.
fn bench(route: Route) -> (Bench, Arc<VirtualClock>) {
    let image = image("16M", &["-t", "ext4", "-b", "4096"], 1);
    let device: Arc<TestDevice> = Arc::new(Counted::new(Faulty::new(MemDevice::new(image))));
    let (clock, options) = (Arc::new(VirtualClock::default()), options(route));
    let on: Arc<dyn BlockDevice> = device.clone();
    let volume = Volume::open(Devices::one(on), clock.clone(), options.clone()).unwrap();
    (Bench { device, volume, options }, clock)
}

/// What is on the device, as after a power loss with all completed writes kept.
fn crashed(b: &Bench) -> Volume {
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(b.device.inner().inner().snapshot()));
    Volume::open(Devices::one(device), Arc::new(SystemClock), b.options.clone()).unwrap()
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
        assert_eq!(crashed(&b).getattr(file(0)).unwrap(), b.volume.getattr(file(0)).unwrap());
        let mut read = [0];
        crashed(&b).read(file(0), 5, &mut read).unwrap();
        assert_eq!(read, [byte], "an fsync covers data whose inode has not changed");
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
        assert_eq!(crashed(&b).xattrs().get(file(0), b"user.large").unwrap(), [byte; 600]);
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
