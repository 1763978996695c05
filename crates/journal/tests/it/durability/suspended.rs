//! Callers without a thread: who commits for them, and for how long.

use super::setup::{home, image, journal, put};
use quire_device::sync::atomic::{AtomicU32, Ordering};
use quire_device::sync::{Arc, Mutex, lock};
use quire_journal::{Journal, Lead, Need};
use quire_layout::Tid;
use quire_testkit::MemDevice;

fn need(tid: Tid) -> Need {
    Need { tid: Some(tid), data: None }
}

/// While one caller is told another is suspended. Returns what was told, in order.
fn one_after_another(j: &Arc<Journal>, lead: Lead) -> Arc<Mutex<Vec<&'static str>>> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let (theirs, log) = (j.clone(), told.clone());
    let first = put(j, home(0), 1);
    let then = move |outcome: Result<(), _>| {
        assert!(outcome.is_ok() && theirs.tells_here());
        lock(&log).push("first");
        let second = put(&theirs, home(1), 2);
        theirs.sync_then(need(second), Lead::UntilNobodyWaits, Box::new(move |_| lock(&log).push("second")));
    };
    j.sync_then(need(first), lead, Box::new(then));
    assert!(!j.tells_here());
    told
}

/// J12, with a thread for those whom nobody leads, and without.
#[test]
fn a_caller_with_other_work_leaves_those_who_came_meanwhile_to_the_thread_for_them() {
    let j = Arc::new(journal(Arc::new(MemDevice::new(image(Tid(5)))), 1 << 20));
    assert_eq!(*lock(&one_after_another(&j, Lead::UntilNobodyWaits)), ["first", "second"]);
    assert_eq!(*lock(&one_after_another(&j, Lead::Once)), ["first", "second"], "there is nobody else");
    let woken = Arc::new(AtomicU32::new(0));
    let count = woken.clone();
    j.on_suspended(move || {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let told = one_after_another(&j, Lead::Once);
    assert_eq!((lock(&told).clone(), woken.load(Ordering::SeqCst)), (vec!["first"], 1));
    j.lead_suspended();
    assert_eq!(*lock(&told), ["first", "second"]);
    assert_eq!(*lock(&one_after_another(&j, Lead::UntilNobodyWaits)), ["first", "second"]);
    assert_eq!(woken.load(Ordering::SeqCst), 1, "a caller without other work leaves nobody");
}
