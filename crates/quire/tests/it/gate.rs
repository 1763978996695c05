//! Batches, freezes and closes beside calls of other threads: nobody waits for ever, and no call finds a half of a
//! path.

use quire::{CreateOptions, ErrorKind, FileSystem};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

fn image() -> FileSystem {
    CreateOptions::new().size(16 << 20).in_memory().unwrap()
}

/// Fails where `f` would hang.
fn ends<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(f()));
    told.recv_timeout(Duration::from_secs(60)).expect("it ends")
}

#[test]
fn a_close_in_a_batch_is_refused_and_the_end_of_the_batch_closes() {
    ends(|| {
        let fs = image();
        let batch = fs.batch().unwrap();
        batch.write("/f", "x").unwrap();
        assert_eq!(fs.close().unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(batch.read("/f").unwrap(), b"x");
        batch.commit().unwrap();
    });
}

#[test]
fn a_batch_waits_for_a_thaw_and_holds_nobody_up_meanwhile() {
    ends(|| {
        let fs = image();
        fs.write("/f", "before").unwrap();
        fs.freeze().unwrap();
        let other = fs.clone();
        let changes = thread::spawn(move || {
            let batch = other.batch().unwrap();
            batch.write("/f", "after").unwrap();
            batch.commit().unwrap();
        });
        thread::sleep(Duration::from_millis(50));
        assert_eq!(fs.read("/f").unwrap(), b"before");
        fs.thaw().unwrap();
        changes.join().unwrap();
        assert_eq!(fs.read("/f").unwrap(), b"after");
    });
}

/// A handle that is older than a rollback is stale, a path never.
#[test]
fn calls_on_paths_beside_rollbacks_find_what_is_there() {
    ends(|| {
        let fs = image();
        fs.create_dir_all("/a/b/c").unwrap();
        fs.write("/a/b/c/f", "x").unwrap();
        fs.sync().unwrap();
        let done = AtomicBool::new(false);
        thread::scope(|s| {
            for _ in 0..3 {
                s.spawn(|| {
                    while !done.load(Ordering::Relaxed) {
                        assert_eq!(fs.metadata("/a/b/c/f").unwrap().size, 1);
                        assert!(fs.exists("/a/b/c").unwrap());
                        fs.chmod("/a/b/c/f", 0o600).unwrap();
                        assert!(fs.open_dir("/a/b").is_ok());
                    }
                });
            }
            for _ in 0..200 {
                let batch = fs.batch().unwrap();
                batch.write("/a/b/c/g", "y").unwrap();
                batch.rollback().unwrap();
            }
            done.store(true, Ordering::Relaxed);
        });
    });
}
