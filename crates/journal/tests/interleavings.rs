//! Cache, commit and checkpoint under explored interleavings of threads:
//! `cargo test -p quire-journal --features shuttle --test interleavings`.
//!
//! Every scenario also shows that nobody waits for ever: a deadlock is a failure.

#[path = "it/durability/setup.rs"]
#[allow(dead_code)]
mod setup;

use quire_device::sync::{Arc, Mutex, lock, thread};
use quire_device::{BlockDevice, Buf, Io, Region};
use quire_journal::{Checkpoint, Journal, Lead, LogChoices, Record};
use quire_layout::Tid;
use quire_layout::jbd2::{BlockKind, Header};
#[cfg(feature = "mutants")]
use quire_testkit::interleave::finds;
use quire_testkit::interleave::{below, explore};
use quire_testkit::{Image, NvramModel, PowerLossDevice, PowerLossOptions};
use setup::{BS, HOMES, Hooked, LOG_BLOCKS, home, image, journal, nvram_journal, put, recover, unrecovered};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

const FIRST: Tid = Tid(5);

fn device() -> Arc<PowerLossDevice> {
    static EMPTY: OnceLock<Image> = OnceLock::new();
    let image = EMPTY.get_or_init(|| Image::from_bytes(&image(FIRST)));
    Arc::new(PowerLossDevice::from_image(image.clone(), PowerLossOptions::default()))
}

/// A journal whose memory is so small that images are evicted and checkpointed.
fn small(d: &Arc<PowerLossDevice>) -> Arc<Journal> {
    Arc::new(journal(d.clone(), 1 << 10))
}

fn byte(image: &Image, n: u64) -> u8 {
    let mut b = [0];
    image.read(home(n).0 * BS as u64, &mut b);
    b[0]
}

fn recovered(image: Image) -> Image {
    let device = Arc::new(PowerLossDevice::from_image(image, PowerLossOptions::default()));
    let there: Arc<dyn BlockDevice> = device.clone();
    recover(&there);
    device.live()
}

/// Two homes that always change together.
fn put_both(j: &Journal, n: u64, fill: u8) -> Option<Tid> {
    let mut h = j.handle();
    for b in [home(n), home(n + 16)] {
        h.put_zeroed(b, BS).ok()?.fill(fill);
    }
    h.stop().ok()
}

/// Makes the cache forget the homes: more than it takes is loaded.
fn crowd_out(j: &Journal) {
    let others: Vec<_> = (0..80).map(quire_layout::BlockNo).collect();
    j.load(&others).unwrap();
}

fn join(threads: Vec<thread::JoinHandle<()>>) {
    threads.into_iter().for_each(|t| t.join().unwrap());
}

/// J10, J4, F15's half: threads commit while another checkpoints and the power goes at any step. What was acknowledged
/// is recovered, and an operation whole or not at all.
fn power_goes() {
    let d = device();
    let j = small(&d);
    let acknowledged: Arc<Mutex<[u8; 3]>> = Arc::default();
    d.cut_at(d.steps() + 2 + below(30));
    let mut threads: Vec<_> = (0..3u8)
        .map(|n| {
            let (j, acknowledged) = (j.clone(), acknowledged.clone());
            thread::spawn(move || {
                for fill in 1..=3 {
                    let Some(tid) = put_both(&j, u64::from(n), fill) else { return };
                    match j.commit(tid) {
                        Ok(()) => lock(&acknowledged)[usize::from(n)] = fill,
                        Err(_) => return,
                    }
                }
            })
        })
        .collect();
    threads.push(thread::spawn(move || while j.checkpoint_now().is_ok() && below(3) > 0 {}));
    join(threads);
    let after = recovered(d.crash(below(1 << 20)).image);
    for n in 0..3 {
        let (a, b) = (byte(&after, n), byte(&after, n + 16));
        let least = lock(&acknowledged)[usize::try_from(n).unwrap()];
        assert!(a == b && a >= least, "home {n} is {a}, its twin {b}; {least} was acknowledged");
    }
}

