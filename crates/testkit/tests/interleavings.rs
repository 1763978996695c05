//! The explorer itself.

use quire_testkit::interleave::{explore, finds};
use shuttle::sync::Mutex;
use shuttle::thread;
use std::sync::Arc;

/// A run may draw that it has no second thread; neither is that a failure, nor is it a mutant that was found.
#[test]
fn a_scenario_without_threads_passes() {
    explore(4, || {});
    assert!(!finds(4, || {}), "nothing is wrong with it");
}

#[test]
fn a_lost_update_is_found() {
    let adds_without_lock = || {
        let n = Arc::new(Mutex::new(0));
        let other = n.clone();
        let add = |n: &Mutex<i32>| {
            let before = *n.lock().unwrap();
            *n.lock().unwrap() = before + 1;
        };
        let thread = thread::spawn(move || add(&other));
        add(&n);
        thread.join().unwrap();
        assert_eq!(*n.lock().unwrap(), 2);
    };
    assert!(finds(1000, adds_without_lock));
}
