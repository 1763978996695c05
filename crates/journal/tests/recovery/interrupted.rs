//! Power fails at every write of a recovery: run again, it gives the same (R1, R2).

use super::forge::{Forge, Kind};
use super::judge::{Dirty, differing_blocks, home_blocks, open_on, recover_with_ours, superblock};
use super::rng::{Rng, seeds};
use quire_device::sync::{Arc, Mutex, lock};
use quire_device::{BlockDevice, DeviceError, DeviceInfo, Done, ErrorKind, Io, MemDevice, Ticket};
use quire_layout::Tid;
use std::collections::HashMap;

/// A device with a volatile cache whose power fails after some writes and flushes.
struct Failing {
    durable: MemDevice,
    state: Mutex<State>,
}

struct State {
    /// Sectors written and not flushed, in order.
    volatile: Vec<(u64, Vec<u8>)>,
    /// Writes and flushes left before the power fails.
    left: u64,
    done: HashMap<u64, Result<Done, DeviceError>>,
    next: u64,
}

impl Failing {
    fn new(bytes: Vec<u8>, left: u64) -> Self {
        let state = State { volatile: Vec::new(), left, done: HashMap::new(), next: 0 };
        Failing { durable: MemDevice::new(bytes), state: Mutex::new(state) }
    }

    /// The bytes after the power came back: any subset of what was not flushed.
    fn survivors(&self, rng: &mut Rng) -> Vec<u8> {
        let mut bytes = self.durable.snapshot();
        for (at, sector) in &lock(&self.state).volatile {
            if rng.one_in(2) {
                let at = usize::try_from(*at).unwrap();
                bytes[at..at + sector.len()].copy_from_slice(sector);
            }
        }
        bytes
    }

    fn apply(&self, s: &mut State, io: Io, done: &mut Done) -> Result<(), DeviceError> {
        let (at, len) = io.range();
        let dead = DeviceError { op: io.op(), at, len, kind: ErrorKind::Gone, errno: 0 };
        match io {
            Io::Read { .. } => {
                let mut reads = self.durable.run(vec![io])?.reads;
                for (place, sector) in &s.volatile {
                    if *place >= at && *place < at + len {
                        let from = usize::try_from(place - at).unwrap();
                        reads[0][from..from + 512].copy_from_slice(sector);
                    }
                }
                done.reads.append(&mut reads);
            }
            Io::Write { data, .. } => {
                s.left = s.left.checked_sub(1).ok_or(dead)?;
                let bytes: Vec<u8> = data.iter().flat_map(|b| b.to_vec()).collect();
                s.volatile.extend(bytes.chunks(512).zip(0u64..).map(|(c, n)| (at + 512 * n, c.to_vec())));
            }
            Io::Flush => {
                s.left = s.left.checked_sub(1).ok_or(dead)?;
                for (place, sector) in s.volatile.drain(..) {
                    self.durable.write(
                        place,
                        Arc::new(quire_device::Buf::copy_of(&sector)),
                        quire_device::Region::Data,
                    )?;
                }
            }
            _ => unreachable!("recovery neither discards nor zeroes"),
        }
        Ok(())
    }
}

impl BlockDevice for Failing {
    fn info(&self) -> DeviceInfo {
        self.durable.info()
    }

    fn submit(&self, batch: Vec<Io>) -> Ticket {
        let mut s = lock(&self.state);
        let mut done = Done::default();
        let result = batch.into_iter().try_for_each(|io| self.apply(&mut s, io, &mut done));
        s.next += 1;
        let id = s.next;
        s.done.insert(id, result.map(|()| done));
        Ticket(id)
    }

    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        lock(&self.state).done.remove(&ticket.0).expect("a ticket is waited for once")
    }
}

/// Recovers on a device whose power fails after `left` operations. True if recovery came to its end.
fn recover_until(d: &Dirty, device: &Arc<Failing>) -> bool {
    let home: Arc<dyn BlockDevice> = device.clone();
    let o = open_on(d, home.clone(), None);
    let bs = superblock(&d.image).block_size();
    let outcome = o.log.and_then(|log| {
        let plan = log.scan(home_blocks(&*home, bs), &mut |_| {})?;
        let mut clean = log.replay(plan, &home, None, &mut |_| {})?;
        clean.finish(&home)
    });
    outcome.is_ok()
}

#[test]
fn power_may_fail_at_every_write() {
    seeds("power_may_fail_at_every_write", 6, |seed| {
        let mut rng = Rng::new(seed);
        let mut f = Forge::new(Kind::any(&mut rng), 1000, Tid(7));
        (0..5).for_each(|_| f.random_transaction(&mut rng));
        let d = f.dirty();
        let want = recover_with_ours(&d).after.image;
        for left in 0.. {
            assert!(left < 2000);
            let device = Arc::new(Failing::new(d.image.clone(), left));
            let ended = recover_until(&d, &device);
            let crashed = Dirty { image: device.survivors(&mut rng), external: None };
            // The superblock itself may be torn: what finds the journal is the same.
            let again = Arc::new(Failing::new(crashed.image, u64::MAX));
            assert!(recover_until(&d, &again), "after a crash at operation {left}");
            let differ = differing_blocks(&again.survivors(&mut rng), &want);
            assert!(differ.is_empty(), "crash at operation {left}: blocks {differ:?}");
            if ended {
                break;
            }
        }
    });
}
