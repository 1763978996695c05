//! Loads, commits and checkpoints that overlap, in orders that the device dictates.

use super::setup::{BS, Hooked, home, image, journal, put};
use quire_device::sync::atomic::{AtomicBool, Ordering};
use quire_device::sync::{Arc, Mutex, lock, thread};
use quire_device::{BlockDevice, Buf, Io, Region};
use quire_journal::Journal;
use quire_layout::Tid;
use quire_layout::jbd2::{BlockKind, Header};
use quire_testkit::MemDevice;
use std::sync::mpsc;
use std::time::Duration;

fn device() -> Arc<Hooked<MemDevice>> {
    Arc::new(Hooked::new(MemDevice::new(image(Tid(5)))))
}

fn is_read_of_homes(io: &Io) -> bool {
    matches!(io, Io::Read { region: Region::Metadata, .. })
}

/// A device whose reads come back late: what was read is handed over after `then` has run.
struct LateReads {
    inner: Arc<Hooked<MemDevice>>,
    then: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl BlockDevice for LateReads {
    fn info(&self) -> quire_device::DeviceInfo {
        self.inner.info()
    }
    fn submit(&self, batch: Vec<Io>) -> quire_device::Ticket {
        let late = batch.iter().any(is_read_of_homes);
        let ticket = self.inner.submit(batch);
        let then = if late { lock(&self.then).take() } else { None };
        if let Some(then) = then {
            then();
        }
        ticket
    }
    fn wait(&self, ticket: quire_device::Ticket) -> Result<quire_device::Done, quire_device::DeviceError> {
        self.inner.wait(ticket)
    }
}

/// Loads block 0 of the homes while `meanwhile` happens between the read and its end; the byte that is then in memory.
fn load_during(meanwhile: impl FnOnce(&Journal, &dyn BlockDevice) + Send + 'static) -> u8 {
    let late = Arc::new(LateReads { inner: device(), then: Mutex::new(None) });
    let j = Arc::new(journal(late.clone(), 1 << 10));
    let (theirs, disk) = (j.clone(), late.inner.clone());
    *lock(&late.then) = Some(Box::new(move || meanwhile(&theirs, &*disk)));
    j.load(&[home(0)]).unwrap();
    let got = j.handle().read(home(0)).map(|image| image[0]);
    got.expect("a load brings the block")
}

/// Makes the cache forget the homes: more than it takes is loaded, several times.
fn crowd_out(j: &Journal) {
    let others: Vec<_> = (0..300).map(quire_layout::BlockNo).collect();
    for _ in 0..3 {
        j.load(&others).unwrap();
    }
}

/// J3: the block is changed, committed, written home and evicted while a load is on its way with the old bytes.
#[test]
fn a_load_that_a_checkpoint_overtook_is_done_again_j3() {
    let got = load_during(|j, _| {
        put(j, home(0), 7);
        j.commit_all().unwrap();
        j.empty_log().unwrap();
        crowd_out(j);
    });
    assert_eq!(got, 7);
}

/// J3: as file data, the block was written past the journal while a load (a readahead, or of an owner before) was on
/// its way.
#[test]
fn a_load_that_a_write_in_place_overtook_is_done_again_j3() {
    let got = load_during(|j, disk| {
        disk.write(home(0).0 * BS as u64, Arc::new(Buf::copy_of(&[8; BS])), Region::Data).unwrap();
        j.written_in_place([(home(0), 1)]);
    });
    assert_eq!(got, 8);
}

/// J3: what the log holds is newer than home.
#[test]
fn a_load_never_hides_what_is_live_j3() {
    let got = load_during(|j, _| {
        put(j, home(0), 9);
        j.commit_all().unwrap();
        crowd_out(j);
    });
    assert_eq!(got, 9);
}

/// J3, Q3: a block is changed, written home by a checkpoint and freed meanwhile, all while a load is on its way with
/// the old bytes. They are not what lies at home when the checkpoint ends.
#[test]
fn a_load_that_ends_while_its_block_is_freed_and_written_home_leaves_nothing_j3() {
    for by_checkpoint in [true, false] {
        let d = device();
        let j = Arc::new(journal(d.clone(), 1 << 10));
        let load = j.begin_load(&[home(0)]).unwrap();
        for n in 0..4 {
            put(&j, home(n), 7);
        }
        j.commit_all().unwrap();
        let (theirs, on_its_way) = (j.clone(), Mutex::new(Some(load)));
        d.hook(move |io| {
            let goes_home = matches!(io, Io::Write { region: Region::Metadata, .. });
            let Some(load) = lock(&on_its_way).take_if(|_| goes_home) else { return };
            let mut h = theirs.handle();
            h.forget(home(0));
            let tid = h.stop().unwrap();
            theirs.commit(tid).unwrap();
            assert!(theirs.end_load(load, &[vec![0; BS]]).is_none(), "nothing has been written home yet");
        });
        if by_checkpoint {
            assert!(j.checkpoint_step().unwrap());
        } else {
            j.write_runs_home(&[(home(0), 1)]).unwrap();
        }
        let kept = j.handle().read(home(0)).map(|image| image[0]);
        assert!(kept.is_none_or(|byte| byte == 7), "memory has {kept:?}, home 7");
    }
}

/// J9: a block is freed, and its freeing durable, while a checkpoint writes an old image of it home.
#[test]
fn a_block_that_a_checkpoint_writes_is_not_reusable_j9() {
    let d = device();
    let j = Arc::new(journal(d.clone(), 1 << 10));
    for n in 0..4 {
        put(&j, home(n), 1);
    }
    j.commit_all().unwrap();
    let first = j.durable();
    let (theirs, seen) = (j.clone(), Arc::new(Mutex::new(None)));
    let out = seen.clone();
    d.hook(move |io| {
        if matches!(io, Io::Write { region: Region::Metadata, .. }) {
            let mut h = theirs.handle();
            h.forget(home(0));
            let tid = h.stop().unwrap();
            theirs.commit(tid).unwrap();
            *lock(&out) = Some((tid, theirs.durable(), theirs.reusable()));
        }
    });
    assert!(j.checkpoint_step().unwrap());
    let (tid, durable, reusable) = lock(&seen).expect("a home was written");
    assert_eq!((durable, reusable), (tid, first));
    assert_eq!(j.reusable(), tid);
    // And not before the freeing is durable.
    let mut h = j.handle();
    h.forget(home(1));
    h.put_zeroed(home(2), BS).unwrap();
    let tid = h.stop().unwrap();
    assert!(tid.after(j.reusable()));
    j.make_reusable(tid).unwrap();
    assert_eq!(j.reusable(), tid);
}

/// J6: whoever commits, nothing of a transaction is written before the commit block of the one before.
#[test]
fn commits_are_serial_j6() {
    let d = device();
    let order = Arc::new(Mutex::new(Vec::new()));
    let out = order.clone();
    d.hook(move |io| {
        if let Io::Write { region: Region::Log, data, .. } = io {
            let headers = data.iter().filter_map(|b| Header::decode(b));
            lock(&out).extend(headers.map(|h| (h.tid, h.kind)));
        }
    });
    let j = Arc::new(journal(d, 1 << 20));
    let threads: Vec<_> = (0..6u8)
        .map(|n| {
            let j = j.clone();
            thread::spawn(move || {
                for i in 0..40 {
                    let tid = put(&j, home(u64::from(n)), i);
                    j.commit(tid).unwrap();
                    assert!(j.durable().at_or_after(tid));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    let order = lock(&order);
    let mut next = order[0].0;
    for (tid, kind) in order.iter() {
        assert_eq!(*tid, next);
        if *kind == BlockKind::Commit {
            next = next.next();
        }
    }
    assert!(order.len() > 80 && j.durable().next() == next);
}

/// Who lets a commit pass waits until it is written, and for nothing else: not for a commit that has yet to wait for a
/// hold.
#[test]
fn a_commit_that_is_being_written_is_let_pass() {
    let d = device();
    let j = Arc::new(journal(d.clone(), 1 << 20));
    j.await_commit_in_flight();
    let (theirs, passed) = (j.clone(), Arc::new(AtomicBool::new(false)));
    let (out, waiter) = (passed.clone(), Arc::new(Mutex::new(None)));
    let slot = waiter.clone();
    d.hook(move |io| {
        if matches!(io, Io::Write { region: Region::Log, .. }) && lock(&slot).is_none() {
            let (j, passed) = (theirs.clone(), out.clone());
            *lock(&slot) = Some(thread::spawn(move || {
                j.await_commit_in_flight();
                passed.store(true, Ordering::SeqCst);
            }));
            thread::sleep(Duration::from_millis(50));
            assert!(!out.load(Ordering::SeqCst), "it did not wait");
        }
    });
    let tid = put(&j, home(0), 1);
    let hold = j.hold();
    let commits = {
        let j = j.clone();
        thread::spawn(move || j.commit(tid).unwrap())
    };
    thread::sleep(Duration::from_millis(50));
    let (done, is_done) = mpsc::channel();
    let other = j.clone();
    thread::spawn(move || {
        other.await_commit_in_flight();
        done.send(()).ok();
    });
    is_done.recv_timeout(Duration::from_secs(10)).expect("it does not wait for a hold");
    drop(hold);
    commits.join().unwrap();
    lock(&waiter).take().expect("the log was written").join().unwrap();
    assert!(passed.load(Ordering::SeqCst));
}

/// A block that the running transaction only forgets takes no room in it: a handle of many such fits.
#[test]
fn forgotten_blocks_take_no_room() {
    let d = device();
    let j = journal(d, 1 << 20);
    // Live blocks, more than a transaction may hold, at homes that nobody looks at.
    let far = |n: u64| quire_layout::BlockNo(1_000_000 + n);
    let many = j.limit() as u64 * 2;
    for n in 0..many {
        put_until_it_fits(&j, far(n));
    }
    j.commit_all().unwrap();
    for n in 0..j.limit() as u64 {
        put(&j, home(n % 4), 1);
        put_until_it_fits(&j, far(many + n));
    }
    let mut h = j.handle();
    (0..many).for_each(|n| h.forget(far(n)));
    h.put_zeroed(home(5), BS).unwrap();
    match h.stop() {
        Ok(_) => {}
        Err(full) => assert!(!full.never_fits, "{full:?}"),
    }
}

fn put_until_it_fits(j: &Journal, b: quire_layout::BlockNo) {
    loop {
        let mut h = j.handle();
        h.put_zeroed(b, BS).unwrap();
        match h.stop() {
            Ok(_) => return,
            Err(full) => assert!(!full.never_fits),
        }
        j.commit_all().unwrap();
    }
}
