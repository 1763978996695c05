//! Quire's log, case by case: bases that are not what they seem, tears, damage, and user data that looks like a log.

use super::setup::{BS, HOMES, Hooked, LOG_BLOCKS, home, image, quire_journal, unrecovered};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Buf, Counted, FlushGate, Io, Region, SystemClock};
use quire_journal::dump::{LogDump, LogItem, Scope};
use quire_journal::geometry::LogGeometry;
use quire_journal::recover::{BadReason, Plan, UnrecoveredLog};
use quire_journal::{CommitMode, Error, Journal, JournalConfig, LogChoices, Record};
use quire_layout::checksum::crc32c;
use quire_layout::jbd2::{JournalSuperblock, LogSeed};
use quire_layout::qlog::Head;
use quire_layout::{BlockNo, BlockSize, LogBlock, Tid};
use quire_testkit::{Image, MemDevice, PowerLossDevice, PowerLossOptions};

fn device() -> Arc<PowerLossDevice> {
    let options = PowerLossOptions { record: true, ..PowerLossOptions::default() };
    Arc::new(PowerLossDevice::from_image(Image::from_bytes(&image(Tid(5))), options))
}

fn ranges(device: &Arc<PowerLossDevice>) -> Journal {
    quire_journal(device.clone(), 1 << 20, Record::Range, CommitMode::Checksum)
}

fn noise(seed: u8) -> Vec<u8> {
    let mut x = u64::from(seed) + 1;
    (0..BS)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x.to_le_bytes()[3]
        })
        .collect()
}

fn put(j: &Journal, b: BlockNo, bytes: &[u8]) -> Tid {
    let mut h = j.handle();
    h.put(b, Arc::new(Buf::copy_of(bytes))).unwrap();
    h.stop().unwrap()
}

fn patch(j: &Journal, b: BlockNo, at: usize, bytes: &[u8]) -> Tid {
    j.load(&[b]).unwrap();
    let mut h = j.handle();
    h.write(b).unwrap()[at..at + bytes.len()].copy_from_slice(bytes);
    h.stop().unwrap()
}

fn plan_of(bytes: &Image) -> Result<Plan, Error> {
    let there: Arc<dyn BlockDevice> = Arc::new(PowerLossDevice::from_image(bytes.clone(), PowerLossOptions::default()));
    unrecovered(&there).scan(u64::from(LOG_BLOCKS) + HOMES, &mut |_| {})
}

/// Recovers a copy, damaged or not; what it holds then.
fn recovered(bytes: &Image) -> Image {
    let device = Arc::new(PowerLossDevice::from_image(bytes.clone(), PowerLossOptions::default()));
    let there: Arc<dyn BlockDevice> = device.clone();
    let log = unrecovered(&there);
    let plan = log.scan(u64::from(LOG_BLOCKS) + HOMES, &mut |_| {}).unwrap();
    log.replay(plan, &there, None, &mut |_| {}).unwrap();
    device.durable()
}

fn block(image: &Image, at: u64) -> Vec<u8> {
    let mut buf = vec![0; BS];
    image.read(at * BS as u64, &mut buf);
    buf
}

/// No crash leaves a damaged log. Where a record of block 1 of the homes is left, the block recovers to one of these.
fn no_crash_leaves_damage(d: &PowerLossDevice, may_be: &[Vec<u8>]) {
    for (steps, point) in d.recording().unwrap().crash_points() {
        for n in 0..20 {
            let left = point.crash(n ^ steps << 8).image;
            let plan = plan_of(&left).unwrap();
            assert!(!plan.is_damaged(), "step {steps}, {n}: {plan}");
            if plan.image_of(home(1)).is_some() {
                assert!(may_be.contains(&block(&recovered(&left), home(1).0)), "step {steps}, {n}");
            }
        }
    }
}

