//! A device's measured speed.

use quire_device::sync::Arc;
use quire_device::{BlockDevice, Buf, Io, Pace, Paced, Region};
use quire_testkit::{MemDevice, Model, Modelled, VirtualClock};
use std::time::Duration;

#[test]
fn a_modelled_device_is_measured_as_it_is() {
    let clock = Arc::new(VirtualClock::default());
    let model = Model { write: Duration::from_micros(40), flush: Duration::from_micros(1500), ..Model::default() };
    let device = Arc::new(Modelled::new(MemDevice::new(vec![0; 4 << 20]), model, clock.clone()));
    let pace = Arc::new(Pace::default());
    let paced = Paced::new(device, clock, pace.clone());
    for _ in 0..3 {
        paced.write(0, Arc::new(Buf::zeroed(4096)), Region::Data).unwrap();
        paced.run(vec![Io::Flush]).unwrap();
    }
    assert!(pace.flush() >= Duration::from_micros(1500) && pace.flush() < Duration::from_micros(1700));
    assert!(pace.write() >= Duration::from_micros(40) && pace.write() < Duration::from_micros(80));
}
