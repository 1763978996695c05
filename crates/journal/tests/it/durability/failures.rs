//! Errors of the device: what failed once stays failed, and what was durable stays durable.

use super::setup::{BS, home, image, journal, put};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, ErrorKind, IoOp, Region};
use quire_journal::{Error, Touch};
use quire_layout::Tid;
use quire_testkit::{Fault, FaultKind, Faulty, MemDevice};

/// J5, wherever in the commit the error hits: body, flush, commit block.
#[test]
fn a_commit_that_failed_once_is_never_reported_as_success_j5() {
    let io = FaultKind::Error(ErrorKind::Io);
    let faults = [
        Fault::once(IoOp::Write, io).in_region(Region::LogSuperblock),
        Fault::once(IoOp::Write, io).in_region(Region::Log),
        Fault::once(IoOp::Flush, io),
        Fault::once(IoOp::Write, io).in_region(Region::Log).after(1),
    ];
    for (n, fault) in faults.into_iter().enumerate() {
        let device = Arc::new(Faulty::new(MemDevice::new(image(Tid(5)))));
        let j = journal(device.clone(), 1 << 20);
        let before = (n > 0).then(|| {
            let tid = put(&j, home(0), 1);
            j.commit(tid).unwrap();
            tid
        });
        device.inject(fault);
        let tid = put(&j, home(1), 2);
        assert!(j.commit(tid).is_err(), "fault {n}");
        assert!(device.hits() == 1, "fault {n}");
        device.heal();
        for _ in 0..2 {
            assert!(j.commit(tid).is_err() && j.commit_all().is_err() && j.failure().is_some(), "fault {n}");
            assert!(j.commit(tid.next()).is_err(), "fault {n}");
        }
        assert_eq!(j.handle().put_zeroed(home(2), BS).err(), Some(Touch::Aborted), "fault {n}");
        if let Some(before) = before {
            j.commit(before).unwrap();
            assert_eq!(j.durable(), before, "fault {n}");
        }
    }
}

/// A home write that fails stops the journal before the tail moves: the log still holds what home does not.
#[test]
fn a_checkpoint_that_failed_leaves_the_log_whole_j11() {
    let device = Arc::new(Faulty::new(MemDevice::new(image(Tid(5)))));
    let j = journal(device.clone(), 1 << 10);
    for n in 0..4 {
        put(&j, home(n), 9);
        j.commit_all().unwrap();
    }
    device.inject(Fault::once(IoOp::Write, FaultKind::Error(ErrorKind::Io)).in_region(Region::Metadata));
    assert!(j.checkpoint_step().is_err());
    device.heal();
    assert!(j.commit_all().is_err() && j.empty_log().is_err());
    let copy: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(device.inner().snapshot()));
    super::setup::recover(&copy);
    for n in 0..4 {
        let got = copy.read(home(n).0 * BS as u64, BS, Region::Metadata).unwrap();
        assert!(got.iter().all(|b| *b == 9), "home {n}");
    }
}

/// What is read ahead may fail. The first block is needed, wherever it lies.
#[test]
fn a_load_succeeds_if_its_first_block_can_be_read() {
    let device = Arc::new(Faulty::new(MemDevice::new(image(Tid(5)))));
    let j = journal(device.clone(), 1 << 20);
    let at = home(5).0 * BS as u64;
    device.inject(Fault::always(IoOp::Read, FaultKind::Error(ErrorKind::Io)).within(at..at + 1));
    let in_memory = || (0..10).filter(|n| j.handle().read(home(*n)).is_some()).collect::<Vec<_>>();
    let window: Vec<_> = (2..8).map(home).collect();
    assert_eq!(j.load(&window).unwrap().blocks, 3);
    assert_eq!((in_memory(), device.hits()), (vec![2, 3, 4], 2));
    assert!(matches!(j.load(&window[3..]), Err(Error::Device(e)) if (e.at, e.len) == (at, BS as u64)));
    assert_eq!(in_memory(), [2, 3, 4]);
    assert_eq!(j.load(&[home(7), home(5), home(8)]).unwrap().blocks, 1);
    assert_eq!(in_memory(), [2, 3, 4, 7]);
    assert!(j.failure().is_none());
    device.heal();
    assert_eq!(j.load(&window).unwrap().blocks, 2);
}
