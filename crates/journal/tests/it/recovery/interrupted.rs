//! Power fails at every write of a recovery: run again, it gives the same (R1, R2).

use super::forge::{Forge, Kind};
use super::judge::{Dirty, differing_blocks, home_blocks, open_on, recover_with_ours, superblock};
use super::seeds::seeds;
use quire_device::sync::{Arc, Mutex, lock};
use quire_device::tickets::Tickets;
use quire_device::{BlockDevice, Buf, DeviceError, DeviceInfo, Done, ErrorKind, Io, IoOp, Ticket};
use quire_journal::Error;
use quire_journal::recover::{BadReason, SavedFrom, Undo};
use quire_layout::jbd2::Checksums;
use quire_layout::superblock::Superblock;
use quire_layout::{BlockNo, BlockSize, Tid};
use quire_testkit::Rng;
use quire_testkit::{Fault, FaultKind, Faulty, MemDevice};

/// A device with a volatile cache whose power fails after some writes and flushes.
struct Failing {
    durable: MemDevice,
    state: Mutex<State>,
    tickets: Tickets<Result<Done, DeviceError>>,
}

struct State {
    /// Sectors written and not flushed, in order.
    volatile: Vec<(u64, Vec<u8>)>,
    /// Writes and flushes left before the power fails.
    left: u64,
}

impl Failing {
    fn new(bytes: Vec<u8>, left: u64) -> Self {
        let state = State { volatile: Vec::new(), left };
        Failing { durable: MemDevice::new(bytes), state: Mutex::new(state), tickets: Tickets::default() }
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
        self.tickets.put(result.map(|()| done))
    }

    fn wait(&self, ticket: Ticket) -> Result<Done, DeviceError> {
        self.tickets.take(&ticket)
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

/// R5.
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

/// R11: what an undo saved brings the image back to the byte, and a failing undo stops the replay before it writes.
#[test]
fn an_undo_brings_everything_back() {
    struct Saved(Vec<(BlockNo, Buf)>, usize);
    impl Undo for Saved {
        fn save(&mut self, from: SavedFrom, old: &[(BlockNo, Buf)]) -> Result<(), Error> {
            assert_eq!(from, SavedFrom::Home);
            if self.1 == 0 {
                return Err(Error::TooSmall { blocks: 0 });
            }
            self.1 -= 1;
            self.0.extend_from_slice(old);
            Ok(())
        }
    }
    let mut rng = Rng::new(5);
    let mut f = Forge::new(Kind::plain("2048", Checksums::V3, true), 1000, Tid(7));
    (0..5).for_each(|_| f.random_transaction(&mut rng));
    let d = f.dirty();
    for saves in 0..3 {
        let device = Arc::new(MemDevice::new(d.image.clone()));
        let home: Arc<dyn BlockDevice> = device.clone();
        let log = open_on(&d, home.clone(), None).log.unwrap();
        let plan = log.scan(home_blocks(&*home, superblock(&d.image).block_size()), &mut |_| {}).unwrap();
        let (mut undo, mut told) = (Saved(Vec::new(), saves), Vec::new());
        let outcome = log.replay(plan, &home, Some(&mut undo), &mut |p| told.push(p));
        assert_eq!(outcome.is_ok(), saves == 2);
        if saves == 0 {
            assert!(device.snapshot() == d.image);
        } else {
            assert!(device.snapshot() != d.image);
            assert!(told.last().is_some_and(|p| p.done == p.total && p.total > 0));
        }
        for (at, old) in undo.0 {
            device.write(at.0 * 2048, Arc::new(old), quire_device::Region::Metadata).unwrap();
        }
        assert!(device.snapshot() == d.image, "undone after {saves} saves");
    }
}

/// A log block that cannot be read: an image is reported and its block gets the last good one; a descriptor ends
/// recovery, and nothing is written.
#[test]
fn unreadable_log_blocks() {
    let mut f = Forge::new(Kind::plain("1024", Checksums::V3, true), 0, Tid(5));
    let home = f.free_block(0);
    for n in 1..=2u8 {
        f.images(&[(home, vec![n; 1024]), (f.free_block(n.into()), vec![n; 1024])], true);
        f.commit(1);
    }
    let d = f.dirty();
    let log_home = super::judge::journal_runs(&d.image)[0].home.0;
    let at = |n: u64| (log_home + n) * 1024..(log_home + n + 1) * 1024;
    let attempt = |n: u64| {
        let device = Arc::new(Faulty::new(MemDevice::new(d.image.clone())));
        device.inject(Fault::always(IoOp::Read, FaultKind::Error(ErrorKind::Io)).within(at(n)));
        let home: Arc<dyn BlockDevice> = device.clone();
        let log = open_on(&d, home.clone(), None).log.unwrap();
        let plan = log.scan(home_blocks(&*home, BlockSize::K1), &mut |_| {})?;
        let clean = log.replay(plan, &home, None, &mut |_| {})?;
        Ok::<_, Error>((clean.damage().clone(), device.inner().snapshot()))
    };
    // Log blocks: 1 descriptor, 2 and 3 images, 4 commit, 5 descriptor, 6 and 7 images, 8 commit.
    let (damage, after) = attempt(6).unwrap();
    assert_eq!(damage.bad.iter().map(|b| (b.home, b.why)).collect::<Vec<_>>(), [(home, BadReason::Unreadable)]);
    assert_eq!(after[usize::try_from(home.0).unwrap() * 1024], 1);
    assert!(matches!(attempt(5), Err(Error::Device(_))));
    assert!(matches!(attempt(8), Err(Error::Device(_))));
}

/// The superblock at home is lost; the log's copy serves.
#[test]
fn the_logs_copy_of_the_superblock() {
    let mut f = Forge::new(Kind::plain("4096", Checksums::V3, true), 0, Tid(5));
    let clean = f.dirty();
    let mut sb = superblock(&clean.image);
    sb.set_mount_count(77);
    sb.seal();
    let mut image = clean.image[..4096].to_vec();
    image[1024..2048].copy_from_slice(sb.bytes());
    f.images(&[(BlockNo(0), image)], true);
    f.commit(1);
    let mut d = f.dirty();
    d.image[1024 + 0x34] ^= 0x55; // the mount count: no toggling of flags explains the checksum
    assert!(Superblock::decode_torn(&d.image[1024..]).is_err());
    assert!(Superblock::decode_unverified(&d.image[1024..]).is_ok());
    let home: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(d.image.clone()));
    let log = open_on(&clean, home.clone(), None).log.unwrap();
    let plan = log.scan(home_blocks(&*home, sb.block_size()), &mut |_| {}).unwrap();
    assert_eq!(log.superblock_image(&plan).unwrap().unwrap().mount_count(), 77);
    let mut clean = log.replay(plan, &home, None, &mut |_| {}).unwrap();
    assert_eq!(clean.finish(&home).unwrap().mount_count(), 77);
}

/// The same with real metadata, the file system's superblock among it.
#[test]
fn power_may_fail_while_a_kernel_log_is_recovered() {
    let d = super::kernel_made::small();
    let want = recover_with_ours(&d).after.image;
    let mut rng = Rng::new(1);
    for left in 0.. {
        let device = Arc::new(Failing::new(d.image.clone(), left));
        let ended = recover_until(&d, &device);
        let again = Arc::new(Failing::new(device.survivors(&mut rng), u64::MAX));
        assert!(recover_until(&d, &again), "after a crash at operation {left}");
        let differ = differing_blocks(&again.survivors(&mut rng), &want);
        assert!(differ.is_empty(), "crash at operation {left}: blocks {differ:?}");
        if ended {
            break;
        }
    }
}