/// Q3: what was written in place and is not durable yet is no base.
#[test]
fn data_that_a_power_cut_may_take_back_is_no_base() {
    let d = device();
    let j = ranges(&d);
    put(&j, home(2), &noise(9));
    j.commit_all().unwrap();
    d.write(home(1).0 * BS as u64, Arc::new(Buf::copy_of(&noise(1))), Region::Data).unwrap();
    j.written_in_place([(home(1), 1)]);
    patch(&j, home(1), 500, b"over data in place");
    j.commit_all().unwrap();
    let mut expected = noise(1);
    expected[500..518].copy_from_slice(b"over data in place");
    no_crash_leaves_damage(&d, &[expected]);
}

/// Q3: a block is freed while an fsync writes it home. What lies there then is no base of its next owner's record
/// before a flush has returned.
#[test]
fn what_was_written_home_while_it_was_freed_is_no_base_before_a_flush() {
    let d = device();
    let hooked = Arc::new(Hooked::new(d.clone()));
    let j = Arc::new(quire_journal(hooked.clone(), 1 << 20, Record::Range, CommitMode::Checksum));
    put(&j, home(1), &noise(1));
    j.commit_all().unwrap();
    let (theirs, mut freed) = (j.clone(), false);
    hooked.hook(move |io| {
        if matches!(io, Io::Write { region: Region::Metadata, .. }) && !std::mem::replace(&mut freed, true) {
            let mut h = theirs.handle();
            h.forget(home(1));
            let tid = h.stop().unwrap();
            theirs.commit(tid).unwrap();
        }
    });
    j.write_runs_home(&[(home(1), 1)]).unwrap();
    patch(&j, home(1), 500, b"of the next owner");
    j.commit_all().unwrap();
    let mut expected = noise(1);
    expected[500..517].copy_from_slice(b"of the next owner");
    assert!(block(&recovered(&d.durable()), home(1).0) == expected);
    no_crash_leaves_damage(&d, &[noise(1), expected]);
}

/// Q3: an image that came into the cache from the log goes when its record is revoked: home never had it.
#[test]
fn what_only_the_log_had_is_no_base_once_it_is_revoked() {
    let d = device();
    let j = ranges(&d);
    put(&j, home(1), &noise(1));
    j.commit_all().unwrap();
    let mut h = j.handle();
    h.forget(home(1));
    h.stop().unwrap();
    // Somebody reads ahead.
    j.load(&[home(1)]).unwrap();
    j.commit_all().unwrap();
    put(&j, home(1), &[&noise(1)[..BS - 4], b"tail"].concat());
    j.commit_all().unwrap();
    let left = d.durable();
    assert!(!plan_of(&left).unwrap().is_damaged());
    assert_eq!(block(&recovered(&left), home(1).0)[BS - 4..], *b"tail");
}

/// Q4: ranges from zeros say so: what lies at home is somebody's old data.
#[test]
fn a_new_block_does_not_shine_through() {
    let d = device();
    d.write(home(1).0 * BS as u64, Arc::new(Buf::copy_of(&noise(3))), Region::Data).unwrap();
    let j = ranges(&d);
    let mut h = j.handle();
    h.put_zeroed(home(1), BS).unwrap()[9] = 1;
    h.stop().unwrap();
    j.commit_all().unwrap();
    assert_eq!(j.stats().range_records, 1);
    let got = block(&recovered(&d.durable()), home(1).0);
    assert!(got[9] == 1 && got.iter().filter(|b| **b != 0).count() == 1);
}