#[test]
fn what_was_committed_is_durable_wherever_the_power_goes() {
    explore(3000, power_goes);
}

/// L3: the log is emptied while threads commit. What was committed before the power goes is recovered.
fn empties() {
    let d = device();
    let j = small(&d);
    let acknowledged: Arc<Mutex<[u8; 2]>> = Arc::default();
    let mut threads: Vec<_> = (0..2u8)
        .map(|n| {
            let (j, acknowledged) = (j.clone(), acknowledged.clone());
            thread::spawn(move || {
                for fill in 1..=2 {
                    let tid = put_both(&j, u64::from(n), fill).expect("a sound journal");
                    j.commit(tid).expect("a sound device");
                    lock(&acknowledged)[usize::from(n)] = fill;
                }
            })
        })
        .collect();
    threads.push(thread::spawn(move || drop(j.empty_log().expect("a sound device"))));
    join(threads);
    let after = recovered(d.crash(below(1 << 20)).image);
    for n in 0..2 {
        let least = lock(&acknowledged)[usize::try_from(n).unwrap()];
        assert_eq!((byte(&after, n), byte(&after, n + 16)), (least, least), "home {n}");
    }
}

#[test]
fn a_commit_beside_empty_log_is_not_lost() {
    explore(3000, empties);
}

/// J3, J2: whatever loads, commits, checkpoints and evictions overlap, what memory shows of a block is what was last
/// put there.
fn loads() {
    let rounds: Arc<AtomicUsize> = Arc::default();
    let late = LateReads { inner: Shared(device()), rounds: rounds.clone() };
    let j = Arc::new(journal(Arc::new(late), 1 << 10));
    // Changed under the same lock as the block: that of the handle.
    let newest = Arc::new(Mutex::new(0u8));
    let (writer, told) = (j.clone(), newest.clone());
    let write = thread::spawn(move || {
        for fill in 1..=3 {
            let mut h = writer.handle();
            h.put_zeroed(home(0), BS).unwrap().fill(fill);
            *lock(&told) = fill;
            let tid = h.stop().unwrap();
            writer.commit(tid).unwrap();
            writer.checkpoint_now().unwrap();
            crowd_out(&writer);
            rounds.fetch_add(1, Ordering::Relaxed);
        }
    });
    let readers = (0..2).map(|_| {
        let (j, newest) = (j.clone(), newest.clone());
        thread::spawn(move || {
            for _ in 0..3 {
                j.load(&[home(0)]).unwrap();
                let mut h = j.handle();
                let Some(image) = h.read(home(0)) else { continue };
                assert_eq!(image[0], *lock(&newest));
            }
        })
    });
    let readers: Vec<_> = readers.collect();
    join(readers);
    write.join().unwrap();
}

#[test]
fn a_load_never_shows_what_is_old() {
    explore(3000, loads);
}

/// J9, F9: a block is journaled, freed, and then another owner's, who writes it in place as soon as he may, while
/// checkpoints and commits of others go on. His bytes stay, also after a crash.
fn reuse() {
    let d = device();
    // Home writes take their time.
    let slow = Arc::new(Hooked::new(Shared(d.clone())));
    slow.hook(|io| {
        if matches!(io, Io::Write { region: Region::Metadata, .. }) {
            (0..below(100)).for_each(|_| thread::yield_now());
        }
    });
    let j = Arc::new(journal(slow, 1 << 10));
    let tid = put(&j, home(0), 1);
    j.commit(tid).unwrap();
    let (owner, disk) = (j.clone(), d.clone());
    let owns = thread::spawn(move || {
        put(&owner, home(0), 2);
        let mut h = owner.handle();
        h.forget(home(0));
        h.put_zeroed(home(1), BS).unwrap();
        let freed = h.stop().unwrap();
        if below(2) == 0 {
            owner.make_reusable(freed).unwrap();
        } else {
            while !owner.reusable().at_or_after(freed) {
                owner.commit(freed).unwrap();
                thread::yield_now();
            }
        }
        disk.write(home(0).0 * BS as u64, Arc::new(Buf::copy_of(&[9; BS])), Region::Data).unwrap();
        owner.written_in_place([(home(0), 1)]);
        owner.gate().flush().unwrap();
    });
    let checkpoints = j.clone();
    let checkpoint = thread::spawn(move || {
        for _ in 0..3 {
            checkpoints.checkpoint_now().unwrap();
        }
    });
    let other = thread::spawn(move || {
        for fill in 1..3 {
            let tid = put(&j, home(2), fill);
            j.commit(tid).unwrap();
        }
    });
    join(vec![owns, checkpoint, other]);
    assert_eq!(byte(&d.live(), 0), 9);
    assert_eq!(byte(&recovered(d.crash(below(1 << 20)).image), 0), 9);
}

