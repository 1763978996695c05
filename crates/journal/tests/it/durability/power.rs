//! The power goes at every step of a journal at work: what is recovered is one of its states, whole, and no older than
//! what was promised. Blocks change hands between the journal and writes in place, as metadata and file data do.
//!
//! The ledger ([`super::ledger`]) holds the number that each block was filled with.

use super::ledger;
use super::setup::{BS, HOMES, home, image, journal, recover};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Buf, Region};
use quire_journal::Journal;
use quire_layout::Tid;
use quire_testkit::Rng;
use quire_testkit::{Image, PowerLossDevice, PowerLossOptions};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    /// Nobody's since this transaction.
    Free(Tid),
    /// Journaled, with this content.
    Journaled(u32),
    /// Written in place, with this content.
    Data(u32),
}

struct Work {
    j: Journal,
    device: Arc<PowerLossDevice>,
    blocks: Vec<Block>,
    /// Operations so far; each has content of its own.
    ops: u32,
}

fn content(n: u32) -> Vec<u8> {
    n.to_le_bytes().into_iter().cycle().take(BS).collect()
}

impl Work {
    fn ledger(&self) -> Vec<u8> {
        let entry = |b: &Block| match b {
            Block::Free(_) => (0, 0),
            Block::Journaled(n) => (1, *n),
            Block::Data(n) => (2, *n),
        };
        ledger::encode(self.ops, self.blocks.iter().map(entry))
    }

    /// One operation: up to three blocks change hands, all or none.
    fn operation(&mut self, rng: &mut Rng) {
        self.ops += 1;
        let mut puts = Vec::new();
        let mut forgets = Vec::new();
        for _ in 0..=rng.below(3) {
            let n = 1 + usize::try_from(rng.below(HOMES - 1)).unwrap();
            let content_no = self.ops * 4 + u32::try_from(puts.len()).unwrap();
            let at = home(n as u64);
            if forgets.contains(&at) || puts.iter().any(|(b, _)| *b == at) {
                continue;
            }
            match self.blocks[n] {
                Block::Free(tid) if !self.j.reusable().at_or_after(tid) => {}
                Block::Free(_) if rng.below(2) == 0 => {
                    let data = Arc::new(Buf::copy_of(&content(content_no)));
                    self.device.write(at.0 * BS as u64, data, Region::Data).unwrap();
                    self.j.written_in_place([(at, 1)]);
                    self.blocks[n] = Block::Data(content_no);
                }
                Block::Journaled(_) | Block::Data(_) if rng.below(3) == 0 => {
                    self.blocks[n] = Block::Free(self.j.running());
                    forgets.push(at);
                }
                Block::Data(_) => {}
                Block::Free(_) | Block::Journaled(_) => {
                    self.blocks[n] = Block::Journaled(content_no);
                    puts.push((at, content(content_no)));
                }
            }
        }
        let ledger = self.ledger();
        let mut h = self.j.handle();
        forgets.iter().for_each(|b| h.forget(*b));
        for (b, bytes) in puts.into_iter().chain([(home(0), ledger)]) {
            h.put_zeroed(b, BS).unwrap().copy_from_slice(&bytes);
        }
        h.stop().unwrap();
    }
}

/// The number that a block was filled with; none (which no operation has) when it is torn.
fn number_of(block: &[u8]) -> u32 {
    let n = u32::from_le_bytes(block[..4].try_into().unwrap());
    if block == content(n) { n } else { u32::MAX }
}

/// Works for `ops` operations from transaction `first` on; returns (steps complete, operations promised) after each
/// commit. `lazy`: only a commit that finds the log full makes room.
fn work(rng: &mut Rng, first: Tid, ops: u32, lazy: bool) -> (Arc<PowerLossDevice>, Vec<(u64, u32)>) {
    let options = PowerLossOptions { record: true, ..PowerLossOptions::default() };
    let device = Arc::new(PowerLossDevice::from_image(Image::from_bytes(&image(first)), options));
    let j = journal(device.clone(), if lazy { 1 << 30 } else { 1 << 10 });
    let blocks = vec![Block::Free(first); usize::try_from(HOMES).unwrap()];
    let mut w = Work { j, device: device.clone(), blocks, ops: 0 };
    let mut promises = vec![(device.completed(), 0)];
    // Blocks are free since before the first transaction.
    w.blocks.iter_mut().for_each(|b| *b = Block::Free(w.j.durable()));
    for _ in 0..ops {
        w.operation(rng);
        match rng.below(8) {
            0..3 => {
                w.j.commit_all().unwrap();
                promises.push((device.completed(), w.ops));
            }
            3 if !lazy => {
                w.j.checkpoint_step().unwrap();
            }
            _ => {}
        }
    }
    assert!(w.j.stats().checkpoints > 1, "{:?}", w.j.stats());
    (device, promises)
}

fn explore(seed: u64, first: Tid, ops: u32, lazy: bool) {
    let outcomes = if lazy { 12 } else { 3 };
    let mut rng = Rng::new(seed);
    let (device, promises) = work(&mut rng, first, ops, lazy);
    for (steps, point) in device.recording().unwrap().crash_points() {
        let promised = promises.iter().rev().find(|(at, _)| *at <= steps).map_or(0, |(_, ops)| *ops);
        for n in 0..if point.pending.is_empty() { 1 } else { outcomes } {
            let crash = point.crash(seed ^ (steps << 8) ^ n);
            let device = Arc::new(PowerLossDevice::from_image(crash.image, PowerLossOptions::default()));
            let there: Arc<dyn BlockDevice> = device.clone();
            recover(&there);
            if let Err(why) = ledger::check(&device.durable(), promised, number_of) {
                panic!("seed {seed}, power cut after {steps} steps, outcome {n}: {why}");
            }
        }
    }
}

fn seeds() -> Vec<u64> {
    match std::env::var("QUIRE_SEED").ok().and_then(|s| s.parse().ok()) {
        Some(seed) => vec![seed],
        None => (1..=12).collect(),
    }
}

/// J2, J7, J8, J9, J10, J11.
#[test]
fn a_power_cut_leaves_a_whole_state() {
    for seed in seeds() {
        explore(seed, Tid(5), 160, false);
    }
}

/// The numbers of transactions go round; a log that holds both ends of the circle is found whole.
#[test]
fn a_power_cut_while_numbers_wrap_leaves_a_whole_state() {
    for seed in seeds().into_iter().take(4) {
        explore(seed, Tid(u32::MAX - 20), 120, false);
    }
}

/// A log that runs full again and again: what one commit frees, the next overwrites.
#[test]
fn a_power_cut_in_a_full_log_leaves_a_whole_state_j7() {
    for seed in seeds().into_iter().take(2) {
        explore(seed, Tid(5), 1000, true);
    }
}
