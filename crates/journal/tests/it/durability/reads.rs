//! A log that fits the window of recovery is read once: for the scan, for whoever asks what a block will be (a mount
//! that looks before it writes), and for the replay.

use super::setup::{BS, HOMES, LOG_BLOCKS, home, image, styled, unrecovered};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Buf, Counted, Region};
use quire_journal::{CommitMode, LogChoices, Record};
use quire_layout::{BlockNo, Tid};
use quire_testkit::MemDevice;

/// What block `n` is to be; some begin with the log's magic.
fn content(n: u64) -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..BS as u64).map(|i| ((i * i * (n + 3)) >> 3).to_le_bytes()[0]).collect();
    if n.is_multiple_of(5) {
        bytes[..4].copy_from_slice(&quire_layout::jbd2::MAGIC.to_be_bytes());
    }
    bytes
}

/// An image whose log has each home block in a transaction of its own, and nothing at home.
fn left(choices: LogChoices) -> Vec<u8> {
    let device = Arc::new(MemDevice::new(image(Tid(1))));
    let j = styled(device.clone(), 1 << 20, choices);
    for n in 0..HOMES {
        let mut h = j.handle();
        h.put(home(n), Arc::new(Buf::copy_of(&content(n)))).unwrap();
        h.stop().unwrap();
        j.commit_all().unwrap();
    }
    device.snapshot()
}

#[test]
fn a_small_log_is_read_once_for_its_scan_its_images_and_its_replay() {
    for choices in [LogChoices::JBD2, LogChoices::on_device(Record::Range, CommitMode::Checksum)] {
        let counted = Arc::new(Counted::new(MemDevice::new(left(choices))));
        let device: Arc<dyn BlockDevice> = counted.clone();
        let log = unrecovered(&device);
        let plan = log.scan(u64::from(LOG_BLOCKS) + HOMES, &mut |_| {}).unwrap();
        for n in 0..HOMES {
            let image = log.image(&plan, plan.image_of(home(n)).unwrap()).unwrap();
            assert!(image[..] == content(n), "{choices:?}: block {n} before the replay");
        }
        assert_eq!(plan.image_of(BlockNo(home(0).0 - 1)), None);
        log.replay(plan, &device, None, &mut |_| {}).unwrap();
        let read = counted.snapshot().region(Region::Log).reads.bytes;
        assert!(read < u64::from(LOG_BLOCKS) * BS as u64, "{choices:?}: {read} bytes of the log");
        let after = counted.inner().snapshot();
        for n in 0..HOMES {
            let at = usize::try_from(home(n).0).unwrap() * BS;
            assert!(after[at..at + BS] == content(n), "{choices:?}: block {n}");
        }
    }
}