/// Q7: home is not what the ranges were written over: nothing is made up.
#[test]
fn a_home_that_was_changed_is_noticed_and_left_alone() {
    let d = device();
    let j = ranges(&d);
    put(&j, home(1), &noise(1));
    put(&j, home(2), &noise(2));
    j.commit_all().unwrap();
    j.checkpoint_now().unwrap();
    patch(&j, home(1), 10, b"x");
    patch(&j, home(2), 10, b"y");
    j.commit_all().unwrap();
    let mut left = d.durable();
    left.write(home(1).0 * BS as u64 + 700, &[!noise(1)[700]]);
    let plan = plan_of(&left).unwrap();
    assert!(plan.is_damaged() && plan.bad.len() == 1 && plan.bad[0].why == BadReason::Result);
    let after = recovered(&left);
    assert_eq!(block(&after, home(1).0), block(&left, home(1).0));
    assert_eq!(block(&after, home(2).0)[10], b'y');
}

/// The first log blocks of the transactions that are in a log.
fn heads(bytes: &Image) -> Vec<(LogBlock, u32)> {
    let there: Arc<dyn BlockDevice> = Arc::new(PowerLossDevice::from_image(bytes.clone(), PowerLossOptions::default()));
    let log = unrecovered(&there);
    let items: Vec<LogItem> = LogDump::new(&log, Scope::Live).map(Result::unwrap).collect();
    items
        .iter()
        .filter_map(|i| match i {
            LogItem::Transaction { at, head, .. } => Some((*at, head.blocks)),
            _ => None,
        })
        .collect()
}

/// A bad transaction with nothing after it was torn off; with a later one after it, it is damage, which is told.
#[test]
fn a_tear_is_no_damage_and_damage_is_no_tear() {
    let d = device();
    let j = ranges(&d);
    for n in 0..6 {
        put(&j, home(n), &noise(u8::try_from(n).unwrap()));
        put(&j, home(n + 10), &noise(u8::try_from(n + 10).unwrap()));
        j.commit_all().unwrap();
    }
    tears_are_told_from_damage(&d.durable(), 6, |bad| {
        // No number that stands in the log is used again (R10).
        let after = recovered(bad);
        let sb = JournalSuperblock::decode(&block(&after, 0)).unwrap();
        assert!(sb.sequence().after(Tid(10)), "{sb:?}");
        assert!(sb.quire().unwrap().is_none() && sb.start().is_none());
    });
}

/// Damages each block of a log of `transactions`, one at a time.
fn tears_are_told_from_damage(left: &Image, transactions: usize, further: impl Fn(&Image)) {
    let heads = heads(left);
    assert_eq!(heads.len(), transactions);
    for (n, (at, blocks)) in heads.iter().enumerate() {
        for k in 0..*blocks {
            let mut bad = left.clone();
            let byte = u64::from(at.0 + k) * BS as u64 + 100;
            let mut old = [0];
            bad.read(byte, &mut old);
            bad.write(byte, &[old[0] ^ 1]);
            let plan = plan_of(&bad).unwrap();
            assert_eq!(plan.transactions, u32::try_from(n).unwrap(), "a bad block voids its whole transaction (Q2)");
            assert_eq!(plan.failed_commit.is_some(), n + 1 < transactions, "{plan}");
            further(&bad);
        }
    }
}

/// Q10: the superblock allows for a long transaction before any of it is written, and for the usual again when the tail
/// has passed it; within what it says a tear is told from damage at every block.
#[test]
fn no_transaction_is_longer_than_the_superblock_says() {
    let d = device();
    let j = ranges(&d);
    let longest = || JournalSuperblock::decode(&block(&d.durable(), 0)).unwrap().quire().unwrap().unwrap().longest();
    let commit = |homes: u64, seed: u8| {
        for n in 0..homes {
            put(&j, home(n), &noise(seed));
        }
        j.commit_all().unwrap();
    };
    commit(1, 1);
    assert_eq!(longest(), Some(16));
    for (homes, bound) in [(14, 16), (20, 32), (2, 32), (50, 64), (30, 64), (1, 64)] {
        commit(homes, u8::try_from(homes).unwrap());
        assert_eq!(longest(), Some(bound), "after {homes} blocks");
    }
    for (steps, point) in d.recording().unwrap().crash_points() {
        for n in 0..8 {
            let plan = plan_of(&point.crash(n ^ steps << 8).image).unwrap();
            assert!(!plan.is_damaged(), "step {steps}: {plan}");
        }
    }
    let left = d.durable();
    tears_are_told_from_damage(&left, 7, |_| ());
    // A transaction that is longer than the superblock says was never durable there: the superblock is not the log's.
    let mut bad = left.clone();
    let mut sb = JournalSuperblock::decode(&block(&left, 0)).unwrap();
    let signature = sb.quire().unwrap().unwrap();
    sb.set_quire(Some(&signature.with_longest(16)));
    sb.seal();
    bad.write(0, sb.bytes());
    let plan = plan_of(&bad).unwrap();
    assert_eq!((plan.transactions, plan.failed_commit), (2, Some(Tid(7))), "{plan}");
    j.checkpoint_now().unwrap();
    assert_eq!(longest(), Some(16));
    commit(20, 9);
    assert_eq!(longest(), Some(32));
}

