//! What may and what must survive a power cut of the simulated device (M7).
#![cfg(not(feature = "shuttle"))]

use proptest::prelude::*;
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Buf, ErrorKind, Io, Region};
use quire_testkit::{Completion, CrashPoint, DiscardAs, Image, PowerLossDevice, PowerLossOptions};
use std::collections::{BTreeMap, BTreeSet, HashSet};

const SECTOR: u64 = 512;

fn device(options: PowerLossOptions) -> PowerLossDevice {
    PowerLossDevice::from_image(Image::zeroed(64 * SECTOR), options)
}

/// A write of sectors that are filled with `byte`.
fn write(sector: u64, count: usize, byte: u8, fua: bool) -> Io {
    let one = |_| {
        let mut b = Buf::zeroed(512);
        b.fill(byte);
        Arc::new(b)
    };
    Io::Write { at: sector * SECTOR, data: (0..count).map(one).collect(), region: Region::Data, fua }
}

fn sector(image: &Image, n: u64) -> u8 {
    let mut b = [0; 512];
    image.read(n * SECTOR, &mut b);
    assert!(b.iter().all(|x| *x == b[0]), "sector {n} is torn");
    b[0]
}

#[test]
fn a_flush_makes_durable_and_nothing_else_does() {
    let dev = device(PowerLossOptions::default());
    dev.run(vec![write(0, 1, 1, false)]).unwrap();
    dev.run(vec![Io::Flush]).unwrap();
    dev.run(vec![write(1, 1, 2, false)]).unwrap();
    let outcomes: BTreeSet<_> =
        (0..100).map(|s| dev.crash(s)).map(|c| (sector(&c.image, 0), sector(&c.image, 1))).collect();
    assert_eq!(outcomes, BTreeSet::from([(1, 0), (1, 2)]));
    assert_eq!(dev.read(SECTOR, 512, Region::Data).unwrap()[0], 2);
}

#[test]
fn fua_covers_itself_only_and_beats_older_versions() {
    let dev = device(PowerLossOptions::default());
    dev.run(vec![write(0, 1, 1, false)]).unwrap();
    dev.run(vec![write(1, 1, 1, false)]).unwrap();
    dev.run(vec![write(1, 1, 2, true)]).unwrap();
    dev.run(vec![write(0, 1, 3, false)]).unwrap();
    let outcomes: BTreeSet<_> =
        (0..200).map(|s| dev.crash(s)).map(|c| (sector(&c.image, 0), sector(&c.image, 1))).collect();
    assert_eq!(outcomes, BTreeSet::from([(0, 2), (1, 2), (3, 2)]));
}

#[test]
fn a_flush_does_not_cover_what_is_still_in_flight() {
    let dev = device(PowerLossOptions { completion: Completion::AtWait, ..PowerLossOptions::default() });
    let waited = dev.submit(vec![write(0, 1, 1, false)]);
    let in_flight = dev.submit(vec![write(1, 1, 2, true)]);
    dev.wait(waited).unwrap();
    let flush = dev.submit(vec![Io::Flush]);
    let late = dev.submit(vec![write(2, 1, 3, false)]);
    dev.wait(late).unwrap();
    dev.wait(flush).unwrap();
    let none = dev.crash_point().crash_with(|_, _| false);
    assert_eq!((0..3).map(|n| sector(&none.image, n)).collect::<Vec<_>>(), [1, 0, 0]);
    assert_eq!(none.lost, 2);
    assert_eq!(dev.read(SECTOR, 512, Region::Data).unwrap()[0], 0);
    dev.wait(in_flight).unwrap();
    assert_eq!(sector(&dev.crash_point().crash_with(|_, _| false).image, 1), 2);
}

