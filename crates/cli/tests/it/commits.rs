//! Whom a commit serves, on a device whose flush takes long.

use crate::clients::{figure, with_clients, write};
use crate::common::{needs_mounts, needs_root};
use crate::served::Served;
use quire_device::SystemClock;
use quire_testkit::{MemDevice, Model, Modelled};
use std::fs::File;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// A file system on a device that takes so long to flush.
fn slow(flush: Duration) -> Served<Modelled<MemDevice>> {
    let model = Model { flush, ..Model::default() };
    Served::of("64M", |image| Modelled::new(MemDevice::new(image), model, Arc::new(SystemClock)))
}

/// Where a flush takes long, a commit waits for the callers of the last one, who come again at once: it serves nearly
/// all of them. Without, two groups take turns.
#[test]
fn a_commit_waits_for_callers_that_come_again_at_once() {
    const CLIENTS: usize = 16;
    const ROUNDS: u64 = 8;
    needs_mounts();
    needs_root();
    let slow = slow(Duration::from_millis(200));
    let commits = |options: &str| {
        let m = slow.mount(options);
        let mnt = slow.place.mnt();
        with_clients(&mnt, CLIENTS, |f| write(f, 0));
        let before = figure(&mnt, "/journal/transactions");
        with_clients(&mnt, CLIENTS, |f| (0..ROUNDS).for_each(|n| write(f, n)));
        let commits = figure(&mnt, "/journal/transactions") - before;
        m.unmount();
        commits
    };
    // As long as a commit takes: where the machine is busy, callers do not come again within the default of 15 ms.
    let measured = || [commits("data=auto,max_batch_time=200000"), commits("data=auto,max_batch_time=0")];
    // A machine that stops for longer takes callers out of a commit, but not each time.
    let mut tries = Vec::new();
    let fewer = (0..3).any(|_| {
        let [with, without] = measured();
        tries.push([with, without]);
        with * 5 <= without * 4
    });
    assert!(fewer, "commits, and without a wait: {tries:?}");
}

/// A client whose worker commits for those that came meanwhile is told of its own commit, however long others sync.
#[test]
fn who_leads_a_commit_is_answered_while_others_sync() {
    const ROUNDS: u64 = 20;
    needs_mounts();
    needs_root();
    let slow = slow(Duration::from_millis(100));
    let m = slow.mount("data=auto,max_batch_time=0");
    let mnt = slow.place.mnt();
    let files: Vec<File> = (0..3).map(|n| File::create(mnt.join(n.to_string())).unwrap()).collect();
    files.iter().for_each(|f| write(f, 0));
    let begun = Instant::now();
    let took = thread::scope(|scope| {
        let first = scope.spawn(|| {
            write(&files[0], 1);
            begun.elapsed()
        });
        // Each comes during the flush for the one before.
        for f in &files[1..] {
            thread::sleep(Duration::from_millis(60));
            scope.spawn(|| (1..=ROUNDS).for_each(|n| write(f, n)));
        }
        first.join().unwrap()
    });
    let all = begun.elapsed();
    assert!(took * 3 < all, "the first client waited {took:?}, all took {all:?}");
    drop(files);
    m.unmount();
}

crate::common::over_uring! {
    who_leads_a_commit_is_answered_while_others_sync,
}
