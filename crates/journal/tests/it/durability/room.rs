//! Room in the log: the background makes it before a commit has to, and a commit that waits for it takes what was made.

use super::setup::{Hooked, LOG_BLOCKS, home, image, journal, put};
use quire_device::sync::atomic::{AtomicUsize, Ordering};
use quire_device::sync::{Arc, Mutex, lock, thread};
use quire_device::{Io, Region};
use quire_journal::Journal;
use quire_layout::Tid;
use quire_testkit::MemDevice;
use std::time::Duration;

fn device() -> Arc<Hooked<MemDevice>> {
    Arc::new(Hooked::new(MemDevice::new(image(Tid(5)))))
}

/// One transaction, durable; returns how many blocks of the log are in use.
fn commit_one(j: &Journal, fill: u8) -> u64 {
    put(j, home(u64::from(fill % 32)), fill);
    j.commit_all().unwrap();
    j.stats().log_used
}

#[test]
fn a_commit_wakes_the_background_while_half_of_the_log_is_in_use() {
    let j = journal(device(), 1 << 20);
    let woken = Arc::new(AtomicUsize::new(0));
    let count = woken.clone();
    j.on_work(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let mut commits_since = 0;
    for fill in 0..200 {
        let used = commit_one(&j, fill);
        commits_since += usize::from(used > j.stats().log_capacity / 2);
        assert_eq!(woken.load(Ordering::SeqCst), commits_since, "{used} blocks in use");
    }
    assert!(commits_since > 10);
    assert!(j.checkpoint_step().unwrap(), "it finds work");
    assert_eq!(j.latencies().checkpoint_stall.count(), 0);
}

/// A commit that waits for room while the background makes it does not write more home by itself.
#[test]
fn a_commit_that_waited_for_the_background_takes_the_room_that_it_made() {
    let d = device();
    let j = Arc::new(journal(d.clone(), 1 << 20));
    // It goes home with the oldest part of the log, because it is not logged again.
    put(&j, home(63), 1);
    let mut fill = 0;
    while commit_one(&j, fill) + 4 < u64::from(LOG_BLOCKS) - 8 {
        fill = fill.wrapping_add(1);
    }
    let (theirs, waiter) = (j.clone(), Arc::new(Mutex::new(None)));
    let slot = waiter.clone();
    d.hook(move |io| {
        if matches!(io, Io::Write { region: Region::Metadata, .. }) && lock(&slot).is_none() {
            let j = theirs.clone();
            *lock(&slot) = Some(thread::spawn(move || {
                // More than is free.
                let mut h = j.handle();
                (32..60).for_each(|n| h.put_zeroed(home(n), super::setup::BS).unwrap().fill(1));
                h.stop().unwrap();
                j.commit_all().unwrap();
            }));
            // It comes to the lock meanwhile; if it does not, the test finds nothing.
            thread::sleep(Duration::from_millis(50));
        }
    });
    assert!(j.checkpoint_step().unwrap());
    let waiting = lock(&waiter).take().expect("homes were written");
    waiting.join().unwrap();
    assert_eq!(j.stats().checkpoints, 1, "the background's");
}
