//! The flush gate under explored interleavings (M1, M2):
//! `cargo test -p quire-device --features shuttle --test gate_shuttle`.
#![cfg(feature = "shuttle")]

use quire_device::ErrorKind;
use quire_device::sync::{Arc, Mutex, lock, thread};
use quire_device::{BlockDevice, Buf, FlushGate, Io, IoOp, Region};
use quire_testkit::{Completion, Image, PowerLossDevice, PowerLossOptions};
use quire_testkit::{Fault, FaultKind, Faulty};

fn device() -> PowerLossDevice {
    let options = PowerLossOptions { completion: Completion::AtWait, ..PowerLossOptions::default() };
    PowerLossDevice::from_image(Image::zeroed(8 * 512), options)
}

fn write(n: u64) -> Vec<Io> {
    let mut b = Buf::zeroed(512);
    b.fill(1);
    vec![Io::Write { at: n * 512, data: vec![Arc::new(b)], region: Region::Data, fua: false }]
}

fn holds(dev: &PowerLossDevice, n: u64) -> bool {
    let mut b = [0; 512];
    dev.durable().read(n * 512, &mut b);
    b[0] == 1
}

/// Whoever returns from `ensure` finds his own write durable, whoever's flush it was; and there are never more flushes
/// than callers.
#[test]
fn ensured_is_durable() {
    shuttle::check_random(
        || {
            let dev = Arc::new(device());
            let gate = Arc::new(FlushGate::new(dev.clone()));
            let threads: Vec<_> = (0..4)
                .map(|n| {
                    let (dev, gate) = (Arc::clone(&dev), Arc::clone(&gate));
                    thread::spawn(move || {
                        dev.run(write(n)).unwrap();
                        gate.ensure(gate.stamp()).unwrap();
                        assert!(holds(&dev, n), "write {n} is not durable");
                    })
                })
                .collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
            assert!(dev.writes_and_flushes().1 <= 4);
        },
        5000,
    );
}

/// Success means durable also when one of the flushes fails; once somebody has seen the failure, nobody succeeds with
/// anything new.
#[test]
fn a_failure_is_seen_by_all_who_come_later() {
    shuttle::check_random(
        || {
            let dev = Arc::new(Faulty::new(device()));
            dev.inject(Fault::once(IoOp::Flush, FaultKind::Error(ErrorKind::Io)).after(1));
            let gate = Arc::new(FlushGate::new(dev.clone()));
            let failed = Arc::new(Mutex::new(false));
            let threads: Vec<_> = (0..4)
                .map(|n| {
                    let (dev, gate, failed) = (Arc::clone(&dev), Arc::clone(&gate), Arc::clone(&failed));
                    thread::spawn(move || {
                        let already = *lock(&failed);
                        dev.run(write(n)).unwrap();
                        match gate.ensure(gate.stamp()) {
                            Ok(()) => assert!(!already && holds(dev.inner(), n)),
                            Err(_) => *lock(&failed) = true,
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(|t| t.join().unwrap());
            let late = gate.ensure(gate.stamp());
            assert!(late.is_err() || !*lock(&failed), "a flush after the failed one is believed");
        },
        5000,
    );
}