#[test]
fn a_freed_block_is_its_next_owners() {
    explore(3000, reuse);
}

/// Q6, V6, J15: checkpoints of everything beside commits of deltas, in a log in NVRAM with regions. After a crash no
/// chain lacks its beginning.
fn chains() {
    const FS: [u8; 16] = [9; 16];
    let (d, memory) = (device(), Arc::new(NvramModel::new(vec![0; 96 << 10])));
    let choices = LogChoices::in_nvram(Record::Delta, Checkpoint::Regions(2));
    let j = Arc::new(nvram_journal(d.clone(), memory.clone(), FS, choices));
    let theirs = j.clone();
    let commits = thread::spawn(move || {
        for fill in 1..=3 {
            let tid = put(&theirs, home(0), fill);
            theirs.commit(tid).unwrap();
        }
    });
    let checkpoints = thread::spawn(move || (0..2).for_each(|_| j.checkpoint_now().unwrap()));
    join(vec![commits, checkpoints]);
    let seed = below(1 << 20);
    let left = Arc::new(PowerLossDevice::from_image(d.crash(seed).image, PowerLossOptions::default()));
    let there: Arc<dyn BlockDevice> = left.clone();
    let stored = Arc::new(NvramModel::new(memory.crash_point().crash(seed)));
    let log = unrecovered(&there).with_nvram(Some(stored), FS);
    let plan = log.scan(u64::from(LOG_BLOCKS) + HOMES, &mut |_| {}).unwrap();
    assert!(!plan.is_damaged(), "{plan}");
    log.replay(plan, &there, None, &mut |_| {}).unwrap();
    assert_eq!(byte(&left.live(), 0), 3);
}

#[test]
fn a_checkpoint_beside_commits_of_deltas_leaves_no_chain_without_its_beginning() {
    explore(1000, chains);
}

/// J15: what was committed before a checkpoint of everything is at home after it, as it was or newer, also where a
/// commit beside it has the block again.
fn everything() {
    let d = device();
    let j = Arc::new(journal(Arc::new(Shared(d.clone())), 1 << 20));
    let tid = put(&j, home(0), 1);
    j.commit(tid).unwrap();
    let beside = {
        let j = j.clone();
        thread::spawn(move || {
            let tid = put(&j, home(0), 2);
            j.commit(tid).unwrap();
        })
    };
    j.checkpoint_now().unwrap();
    assert!(byte(&d.live(), 0) >= 1, "it is not at home");
    beside.join().unwrap();
}

#[test]
fn a_checkpoint_of_everything_leaves_no_block_to_a_later_commit() {
    explore(1000, everything);
}

