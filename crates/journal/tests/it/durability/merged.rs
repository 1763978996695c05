//! Okeanos, section 4: recovery merges records that have a part of a block with the block at home. A record that has
//! all of it goes home without a read of what was there.

use super::setup::{BS, home, image, quire_journal, recover};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Buf, Counted, Region};
use quire_journal::{CommitMode, Journal, Record};
use quire_layout::Tid;
use quire_testkit::MemDevice;

/// Bytes that neither compress nor are alike.
fn noise(seed: u64) -> Vec<u8> {
    let mut x = seed + 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x.to_le_bytes()[3]
    };
    (0..BS).map(|_| next()).collect()
}

/// Blocks that have content at home.
const BLOCKS: u64 = 4;

/// Commits `change` of each block and crashes. What recovery reads of homes, and what it leaves there.
fn recovered(change: impl Fn(&Journal, u64)) -> (u64, Vec<Vec<u8>>) {
    let mut bytes = image(Tid(1));
    let place = |n: u64| usize::try_from(home(n).0).unwrap() * BS;
    (0..BLOCKS).for_each(|n| bytes[place(n)..place(n) + BS].copy_from_slice(&noise(n)));
    let device = Arc::new(MemDevice::new(bytes));
    let j = quire_journal(device.clone(), 1 << 20, Record::Range, CommitMode::Checksum);
    (0..BLOCKS).for_each(|n| change(&j, n));
    j.commit_all().unwrap();
    let left = device.snapshot();
    (0..BLOCKS).for_each(|n| assert!(left[place(n)..place(n) + BS] == noise(n), "nothing went home"));
    let counted = Arc::new(Counted::new(MemDevice::new(left)));
    let there: Arc<dyn BlockDevice> = counted.clone();
    recover(&there);
    let after = counted.inner().snapshot();
    let blocks = (0..BLOCKS).map(|n| after[place(n)..place(n) + BS].to_vec()).collect();
    (counted.snapshot().region(Region::Metadata).reads.bytes, blocks)
}

#[test]
fn recovery_reads_the_home_of_a_part_of_a_block_and_not_that_of_a_whole_one() {
    let (read, parts) = recovered(|j, n| {
        j.load(&[home(n)]).unwrap();
        let mut h = j.handle();
        h.write(home(n)).unwrap()[100..150].fill(0xAA);
        h.stop().unwrap();
    });
    for (n, block) in (0..).zip(parts) {
        let mut want = noise(n);
        want[100..150].fill(0xAA);
        assert!(block == want, "block {n} is not merged");
    }
    assert!(read >= BLOCKS * BS as u64, "{read} bytes of homes");
    let (read, whole) = recovered(|j, n| {
        let mut h = j.handle();
        h.put(home(n), Arc::new(Buf::copy_of(&noise(n + 50)))).unwrap();
        h.stop().unwrap();
    });
    (0..).zip(whole).for_each(|(n, block)| assert!(block == noise(n + 50), "block {n}"));
    assert_eq!(read, 0, "bytes of homes");
}