/// A large log that holds little is read little: what follows the last transaction is looked for no further than the
/// longest one reaches, and small changes are read once. Who asks what a block will be has the image that was judged.
#[test]
fn recovery_reads_no_more_of_the_log_than_it_needs() {
    const CHANGES: u64 = 4000;
    let blocks = 32 * LOG_BLOCKS;
    let mut bytes = vec![0; BS * usize::try_from(blocks).unwrap()];
    let mut sb = JournalSuperblock::new(BlockSize::K1, blocks, LogBlock(3), [7; 16]);
    sb.seal();
    bytes[2 * BS..2 * BS + sb.bytes().len()].copy_from_slice(sb.bytes());
    let device = Arc::new(Counted::new(MemDevice::new(bytes)));
    let open = || UnrecoveredLog::open(LogGeometry::external(device.clone(), BlockSize::K1, blocks).unwrap()).unwrap();
    let clean = open().into_clean().unwrap_or_else(|_| panic!("an empty log"));
    let (log, _) = clean.into_log(Arc::new(FlushGate::new(device.clone())), true).unwrap();
    let config = JournalConfig::new(BlockSize::K1, Arc::new(SystemClock), 1 << 20);
    let choices = LogChoices::on_device(Record::Range, CommitMode::Checksum);
    let homes: Arc<dyn BlockDevice> = Arc::new(MemDevice::new(vec![0; BS * 64]));
    let j = Journal::with_log(Arc::new(FlushGate::new(homes.clone())), log, JournalConfig { choices, ..config });
    put(&j, BlockNo(1), &noise(1));
    j.commit_all().unwrap();
    let read = |transactions: u64| {
        let before = device.snapshot();
        let log = open().with_home(homes.clone());
        let plan = log.scan(64, &mut |_| {}).unwrap();
        assert_eq!((u64::from(plan.transactions), plan.bad.len()), (transactions, 0));
        let read = || device.snapshot().since(&before).region(Region::Log).reads.bytes;
        let scanned = read();
        let image = log.image(&plan, plan.image_of(BlockNo(1)).unwrap()).unwrap();
        assert_eq!((&image[1007..], read()), (&noise(1)[1007..], scanned));
        scanned
    };
    // The window that holds all of it is read once, for the scan and for the images.
    let behind = read(1);
    assert_eq!(behind, 1 << 20);
    let log_before = device.snapshot();
    for n in 0..CHANGES {
        patch(&j, BlockNo(1), usize::try_from(n % 1000).unwrap(), &n.to_le_bytes());
        j.commit_all().unwrap();
    }
    let written = device.snapshot().since(&log_before).region(Region::Log).writes.bytes;
    let all = read(1 + CHANGES);
    assert!(written >= CHANGES * BS as u64 && all < written * 5 / 4 + behind, "{all} bytes read, {written} written");
}