/// J6: whoever commits, nothing of a transaction is written before the commit block of the one before.
fn serial() {
    let d = device();
    let hooked = Arc::new(Hooked::new(Shared(d)));
    let order: Arc<Mutex<Vec<_>>> = Arc::default();
    let out = order.clone();
    hooked.hook(move |io| {
        if let Io::Write { region: Region::Log, data, .. } = io {
            lock(&out).extend(data.iter().filter_map(|b| Header::decode(b)).map(|h| (h.tid, h.kind)));
        }
    });
    let j = Arc::new(journal(hooked, 1 << 20));
    let commit = |n: u64| {
        let j = j.clone();
        thread::spawn(move || {
            for fill in 1..3 {
                let tid = put(&j, home(n), fill);
                j.commit(tid).unwrap();
                assert!(j.durable().at_or_after(tid));
            }
        })
    };
    join((0..3).map(commit).collect());
    let mut next = FIRST;
    for (tid, kind) in lock(&order).iter() {
        assert_eq!(*tid, next);
        if *kind == BlockKind::Commit {
            next = next.next();
        }
    }
    assert_eq!(j.durable().next(), next);
}

#[test]
fn commits_are_serial() {
    explore(2000, serial);
}

/// J5, J1: one write or flush fails while three threads commit: whoever was told success has it on disk, nobody
/// succeeds later, and holds on the transaction end without anybody waiting for ever.
fn failure() {
    use quire_device::{ErrorKind, IoOp};
    use quire_testkit::{Fault, FaultKind, Faulty};
    let d = device();
    let faulty = Arc::new(Faulty::new(Shared(d.clone())));
    let j = Arc::new(journal(faulty.clone(), 1 << 10));
    let op = if below(2) == 0 { IoOp::Write } else { IoOp::Flush };
    faulty.inject(Fault::once(op, FaultKind::Error(ErrorKind::Io)).after(below(8)));
    let acknowledged: Arc<Mutex<[u8; 3]>> = Arc::default();
    let commit = |n: u8| {
        let (j, acknowledged) = (j.clone(), acknowledged.clone());
        thread::spawn(move || {
            for fill in 1..=3 {
                let hold = (below(3) == 0).then(|| j.hold());
                let put = put_both(&j, u64::from(n), fill);
                drop(hold);
                let Some(tid) = put else { return };
                let failed_before = j.failure().is_some();
                match j.commit(tid) {
                    Ok(()) => {
                        assert!(!failed_before || j.durable().at_or_after(tid));
                        lock(&acknowledged)[usize::from(n)] = fill;
                    }
                    Err(_) => return,
                }
            }
        })
    };
    join((0..3).map(commit).collect());
    if j.failure().is_some() {
        assert!(put_both(&j, 5, 1).is_none() && j.commit(j.running()).is_err());
    }
    let after = recovered(d.crash(below(1 << 20)).image);
    for n in 0..3 {
        let least = lock(&acknowledged)[usize::try_from(n).unwrap()];
        assert!(byte(&after, n) >= least, "home {n}: {least} was acknowledged");
        assert_eq!(byte(&after, n), byte(&after, n + 16));
    }
}

#[test]
fn a_failure_is_final_for_all() {
    explore(3000, failure);
}

/// J12: callers that give up their threads beside callers that wait and one who empties the log; in half of the
/// schedules a device operation fails. Each suspended caller is told once; success means durable.
fn suspended() {
    use quire_device::{ErrorKind, IoOp};
    use quire_journal::Need;
    use quire_testkit::{Fault, FaultKind, Faulty};
    let d = device();
    let faulty = Arc::new(Faulty::new(Shared(d.clone())));
    let j = Arc::new(journal(faulty.clone(), 1 << 10));
    if below(2) == 0 {
        let op = if below(2) == 0 { IoOp::Write } else { IoOp::Flush };
        faulty.inject(Fault::once(op, FaultKind::Error(ErrorKind::Io)).after(below(8)));
    }
    let told: Arc<Mutex<[u32; 6]>> = Arc::default();
    let caller = |n: u8| {
        let (j, told) = (j.clone(), told.clone());
        thread::spawn(move || {
            for round in 0..2 {
                let Some(tid) = put_both(&j, u64::from(n), round + 1) else {
                    (round..2).for_each(|r| lock(&told)[usize::from(n * 2 + r)] += 1);
                    return;
                };
                // The data of a caller that wrote in place, too.
                let need = Need { tid: (below(4) > 0).then_some(tid), data: Some(j.gate().stamp()) };
                let (theirs, told) = (j.clone(), told.clone());
                let then = move |outcome: Result<(), _>| {
                    let durable = need.tid.is_none_or(|t| theirs.durable().at_or_after(t));
                    assert!(outcome.is_err() || durable && theirs.gate().is_durable(need.data.unwrap()));
                    if outcome.is_err() {
                        // As the file system does when it notes an error.
                        theirs.commit_all().ok();
                    }
                    lock(&told)[usize::from(n * 2 + round)] += 1;
                };
                let lead = if below(2) == 0 { Lead::Once } else { Lead::UntilNobodyWaits };
                j.sync_then(need, lead, Box::new(then));
            }
        })
    };
    let mut threads: Vec<_> = (0..3).map(caller).collect();
    let theirs = j.clone();
    threads.push(thread::spawn(move || {
        if let Some(tid) = put_both(&theirs, 5, 1) {
            theirs.commit(tid).ok();
        }
        theirs.empty_log().ok();
    }));
    join(threads);
    assert_eq!(*lock(&told), [1; 6]);
}

