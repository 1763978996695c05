//! Whole logs of every format.

use super::forge::{Forge, Kind};
use super::judge::{compare, recover_with_ours};
use super::seeds::seeds;
use quire_layout::Tid;
use quire_layout::jbd2::Checksums;
use quire_testkit::Rng;

/// R6: every format, block size and many places of the log, wrapped ones included.
#[test]
fn every_format_replays_as_e2fsck_does() {
    seeds("every_format", 40, |seed| {
        let mut rng = Rng::new(seed);
        let kind = Kind::any(&mut rng);
        let tid = if rng.one_in(8) { Tid(u32::MAX - 2) } else { Tid(1 + u32::try_from(rng.below(1 << 30)).unwrap()) };
        let start = if rng.one_in(2) { 1020 + u32::try_from(rng.below(6)).unwrap() } else { 0 };
        let mut f = Forge::new(kind, start, tid);
        let transactions = 1 + rng.below(6);
        (0..transactions).for_each(|_| f.random_transaction(&mut rng));
        let end = f.tid;
        // What follows the last commit does not count: part of a transaction, or an older round of the log.
        match rng.below(3) {
            0 => f.images(&[(f.free_block(0), vec![7; f.format.block_size.bytes()])], true),
            1 => {
                f.make_stale();
                f.tid = Tid(f.tid.0.wrapping_sub(3));
                f.random_transaction(&mut rng);
            }
            _ => {}
        }
        let plan = compare(&f.dirty());
        assert_eq!(plan.end, end, "{kind:?}");
        assert_eq!(u64::from(plan.transactions), transactions);
    });
}

/// A log that is full to its last block ends where it began.
#[test]
fn a_full_log_is_read_once() {
    let mut f = Forge::new(Kind::plain("1024", Checksums::V3, true), 100, Tid(5));
    let image = vec![9; 1024];
    while f.used() + 12 < 2047 {
        f.images(&vec![(f.free_block(3), image.clone()); 10], true);
        f.commit(1);
    }
    while f.used() < 2047 {
        f.commit(1);
    }
    let plan = compare(&f.dirty());
    assert_eq!(plan.images().len(), 1);
    assert_eq!(plan.end, f.tid);
}

/// A log without any commit that runs into itself, and one that points at its own blocks: neither hangs, neither
/// writes.
#[test]
fn a_hostile_log_neither_hangs_nor_writes() {
    let mut f = Forge::new(Kind::plain("1024", Checksums::V3, true), 0, Tid(5));
    let image = vec![9; 1024];
    // 89 descriptors with 22 images each fill the 2047 blocks: the last is followed by the first.
    for _ in 0..89 {
        f.images(&vec![(f.free_block(3), image.clone()); 22], true);
    }
    assert_eq!(f.used(), 2047);
    let d = f.dirty();
    let plan = recover_with_ours(&d).plan.unwrap();
    assert_eq!((plan.images().len(), plan.transactions), (0, 0));

    let mut f = Forge::new(Kind::plain("1024", Checksums::V3, true), 0, Tid(5));
    let own = super::judge::journal_runs(&f.dirty().image)[0].home;
    for home in [own.plus(20), f.free_block(0).plus(1 << 40)] {
        f.images(&[(home, image.clone())], true);
        f.commit(1);
        let d = f.dirty();
        let ours = recover_with_ours(&d);
        assert!(ours.plan.unwrap_err().to_string().contains("home of an image"));
        assert!(ours.after.image == d.image, "nothing is written");
    }
}

/// R7: a revoke that comes after the image went to the log, in the same transaction or later, and one that comes
/// before.
#[test]
fn revokes_count_for_their_own_transaction_and_earlier_ones() {
    for sums in [Checksums::None, Checksums::V3] {
        let mut f = Forge::new(Kind::plain("1024", sums, sums == Checksums::V3), 0, Tid(5));
        let image = |n: u8| vec![n; 1024];
        let [a, b, c] = [0, 1, 2].map(|n| f.free_block(n));
        f.images(&[(a, image(1)), (b, image(1)), (c, image(1))], true);
        f.commit(1);
        f.revokes(&[a, b]);
        f.commit(1);
        f.images(&[(b, image(3)), (c, image(3))], true);
        f.revokes(&[c]);
        f.commit(1);
        let plan = compare(&f.dirty());
        assert_eq!(plan.images().iter().map(|p| (p.home, p.tid)).collect::<Vec<_>>(), [(b, Tid(7))]);
        assert_eq!((plan.revoked, plan.revokes), (2, 3));
    }
}