/// Q1: whatever users write, whole or in pieces, only a transaction's first block begins with the magic; a copy of the
/// log in a file is no log.
#[test]
fn user_data_is_never_taken_for_a_head() {
    for record in [Record::Block, Record::RangeData, Record::Range, Record::Delta] {
        let d = device();
        let j = quire_journal(d.clone(), 1 << 20, record, CommitMode::Checksum);
        let seed = LogSeed::new(&[7; 16]);
        let forged = |tid: u32| {
            let head = Head {
                tid: Tid(tid),
                blocks: 1,
                packed: 0,
                records: 0,
                images: 0,
                epoch: u64::MAX,
                seconds: 0,
                nanoseconds: 0,
            };
            let mut b = noise(7);
            head.seal(seed, &mut b, |sum| sum);
            assert!(Head::decode(seed, BlockSize::K1, &b).is_some());
            b
        };
        // Heads of transactions to come, whole and at every place of packed bytes.
        for n in 0..40u64 {
            put(&j, home(n % 20), &forged(7 + u32::try_from(n).unwrap()));
            let mut shifted = noise(2);
            let at = usize::try_from(n * 13 % 900).unwrap();
            shifted[at..at + 100].copy_from_slice(&forged(8)[..100]);
            put(&j, home(20 + n % 20), &shifted);
            let mut zeros = vec![0; BS];
            zeros[at..at + 70].copy_from_slice(&forged(8)[..70]);
            put(&j, home(40 + n % 20), &zeros);
            j.commit_all().unwrap();
        }
        let left = d.durable();
        let heads = heads(&left);
        assert_eq!(heads.len(), 40);
        let end = heads.last().map(|(at, n)| at.0 + n).unwrap();
        let with_magic: Vec<u32> =
            (1..end).filter(|n| block(&left, u64::from(*n)).starts_with(&[0xC0, 0x3B, 0x39, 0x98])).collect();
        assert_eq!(with_magic, heads.iter().map(|(at, _)| at.0).collect::<Vec<_>>(), "{record:?}");
        assert_eq!(plan_of(&left).unwrap().transactions, 40);
    }
}

/// R3, R4: whatever the log says with checksums that match, recovery gives typed errors, ends, and stays inside.
#[test]
fn a_hostile_quire_log_neither_hangs_nor_writes() {
    let d = device();
    let j = quire_journal(d.clone(), 1 << 20, Record::Delta, CommitMode::Checksum);
    for n in 0..8 {
        put(&j, home(n), &noise(1));
        j.commit_all().unwrap();
        patch(&j, home(n), 9, b"delta");
        j.commit_all().unwrap();
    }
    let left = d.durable();
    let seed = LogSeed::new(&[7; 16]);
    let mut refused = 0;
    for (at, blocks) in heads(&left) {
        let start = u64::from(at.0);
        let good: Vec<u8> = (0..u64::from(blocks)).flat_map(|k| block(&left, start + k)).collect();
        let (head, _) = Head::decode(seed, BlockSize::K1, &good).unwrap();
        let packed = usize::try_from(head.packed).unwrap();
        for byte in 64..64 + packed.min(80) {
            for value in [0, 1, 3, 5, 0x7F, 0xFF] {
                let mut bytes = good.clone();
                bytes[byte] = value;
                let (first, rest) = bytes.split_at_mut(BS);
                head.seal(seed, first, |sum| rest.chunks(BS).fold(sum, crc32c));
                let mut bad = left.clone();
                bad.write(start * BS as u64, &bytes);
                match plan_of(&bad) {
                    Ok(plan) => drop(plan),
                    Err(Error::Corrupt(_)) => refused += 1,
                    Err(e) => panic!("{e}"),
                }
            }
        }
    }
    assert!(refused > 100, "{refused}");
}

