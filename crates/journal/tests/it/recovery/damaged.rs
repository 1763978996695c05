//! Damaged logs: the same judgement as e2fsck's.

use super::forge::{Forge, Kind, What};
use super::judge::{
    Dirty, differing_blocks, home_blocks, journal_runs, open_on, recover_with_e2fsck, recover_with_ours, superblock,
};
use super::seeds::seeds;
use quire_device::BlockDevice;
use quire_device::sync::Arc;
use quire_journal::recover::BadReason;
use quire_layout::jbd2::Checksums;
use quire_layout::{LogBlock, Tid};
use quire_testkit::{MemDevice, Rng};

/// What was done to the log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Wound {
    at: LogBlock,
    tid: Tid,
    what: What,
}

/// Damages one block of the log; `None` if the damage could not be seen. In logs without checksums only headers.
fn damage(f: &mut Forge, kind: &Kind, rng: &mut Rng) -> Option<Wound> {
    // Most blocks are images, most rules are about the others; and about the last transaction.
    let (others, last) = (rng.one_in(2), rng.one_in(2));
    let last_tid = f.written.last().unwrap().1;
    loop {
        let (at, tid, what) = f.written[usize::try_from(rng.below(f.written.len() as u64)).unwrap()];
        if (others && matches!(what, What::Image(_))) || (last && others && tid != last_tid) {
            continue;
        }
        let seen = match (kind.checksums, what) {
            (Checksums::None, What::Descriptor | What::Commit | What::Revoke) => 12,
            (Checksums::None, What::Image(_)) | (Checksums::V1, What::Revoke) => return None,
            // e2fsck 1.47.0 does not know that the end of a commit block may be torn.
            (_, What::Commit) => 0x3C,
            _ => 1024,
        };
        let block = f.block_mut(at);
        match rng.below(3) {
            0 => block.fill(0),
            1 if seen == 1024 => rng.fill(block),
            _ => {
                let bit = rng.below(8);
                block[usize::try_from(rng.below(seen)).unwrap()] ^= 1 << bit;
            }
        }
        return Some(Wound { at, tid, what });
    }
}

/// Differing blocks, without the log's own and the superblock's.
fn homes_differ(a: &Dirty, b: &Dirty) -> Vec<u64> {
    let runs = journal_runs(&a.image);
    let in_log = |n: u64| runs.iter().any(|r| (r.home.0..r.home.0 + u64::from(r.len)).contains(&n));
    let own = u64::from(superblock(&a.image).block_size().bytes() == 1024);
    differing_blocks(&a.image, &b.image).into_iter().filter(|n| *n != own && !in_log(*n)).collect()
}