#[test]
fn the_power_goes_at_the_step_that_was_named() {
    for completion in [Completion::AtSubmit, Completion::AtWait] {
        let dev = device(PowerLossOptions { completion, ..PowerLossOptions::default() });
        dev.cut_at(3);
        dev.run(vec![write(0, 1, 1, false)]).unwrap();
        dev.run(vec![Io::Flush]).unwrap();
        let e = dev.run(vec![write(1, 4, 2, true), write(9, 1, 9, false)]).unwrap_err();
        assert_eq!((e.kind, e.at, e.len), (ErrorKind::Gone, 512, 2048));
        assert!(dev.is_cut());
        assert_eq!(dev.read(0, 512, Region::Data).unwrap_err().kind, ErrorKind::Gone);
        assert_eq!(dev.run(vec![Io::Flush]).unwrap_err().kind, ErrorKind::Gone);
        assert_eq!((dev.steps(), dev.writes_and_flushes()), (3, (2, 1)));
        let outcomes: BTreeSet<_> = dev.crash_point().unit_subsets().unwrap().map(|c| c.image.to_vec()).collect();
        assert_eq!(outcomes.len(), 16, "each sector of the last write may survive, nothing after it");
        let torn = (0..200).map(|seed| dev.crash(seed)).filter(|c| c.torn == 1).count();
        assert!(torn > 20, "{torn} of 200 outcomes are torn");
    }
}