#[test]
fn suspended_callers_are_told_once() {
    explore(1500, suspended);
}

/// A device that others hold, too.
struct Shared(Arc<PowerLossDevice>);

impl BlockDevice for Shared {
    fn info(&self) -> quire_device::DeviceInfo {
        self.0.info()
    }
    fn submit(&self, batch: Vec<Io>) -> quire_device::Ticket {
        self.0.submit(batch)
    }
    fn wait(&self, ticket: quire_device::Ticket) -> Result<quire_device::Done, quire_device::DeviceError> {
        self.0.wait(ticket)
    }
}

/// A device on which half of the reads of `home(0)` are answered only after its writer's next round: a whole commit,
/// checkpoint and eviction of what they have read. They wait for no longer than `PATIENCE` turns, since the writer may
/// wait for them or may have ended.
struct LateReads {
    inner: Shared,
    rounds: Arc<AtomicUsize>,
}

impl LateReads {
    const PATIENCE: usize = 1000;
}

impl BlockDevice for LateReads {
    fn info(&self) -> quire_device::DeviceInfo {
        self.inner.info()
    }
    fn submit(&self, batch: Vec<Io>) -> quire_device::Ticket {
        let of_home = |io: &Io| matches!(io, Io::Read { .. }) && io.range().0 == home(0).0 * BS as u64;
        let late = batch.iter().any(of_home) && below(2) == 0;
        let ticket = self.inner.submit(batch);
        if late {
            let now = || self.rounds.load(Ordering::Relaxed);
            let before = now();
            (0..Self::PATIENCE).take_while(|_| now() == before).for_each(|_| thread::yield_now());
        }
        ticket
    }
    fn wait(&self, ticket: quire_device::Ticket) -> Result<quire_device::Done, quire_device::DeviceError> {
        self.inner.wait(ticket)
    }
}

/// Engines that are broken where only threads show it are found.
#[cfg(feature = "mutants")]
#[test]
fn every_mutant_of_threads_is_found() {
    use quire_device::Mutant;
    let scenarios: [(Mutant, fn()); 6] = [
        (Mutant::CommitsOverlap, serial),
        (Mutant::StaleLoadKept, loads),
        (Mutant::ReusedUnderCheckpoint, reuse),
        (Mutant::FailureForgotten, failure),
        (Mutant::LogEmptiedBesideCommits, empties),
        (Mutant::SuspendedForgotten, suspended),
    ];
    assert!(Mutant::OF_THREADS.iter().all(|m| scenarios.iter().any(|(s, _)| s == m)));
    for (mutant, scenario) in scenarios {
        // Threads are coroutines of this one here.
        Mutant::set(Some(mutant));
        // It ends with the first schedule that shows it.
        let found = finds(200_000, scenario);
        Mutant::set(None);
        assert!(found, "{mutant:?} is not found");
    }
}