/// A transaction that no log can hold is refused before anything of it is written, and a log on plain memory works the
/// same.
#[test]
fn the_superblock_says_whose_log_it_is_only_while_it_holds_something() {
    let d: Arc<MemDevice> = Arc::new(MemDevice::new(image(Tid(5))));
    let j = quire_journal(d.clone(), 1 << 20, Record::Range, CommitMode::Barrier);
    let sb = |d: &MemDevice| JournalSuperblock::decode(&d.snapshot()[..BS]).unwrap();
    assert!(sb(&d).quire().unwrap().is_none());
    put(&j, home(1), &noise(1));
    j.commit_all().unwrap();
    assert!(sb(&d).quire().unwrap().is_some() && sb(&d).start().is_some());
    j.empty_log().unwrap();
    assert!(sb(&d).quire().unwrap().is_none() && sb(&d).start().is_none());
    put(&j, home(1), &noise(2));
    j.commit_all().unwrap();
    assert!(sb(&d).quire().unwrap().is_some());
}

/// The log on a device of its own: data and bases are on the other one.
#[test]
fn a_log_on_another_device_works_the_same() {
    for by in [CommitMode::Checksum, CommitMode::Barrier] {
        let blocks = usize::try_from(HOMES).unwrap() + usize::try_from(LOG_BLOCKS).unwrap();
        let fs = Arc::new(PowerLossDevice::from_bytes(&vec![0; blocks * BS]));
        let mut bytes = vec![0; BS * usize::try_from(LOG_BLOCKS).unwrap()];
        let mut sb = JournalSuperblock::new(BlockSize::K1, LOG_BLOCKS, LogBlock(3), [7; 16]);
        sb.seal();
        bytes[2 * BS..2 * BS + sb.bytes().len()].copy_from_slice(sb.bytes());
        let log_device = Arc::new(PowerLossDevice::from_bytes(&bytes));
        let open = |log: &Arc<PowerLossDevice>, fs: &Arc<PowerLossDevice>| {
            let geometry = LogGeometry::external(log.clone(), BlockSize::K1, LOG_BLOCKS).unwrap();
            UnrecoveredLog::open(geometry).unwrap().with_home(fs.clone())
        };
        let clean = open(&log_device, &fs).into_clean().unwrap_or_else(|_| panic!("an empty log"));
        let (log, _) = clean.into_log(Arc::new(FlushGate::new(log_device.clone())), true).unwrap();
        let config = JournalConfig::new(BlockSize::K1, Arc::new(SystemClock), 1 << 20);
        let choices = LogChoices::on_device(Record::Range, by);
        let j = Journal::with_log(Arc::new(FlushGate::new(fs.clone())), log, JournalConfig { choices, ..config });
        put(&j, home(1), &noise(1));
        j.commit_all().unwrap();
        j.checkpoint_now().unwrap();
        patch(&j, home(1), 5, b"over home");
        fs.write(home(2).0 * BS as u64, Arc::new(Buf::copy_of(&noise(2))), Region::Data).unwrap();
        j.written_in_place([(home(2), 1)]);
        let mut h = j.handle();
        h.after_data(j.gate().stamp());
        h.put(home(3), Arc::new(Buf::copy_of(&noise(3)))).unwrap();
        h.stop().unwrap();
        j.commit_all().unwrap();
        let left =
            |d: &PowerLossDevice| Arc::new(PowerLossDevice::from_image(d.durable(), PowerLossOptions::default()));
        let (fs, log_device) = (left(&fs), left(&log_device));
        let log = open(&log_device, &fs);
        let plan = log.scan(blocks as u64, &mut |_| {}).unwrap();
        assert!(!plan.is_damaged() && plan.transactions == 1, "{plan}");
        let there: Arc<dyn BlockDevice> = fs.clone();
        log.replay(plan, &there, None, &mut |_| {}).unwrap();
        let after = fs.durable();
        assert_eq!(block(&after, home(1).0)[5..14], *b"over home");
        assert!(block(&after, home(2).0) == noise(2), "data that the transaction names was durable first (Q5)");
        assert!(block(&after, home(3).0) == noise(3));
    }
}