#[test]
fn a_flush_that_the_power_interrupts_covers_nothing() {
    let dev = device(PowerLossOptions::default());
    dev.cut_at(2);
    dev.run(vec![write(0, 1, 1, false)]).unwrap();
    dev.run(vec![Io::Flush]).unwrap_err();
    assert_eq!(dev.crash_point().write_subsets().unwrap().map(|c| sector(&c.image, 0)).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn subsets_are_complete_or_refused() {
    let dev = device(PowerLossOptions::default());
    for n in 0..4 {
        dev.run(vec![write(n, 2, u8::try_from(n).unwrap() + 1, n == 2)]).unwrap();
    }
    let point = dev.crash_point();
    assert_eq!(point.write_subsets().unwrap().count(), 8);
    assert_eq!(point.unit_subsets().unwrap().count(), 64);
    let all: HashSet<_> = point.unit_subsets().unwrap().map(|c| c.image.to_vec()).collect();
    for seed in 0..300 {
        assert!(all.contains(&point.crash(seed).image.to_vec()), "seed {seed}");
    }
    // Lost, torn and reordered, by hand: write 1 whole, 2 half, 3 forced, 4 lost.
    let crash = point.crash_with(|w, u| w == 0 || (w == 1 && u == 1));
    assert_eq!((crash.lost, crash.torn, crash.reordered), (1, 1, 1));
    for n in 0..20 {
        dev.run(vec![write(n, 1, 7, false)]).unwrap();
    }
    assert!(dev.crash_point().write_subsets().is_none());
}

#[test]
fn a_larger_unit_is_never_torn() {
    let dev = device(PowerLossOptions { unit: 4096, ..PowerLossOptions::default() });
    dev.run(vec![write(4, 24, 1, false)]).unwrap();
    for seed in 0..200 {
        let image = dev.crash(seed).image;
        let units: Vec<BTreeSet<u8>> =
            [4..8, 8..16, 16..24, 24..28].map(|r| r.map(|n| sector(&image, n)).collect()).into();
        assert!(units.iter().all(|u| u.len() == 1), "seed {seed}");
    }
}

#[test]
fn discards_and_zeroings_are_cached_like_writes() {
    for (discard, byte) in [(DiscardAs::Garbage, 0xD5), (DiscardAs::Zeros, 0), (DiscardAs::Kept, 1)] {
        let dev = device(PowerLossOptions { discard, ..PowerLossOptions::default() });
        dev.run(vec![write(0, 8, 1, false)]).unwrap();
        dev.run(vec![Io::Flush]).unwrap();
        dev.run(vec![Io::Discard { at: 0, len: 1024 }, Io::Zero { at: 2048, len: 512, region: Region::Data }]).unwrap();
        assert_eq!([0, 2, 4].map(|n| sector(&dev.live(), n)), [byte, 1, 0]);
        assert_eq!([0, 2, 4].map(|n| sector(&dev.durable(), n)), [1, 1, 1]);
        dev.run(vec![Io::Flush]).unwrap();
        assert_eq!(dev.durable(), dev.live());
    }
}

#[test]
fn a_seed_says_it_all() {
    let run = || {
        let dev = device(PowerLossOptions::default());
        (0..30).for_each(|n| drop(dev.run(vec![write(n * 2, 2, u8::try_from(n).unwrap() + 1, false)]).unwrap()));
        dev
    };
    let (a, b) = (run(), run());
    let outcomes: HashSet<_> = (0..500)
        .map(|seed| {
            assert_eq!(a.crash(seed).image, b.crash(seed).image);
            a.crash(seed).image.to_vec()
        })
        .collect();
    assert!(outcomes.len() > 200, "{} different outcomes of 500 seeds", outcomes.len());
}

/// What each sector may hold after a crash: kept apart from the device, by its promises alone.
#[derive(Clone, Default)]
struct Promise {
    durable: BTreeMap<u64, u8>,
    /// Versions since, the last one is what reads see.
    versions: BTreeMap<u64, Vec<u8>>,
}

impl Promise {
    fn write(&mut self, sectors: std::ops::Range<u64>, byte: u8, fua: bool) {
        for n in sectors {
            if fua {
                self.durable.insert(n, byte);
                self.versions.remove(&n);
            } else {
                self.versions.entry(n).or_default().push(byte);
            }
        }
    }

    fn flush(&mut self) {
        for (n, versions) in std::mem::take(&mut self.versions) {
            self.durable.insert(n, *versions.last().unwrap());
        }
    }

    fn check(&self, image: &Image) -> Result<(), String> {
        for n in 0..64 {
            let found = sector(image, n);
            let durable = self.durable.get(&n).copied().unwrap_or(0);
            let newer = self.versions.get(&n).cloned().unwrap_or_default();
            if found != durable && !newer.contains(&found) {
                return Err(format!("sector {n} holds {found}; durable is {durable}, later versions {newer:?}"));
            }
        }
        Ok(())
    }
}

#[derive(Clone, Debug)]
enum Step {
    Write { at: u64, count: usize, fua: bool },
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let write = (0..60u64, 1..5usize, 0..8u8).prop_map(|(at, count, fua)| Step::Write { at, count, fua: fua == 0 });
    prop::collection::vec(prop_oneof![8 => write, 1 => Just(Step::Flush)], 1..60)
}

proptest! {
    /// After every step, every outcome keeps the promises: flushed and forced data are there, every sector holds its
    /// durable contents or a later version, and nothing else.
    #[test]
    fn every_outcome_keeps_the_promises(steps in steps(), seed: u64) {
        let dev = device(PowerLossOptions { record: true, ..PowerLossOptions::default() });
        let mut promise = Promise::default();
        let mut promises = vec![promise.clone()];
        for (i, step) in steps.iter().enumerate() {
            let byte = u8::try_from(i + 1).unwrap();
            match *step {
                Step::Write { at, count, fua } => {
                    dev.run(vec![write(at, count, byte, fua)]).unwrap();
                    promise.write(at..at + count as u64, byte, fua);
                }
                Step::Flush => {
                    dev.run(vec![Io::Flush]).unwrap();
                    promise.flush();
                }
            }
            promises.push(promise.clone());
            let check = |point: &CrashPoint| (0..4).try_for_each(|k| promise.check(&point.crash(seed ^ k).image));
            check(&dev.crash_point()).map_err(TestCaseError::fail)?;
        }
        prop_assert_eq!(dev.completed(), steps.len() as u64);
        // The recording tells the same afterwards, for each moment. In flight is what the next step may add.
        let recording = dev.recording().unwrap();
        for (completed, point) in recording.crash_points() {
            let at = usize::try_from(completed).unwrap();
            let mut allowed = promises[at].clone();
            if let Some(Step::Write { at: sector, count, .. }) = steps.get(at) {
                allowed.write(*sector..sector + *count as u64, u8::try_from(at + 1).unwrap(), false);
            }
            (0..4).try_for_each(|k| allowed.check(&point.crash(seed ^ k).image)).map_err(TestCaseError::fail)?;
        }
        let last = recording.crash_points().last().unwrap().1;
        prop_assert_eq!(last.durable, dev.durable());
    }
}