#[test]
fn damaged_logs_are_judged_as_e2fsck_does() {
    use std::sync::atomic::{AtomicU32, Ordering};
    let outcomes: [AtomicU32; 4] = Default::default();
    seeds("damaged_logs_are_judged_as_e2fsck_does", 80, |seed| {
        let mut rng = Rng::new(seed);
        let kind = Kind { async_commit: false, ..Kind::any(&mut rng) };
        let mut f = Forge::new(kind, if rng.one_in(3) { 1015 } else { 0 }, Tid(40));
        (0..1 + rng.below(5)).for_each(|_| f.random_transaction(&mut rng));
        if rng.one_in(4) {
            f.make_stale();
            f.random_transaction(&mut rng);
        }
        let Some(wound) = damage(&mut f, &kind, &mut rng) else { return };
        let d = f.dirty();
        let ours = recover_with_ours(&d);
        let (theirs, said) = recover_with_e2fsck(&d);
        let context = || format!("{kind:?} {wound:?}; e2fsck said: {said}");
        let differ = homes_differ(&ours.after, &theirs);
        assert!(differ.is_empty(), "blocks {differ:?} differ; {}", context());
        match &ours.plan {
            Err(e) => {
                assert!(ours.after.image == d.image, "refused ({e}) but written; {}", context());
                assert!(said.contains("checksum") || said.contains("nvalid"), "we refused: {e}; {}", context());
                outcomes[0].fetch_add(1, Ordering::Relaxed);
            }
            Ok(plan) if plan.is_damaged() => {
                assert!(said.contains("orrupt") || said.contains("checksum"), "we found damage; {}", context());
                assert_ne!(superblock(&ours.after.image).state() & 2, 0, "the file system knows");
                let which = if plan.failed_commit.is_some() { 1 } else { 2 };
                outcomes[which].fetch_add(1, Ordering::Relaxed);
            }
            Ok(_) => {
                assert!(!said.contains("orrupt") && !said.contains("checksum"), "we found none; {}", context());
                outcomes[3].fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let seen = outcomes.map(AtomicU32::into_inner);
    println!("refused, broken off, images skipped, undamaged: {seen:?}");
    assert!(std::env::var_os("QUIRE_SEED").is_some() || seen.iter().all(|n| *n > 0), "{seen:?}");
}

/// R10: behind a commit that does not match stand whole transactions. What the engine writes next has none of their
/// numbers.
#[test]
fn numbers_that_stand_behind_the_damage_are_not_used_again() {
    let mut f = Forge::new(Kind::plain("1024", Checksums::V3, true), 2040, Tid(5));
    let home = f.free_block(0);
    for n in 1..=4 {
        f.images(&[(home, vec![n; 1024])], true);
        f.commit(1);
    }
    let second = f.written.iter().find(|w| w.1 == Tid(6) && w.2 == What::Commit).unwrap().0;
    f.block_mut(second)[0x11] ^= 1;
    let d = f.dirty();
    let device: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(d.image.clone()));
    let log = open_on(&d, device.clone(), None).log.unwrap();
    let plan = log.scan(home_blocks(&*device, superblock(&d.image).block_size()), &mut |_| {}).unwrap();
    assert_eq!((plan.end, plan.failed_commit), (Tid(6), Some(Tid(6))));
    let clean = log.replay(plan, &device, None, &mut |_| {}).unwrap();
    assert_eq!(clean.next_tid(), Tid(9), "the last one that stands there is 8");
}

/// R8: a bad image is skipped, and its block gets the last good one, unless a revoke took that away.
#[test]
fn the_last_good_image_counts() {
    let mut f = Forge::new(Kind::plain("1024", Checksums::V3, true), 0, Tid(5));
    let [a, b] = [f.free_block(0), f.free_block(1)];
    let image = |n: u8| vec![n; 1024];
    for n in 1..=3 {
        f.images(&[(a, image(n)), (b, image(n))], true);
        f.commit(1);
    }
    let last = f.written.iter().rev().find(|w| w.2 == What::Image(a)).unwrap().0;
    f.block_mut(last)[100] ^= 1;
    let ours = recover_with_ours(&f.dirty());
    let plan = ours.plan.unwrap();
    assert_eq!(
        plan.bad.iter().map(|b| (b.home, b.log, b.tid, b.why)).collect::<Vec<_>>(),
        [(a, last, Tid(7), BadReason::Checksum)]
    );
    let said = plan.to_string();
    assert!(said.starts_with("3 transactions from transaction 5 up to, not including, transaction 8: 6 images of 2"));
    assert!(said.contains("\nskipped: image of block") && said.ends_with("does not match its checksum"), "{said}");
    assert_eq!(ours.after.image[usize::try_from(a.0).unwrap() * 1024], 2);
    assert_eq!(ours.after.image[usize::try_from(b.0).unwrap() * 1024], 3);

    f.revokes(&[a]);
    f.commit(1);
    let ours = recover_with_ours(&f.dirty());
    assert!(!ours.plan.unwrap().is_damaged(), "a bad image that is revoked harms nobody");
    assert_eq!(ours.after.image[usize::try_from(a.0).unwrap() * 1024], 0);
}

/// R9: a commit block that overtook its images tears the last transaction of an async log off, whole; in the middle of
/// the log the same damage is what it is.
#[test]
fn the_torn_end_of_an_async_log_is_dropped_whole() {
    for (victim, torn) in [(Tid(7), true), (Tid(6), false)] {
        let kind = Kind { async_commit: true, ..Kind::plain("1024", Checksums::V3, true) };
        let mut f = Forge::new(kind, 0, Tid(5));
        let homes: Vec<_> = (0..3).map(|n| f.free_block(n)).collect();
        for n in 1..=3u8 {
            f.images(&homes.iter().map(|h| (*h, vec![n; 1024])).collect::<Vec<_>>(), true);
            f.commit(1);
        }
        let second = f.written.iter().find(|w| w.1 == victim && w.2 == What::Image(homes[1])).unwrap().0;
        f.block_mut(second).fill(0);
        let ours = recover_with_ours(&f.dirty());
        let plan = ours.plan.unwrap();
        let content: Vec<u8> = homes.iter().map(|h| ours.after.image[usize::try_from(h.0).unwrap() * 1024]).collect();
        if torn {
            assert_eq!((plan.end, plan.is_damaged()), (Tid(7), false));
            assert_eq!(content, [2, 2, 2]);
        } else {
            assert_eq!((plan.end, plan.bad.len()), (Tid(8), 1));
            assert_eq!(content, [3, 3, 3]);
        }
    }
}
