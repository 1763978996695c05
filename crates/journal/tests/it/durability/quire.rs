//! Quire's log with every kind of record and both commits: the power goes while blocks are patched, replaced, freed,
//! taken again, written in place and journaled over that, while checkpoints pass them and the log goes round.
//!
//! The ledger ([`super::ledger`]) holds the checksum of each block's content.

use super::ledger;
use super::setup::{BS, HOMES, home, image, quire_journal, recover, recover_with_power_cuts};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Buf, Region};
use quire_journal::{CommitMode, Journal, Record};
use quire_layout::checksum::crc32c;
use quire_layout::{BlockNo, Tid};
use quire_testkit::Rng;
use quire_testkit::{Image, PowerLossDevice, PowerLossOptions};

#[derive(Clone, PartialEq, Eq)]
enum Block {
    Free(Tid),
    Journaled(Vec<u8>),
    /// Written in place, by nobody's transaction yet.
    Data(Vec<u8>),
}

struct Work {
    j: Journal,
    device: Arc<PowerLossDevice>,
    blocks: Vec<Block>,
    ops: u32,
    /// Blocks that are changed most of the time.
    hot: u64,
}

/// Content that compresses, or not, and sometimes begins with the log's magic or looks like a head of it.
fn content(rng: &mut Rng) -> Vec<u8> {
    let mut c = match rng.below(3) {
        0 => vec![0; BS],
        1 => vec![rng.byte(); BS],
        _ => (0..BS).map(|_| rng.byte()).collect(),
    };
    if rng.below(6) == 0 {
        c[..8].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98, 0x51, 0x55, 0x4C, 0x31]);
    }
    patch(rng, &mut c);
    c
}

fn patch(rng: &mut Rng, c: &mut [u8]) {
    for _ in 0..=rng.below(3) {
        let (at, len) = (rng.index(BS), 1 + rng.index(60));
        let end = (at + len).min(BS);
        c[at..end].iter_mut().for_each(|b| *b = rng.byte());
    }
}

impl Work {
    fn ledger(&self) -> Vec<u8> {
        let entry = |b: &Block| match b {
            Block::Free(_) => (0, 0),
            Block::Journaled(c) | Block::Data(c) => (1, crc32c(!0, c)),
        };
        ledger::encode(self.ops, self.blocks.iter().map(entry))
    }

    fn operation(&mut self, rng: &mut Rng) {
        self.ops += 1;
        let mut puts: Vec<(BlockNo, usize, u64)> = Vec::new();
        let mut forgets = Vec::new();
        let mut after = None;
        for _ in 0..=rng.below(3) {
            let most = if rng.below(4) > 0 { self.hot } else { HOMES - 1 };
            let n = 1 + rng.index(usize::try_from(most).unwrap());
            let at = home(n as u64);
            if forgets.contains(&at) || puts.iter().any(|(b, ..)| *b == at) {
                continue;
            }
            match self.blocks[n].clone() {
                Block::Free(tid) if !self.j.reusable().at_or_after(tid) => {}
                Block::Free(_) if rng.below(3) == 0 => {
                    let c = content(rng);
                    self.device.write(at.0 * BS as u64, Arc::new(Buf::copy_of(&c)), Region::Data).unwrap();
                    self.j.written_in_place([(at, 1)]);
                    after = Some(self.j.gate().stamp());
                    self.blocks[n] = Block::Data(c);
                }
                Block::Free(_) => {
                    self.blocks[n] = Block::Journaled(content(rng));
                    puts.push((at, n, 2));
                }
                Block::Journaled(_) | Block::Data(_) if rng.below(9) == 0 => {
                    self.blocks[n] = Block::Free(self.j.running());
                    forgets.push(at);
                }
                Block::Journaled(mut c) | Block::Data(mut c) => {
                    let how = rng.below(4);
                    if how == 3 {
                        c = content(rng);
                    } else {
                        patch(rng, &mut c);
                    }
                    self.blocks[n] = Block::Journaled(c);
                    puts.push((at, n, how.min(1) + u64::from(how == 3)));
                }
            }
        }
        let ledger = self.ledger();
        let patched: Vec<BlockNo> =
            puts.iter().filter(|(.., how)| *how < 2).map(|(b, ..)| *b).chain([home(0)]).collect();
        self.j.load(&patched).unwrap();
        let mut h = self.j.handle();
        forgets.iter().for_each(|b| h.forget(*b));
        for (b, n, how) in puts {
            let Block::Journaled(c) = &self.blocks[n] else { unreachable!() };
            match how {
                0 => h.write(b).unwrap().copy_from_slice(c),
                1 => h.put(b, Arc::new(Buf::copy_of(c))).unwrap(),
                _ => h.put_zeroed(b, BS).unwrap().copy_from_slice(c),
            }
        }
        h.write(home(0)).unwrap().copy_from_slice(&ledger);
        if let Some(stamp) = after {
            h.after_data(stamp);
        }
        h.stop().unwrap();
    }
}

