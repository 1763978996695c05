//! All devices give the same answers to the same operations (M6).

use proptest::prelude::*;
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Buf, Counted, FileDevice, Io, OpenOptions, Region};
use quire_testkit::{Completion, DiscardAs, Faulty, Image, MemDevice, PowerLossDevice, PowerLossOptions};

const SECTORS: u64 = 512;

/// An operation over some sectors; a batch gives each a place of its own.
#[derive(Clone, Debug)]
enum Step {
    Read,
    Write { byte: u8, cut: usize, fua: bool },
    Zero,
    Discard,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Read),
        8 => (1..=255u8, 0..24usize, any::<bool>()).prop_map(|(byte, cut, fua)| Step::Write { byte, cut, fua }),
        1 => Just(Step::Zero),
        1 => Just(Step::Discard),
    ]
}

/// Batches of operations with (gap before, sectors): they never overlap within a batch.
fn batches() -> impl Strategy<Value = Vec<Vec<(u64, u64, Step)>>> {
    let one = (prop_oneof![2 => Just(0u64), 1 => 0..40u64], 1..24u64, step());
    prop::collection::vec(prop::collection::vec(one, 1..24), 1..8)
}

fn build(plan: &[(u64, u64, Step)], backwards: bool) -> Vec<Io> {
    let mut next = 0;
    let mut batch = Vec::new();
    for (gap, sectors, step) in plan {
        let (at, len) = ((next + gap) * 512, usize::try_from(sectors * 512).unwrap());
        next += gap + sectors;
        if next > SECTORS {
            break;
        }
        let region = Region::Data;
        batch.push(match step {
            Step::Read => Io::Read { at, buf: Buf::zeroed(len), region },
            Step::Zero => Io::Zero { at, len: sectors * 512, region },
            Step::Discard => Io::Discard { at, len: sectors * 512 },
            Step::Write { byte, cut, fua } => {
                // In two pieces, each sector different.
                let bytes: Vec<u8> = (0..len).map(|i| byte.wrapping_add(u8::try_from(i / 512).unwrap())).collect();
                let cut = (cut * 512).min(len);
                let piece = |b: &[u8]| Arc::new(Buf::copy_of(b));
                let data = vec![piece(&bytes[..cut]), piece(&bytes[cut..])];
                Io::Write { at, data, region, fua: *fua }
            }
        });
    }
    if backwards {
        batch.reverse();
    }
    batch
}

fn file(dir: &std::path::Path, name: &str, direct: bool) -> FileDevice {
    let path = dir.join(name);
    std::fs::File::create(&path).unwrap().set_len(SECTORS * 512).unwrap();
    FileDevice::open(path, OpenOptions { direct, ..OpenOptions::default() }).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn files_memory_and_the_simulated_device_agree(plans in batches(), async_: bool, backwards: bool) {
        let dir = tempfile::tempdir().unwrap();
        let lossy = |completion| PowerLossDevice::from_image(
            Image::zeroed(SECTORS * 512),
            PowerLossOptions { completion, discard: DiscardAs::Zeros, ..PowerLossOptions::default() },
        );
        let mem = Arc::new(MemDevice::new(vec![0; usize::try_from(SECTORS * 512).unwrap()]));
        let power = [Arc::new(lossy(Completion::AtSubmit)), Arc::new(lossy(Completion::AtWait))];
        let devices: Vec<(&str, Box<dyn BlockDevice>)> = vec![
            ("memory", Box::new(Arc::clone(&mem))),
            ("direct", Box::new(file(dir.path(), "direct", true))),
            ("direct, no ring", Box::new(file(dir.path(), "plain", true).without_ring())),
            ("buffered", Box::new(Counted::new(Faulty::new(file(dir.path(), "buffered", false))))),
            ("power loss", Box::new(Arc::clone(&power[0]))),
            ("power loss, late", Box::new(Arc::clone(&power[1]))),
        ];
        for (i, plan) in plans.iter().enumerate() {
            let mut answers = Vec::new();
            for (name, dev) in &devices {
                let batch = build(plan, backwards);
                let done = if async_ {
                    let ticket = dev.submit(batch);
                    dev.wait(ticket)
                } else {
                    dev.run(batch)
                };
                answers.push((*name, done.unwrap().reads));
            }
            for (name, reads) in &answers[1..] {
                prop_assert_eq!(reads, &answers[0].1, "batch {} on {}", i, name);
            }
        }
        devices.iter().for_each(|(_, dev)| drop(dev.run(vec![Io::Flush]).unwrap()));
        let want = mem.snapshot();
        for (name, dev) in &devices {
            prop_assert_eq!(&dev.read(0, want.len(), Region::Data).unwrap()[..], &want[..], "{}", name);
        }
        for name in ["direct", "plain", "buffered"] {
            prop_assert_eq!(&std::fs::read(dir.path().join(name)).unwrap(), &want, "{}", name);
        }
        for dev in power {
            prop_assert_eq!(&dev.durable().to_vec(), &want);
        }
    }
}
