//! What a counted device counts.

use quire_device::counted::OpStats;
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Buf, Counted, Io, Region};
use quire_testkit::{MemDevice, Model, Modelled, VirtualClock};
use std::time::Duration;

fn write(at: u64, len: usize, region: Region, fua: bool) -> Io {
    Io::Write { at, data: vec![Arc::new(Buf::zeroed(len))], region, fua }
}

#[test]
fn operations_are_counted_by_region_and_kind() {
    let dev = Counted::new(MemDevice::new(vec![0; 1 << 20]));
    dev.read(0, 1024, Region::Superblock).unwrap();
    dev.run(vec![write(0, 4096, Region::Log, false), write(4096, 512, Region::Log, true)]).unwrap();
    let before = dev.snapshot();
    let t = dev.submit(vec![write(0, 8192, Region::Data, false)]);
    dev.wait(t).unwrap();
    dev.run(vec![Io::Flush]).unwrap();
    dev.run(vec![Io::Discard { at: 0, len: 4096 }]).unwrap();
    dev.run(vec![Io::Zero { at: 0, len: 2048, region: Region::Metadata }]).unwrap();
    dev.read(1 << 20, 512, Region::Data).unwrap_err();

    let all = dev.snapshot();
    let count = |s: OpStats| (s.count, s.bytes);
    assert_eq!(count(all.region(Region::Superblock).reads), (1, 1024));
    assert_eq!(count(all.region(Region::Log).writes), (2, 4608));
    assert_eq!(count(all.region(Region::Log).fua), (1, 512));
    assert_eq!(count(all.region(Region::Metadata).zeroes), (1, 2048));
    assert_eq!((count(all.flushes), count(all.discards), all.errors), ((1, 0), (1, 4096), 1));
    assert_eq!(count(all.total(|r| r.writes)), (3, 12800));
    let diff = all.since(&before);
    assert_eq!((count(diff.region(Region::Log).writes), count(diff.region(Region::Data).writes)), ((0, 0), (1, 8192)));
}

#[test]
fn time_is_what_the_caller_waited() {
    let clock = Arc::new(VirtualClock::default());
    let model = Model { write: Duration::from_micros(40), flush: Duration::from_micros(1500), ..Model::default() };
    let slow = Modelled::new(MemDevice::new(vec![0; 1 << 20]), model, clock.clone());
    let dev = Counted::with_clock(slow, clock);
    dev.run(vec![write(0, 512, Region::Log, true)]).unwrap();
    dev.run(vec![Io::Flush]).unwrap();
    let s = dev.snapshot();
    assert_eq!(s.flushes.time, Duration::from_micros(1500));
    assert_eq!(s.region(Region::Log).fua.time, s.region(Region::Log).writes.time);
    assert!(s.region(Region::Log).writes.time >= Duration::from_micros(40));
}