/// How a run is made and looked at.
#[derive(Clone, Copy)]
struct Plan {
    record: Record,
    by: CommitMode,
    ops: u32,
    /// Only a commit that finds the log full makes room.
    lazy: bool,
    /// One in so many moments loses power.
    stride: u64,
    hot: u64,
}

fn explore(seed: u64, first: Tid, p: Plan) {
    let mut rng = Rng::new(seed);
    let options = PowerLossOptions { record: true, ..PowerLossOptions::default() };
    let device = Arc::new(PowerLossDevice::from_image(Image::from_bytes(&image(first)), options));
    let j = quire_journal(device.clone(), if p.lazy { 1 << 30 } else { 1 << 12 }, p.record, p.by);
    let free = Block::Free(j.durable());
    let blocks = vec![free; usize::try_from(HOMES).unwrap()];
    let mut w = Work { j, device: device.clone(), blocks, ops: 0, hot: p.hot };
    let mut promises = vec![(device.completed(), 0)];
    for _ in 0..p.ops {
        w.operation(&mut rng);
        match rng.below(8) {
            0..4 => {
                w.j.commit_all().unwrap();
                promises.push((device.completed(), w.ops));
            }
            4 if !p.lazy => {
                w.j.checkpoint_step().unwrap();
            }
            5 if !p.lazy && rng.below(6) == 0 => w.j.checkpoint_now().unwrap(),
            _ => {}
        }
    }
    let stats = w.j.stats();
    assert!(stats.checkpoints > 1, "{stats:?}");
    if p.record != Record::Block {
        assert!(stats.range_records + stats.delta_records > 50, "{stats:?}");
    }
    for (steps, point) in device.recording().unwrap().crash_points() {
        if !(steps + seed).is_multiple_of(p.stride) {
            continue;
        }
        let promised = promises.iter().rev().find(|(at, _)| *at <= steps).map_or(0, |(_, ops)| *ops);
        for n in 0..if point.pending.is_empty() { 1 } else { 3 } {
            let crash = point.crash(seed ^ (steps << 8) ^ n);
            let device = Arc::new(PowerLossDevice::from_image(crash.image, PowerLossOptions::default()));
            let device =
                if (steps + n).is_multiple_of(5) { recover_with_power_cuts(device, steps ^ seed) } else { device };
            let there: Arc<dyn BlockDevice> = device.clone();
            recover(&there);
            if let Err(why) = ledger::check(&device.durable(), promised, |block| crc32c(!0, block)) {
                panic!(
                    "seed {seed}, power cut after {steps} steps, outcome {n}: {why}\nrepeat: QUIRE_SEED={seed} cargo test -p \
                     quire-journal --test it durability::quire"
                );
            }
        }
    }
}

fn seeds(most: u64) -> Vec<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|v| v.parse::<u64>().ok());
    match number("QUIRE_SEED") {
        Some(seed) => vec![seed],
        None => (1..=number("QUIRE_SEEDS").unwrap_or(most)).collect(),
    }
}

const ALL: [Record; 4] = [Record::Block, Record::RangeData, Record::Range, Record::Delta];

/// Q1 to Q7, J7, J9, J11: checkpoints at any time.
#[test]
fn a_power_cut_leaves_a_whole_state_in_quires_log() {
    for record in ALL {
        for by in [CommitMode::Checksum, CommitMode::Barrier] {
            for seed in seeds(3) {
                explore(seed, Tid(5), Plan { record, by, ops: 220, lazy: false, stride: 2, hot: 12 });
            }
        }
    }
}

/// A log that goes round: the tail passes parts of chains, and what one commit frees the next overwrites.
#[test]
fn a_power_cut_in_a_full_quire_log_leaves_a_whole_state() {
    for record in ALL {
        let (ops, hot) = if record == Record::Block { (700, 12) } else { (5000, 40) };
        for seed in seeds(2) {
            let p = Plan { record, by: CommitMode::Checksum, ops, lazy: true, stride: 41, hot };
            explore(seed, Tid(u32::MAX - 90), p);
        }
    }
}

/// A test of the tests: a chain of deltas that goes on past its checkpoint is noticed (Q6).
#[cfg(feature = "mutants")]
#[test]
fn the_mutant_stale_base_is_found() {
    let found = std::panic::catch_unwind(|| {
        quire_device::Mutant::set(Some(quire_device::Mutant::StaleBase));
        let p = Plan { record: Record::Delta, by: CommitMode::Checksum, ops: 5000, lazy: true, stride: 41, hot: 40 };
        explore(1, Tid(5), p);
    });
    quire_device::Mutant::set(None);
    assert!(found.is_err());
}
