//! After recovery: the log is written on, or thrown away, and what was in it before never comes back.

use super::forge::{Forge, Kind};
use super::judge::{
    Dirty, assert_clean, differing_blocks, home_blocks, open_on, recover_with_e2fsck, recover_with_ours, superblock,
};
use super::seeds::seeds;
use quire_device::sync::Arc;
use quire_device::{BlockDevice, FlushGate, SystemClock};
use quire_journal::{Journal, JournalConfig};
use quire_layout::{Tid, features};
use quire_testkit::MemDevice;
use quire_testkit::Rng;

fn set_needs_recovery(image: &mut [u8]) {
    let mut sb = superblock(image);
    let mut f = sb.features();
    f.incompat |= features::incompat::RECOVER;
    sb.set_features(f);
    sb.seal();
    image[1024..2048].copy_from_slice(sb.bytes());
}

/// Recovered, written on by the engine, and recovered by e2fsck: exactly the new transactions are added (R10).
#[test]
fn the_engine_writes_on_where_recovery_ended() {
    seeds("the_engine_writes_on_where_recovery_ended", 20, |seed| {
        let mut rng = Rng::new(seed);
        let mut f = Forge::new(Kind::any(&mut rng), 1000, Tid(7));
        (0..6).for_each(|_| f.random_transaction(&mut rng));
        let d = f.dirty();
        let device = Arc::new(MemDevice::new(d.image.clone()));
        let home: Arc<dyn BlockDevice> = device.clone();
        let log = open_on(&d, home.clone(), None).log.unwrap();
        let bs = superblock(&d.image).block_size();
        let plan = log.scan(home_blocks(&*home, bs), &mut |_| {}).unwrap();
        let mut clean = log.replay(plan, &home, None, &mut |_| {}).unwrap();
        clean.finish(&home).unwrap();
        assert!(clean.next_tid().after(f.tid));
        let recovered = device.snapshot();

        let gate = Arc::new(FlushGate::new(home));
        let (log, first) = clean.into_log(gate.clone(), true).unwrap();
        assert!(first.after(f.tid));
        let config = JournalConfig::new(bs, Arc::new(SystemClock), 4 << 20);
        let journal = Journal::with_log(gate, log, config);
        let mut want = recovered.clone();
        for n in 0..1 + rng.below(3) {
            let block = f.free_block(n);
            let mut h = journal.handle();
            h.put_zeroed(block, bs.bytes()).unwrap().fill(0xAB);
            h.stop().unwrap();
            journal.commit_all().unwrap();
            let at = usize::try_from(bs.offset(block)).unwrap();
            want[at..at + bs.bytes()].fill(0xAB);
        }
        let mut left = Dirty { image: device.snapshot(), external: None };
        drop(journal);
        set_needs_recovery(&mut left.image);
        let (theirs, said) = recover_with_e2fsck(&left);
        let ours = recover_with_ours(&left);
        let jsb = super::judge::journal_runs(&want);
        let in_log = |n: &u64| jsb.iter().any(|r| (r.home.0..r.home.0 + u64::from(r.len)).contains(n));
        let differ: Vec<u64> = differing_blocks(&theirs.image, &want).into_iter().filter(|n| !in_log(n)).collect();
        assert!(differ.is_empty(), "blocks {differ:?}; {said}");
        assert!(differing_blocks(&theirs.image, &ours.after.image).is_empty(), "{said}");
        assert_clean(&ours.after);
    });
}

/// A log that nobody needs is emptied and its numbers are not used again.
#[test]
fn a_discarded_log_is_empty_and_nothing_went_home() {
    let mut rng = Rng::new(3);
    let mut f = Forge::new(Kind::plain("1024", quire_layout::jbd2::Checksums::V3, true), 50, Tid(7));
    (0..4).for_each(|_| f.random_transaction(&mut rng));
    let d = f.dirty();
    let device = Arc::new(MemDevice::new(d.image.clone()));
    let home: Arc<dyn BlockDevice> = device.clone();
    let mut clean = open_on(&d, home.clone(), None).log.unwrap().discard(&mut |_| {}).unwrap();
    assert_eq!((clean.superblock().start(), clean.next_tid()), (None, f.tid.next()));
    clean.finish(&home).unwrap();
    let after = Dirty { image: device.snapshot(), external: None };
    let own = super::judge::journal_runs(&d.image)[0].home.0;
    assert_eq!(differing_blocks(&after.image, &d.image), [1, own], "only the two superblocks");
    assert_clean(&after);
    assert!(open_on(&after, home, None).log.unwrap().into_clean().is_ok());
}

/// An error that stopped the journal once reaches the file system's superblock, and only then leaves the journal's.
#[test]
fn the_journals_error_survives() {
    let f = Forge::new(Kind::plain("1024", quire_layout::jbd2::Checksums::V3, true), 50, Tid(7));
    let d = f.dirty();
    let device = Arc::new(MemDevice::new(d.image.clone()));
    let home: Arc<dyn BlockDevice> = device.clone();
    let mut clean = open_on(&d, home.clone(), None).log.unwrap().discard(&mut |_| {}).unwrap();
    clean.update(|sb| sb.set_errno(-5)).unwrap();
    let mut again = open_on(&d, home.clone(), None).log.unwrap().into_clean().unwrap();
    assert_eq!(again.errno(), -5);
    assert_ne!(again.finish(&home).unwrap().state() & 2, 0);
    assert_eq!(open_on(&d, home, None).log.unwrap().superblock().errno(), 0);
}
