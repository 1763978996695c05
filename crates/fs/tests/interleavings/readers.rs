//! Readers of a file beside callers that give its blocks away.

use super::{KIB, create, device, join, mount, read, write};
use quire_device::sync::thread;
use quire_fs::Route;
use quire_testkit::interleave::explore;
#[cfg(feature = "mutants")]
use quire_testkit::interleave::finds;

/// F2, F11: two readers of a file whose blocks a third caller gives away and takes again. Each reads the bytes of some
/// moment, and the caller that waits for them goes on.
fn readers_beside_truncates() {
    let d = device();
    let v = mount(&d, Route::Ordered);
    let ino = create(&v, "shared").unwrap();
    write(&v, ino, 0..8, 1).unwrap();
    v.sync().unwrap();
    let mut threads: Vec<_> = (0..2)
        .map(|_| {
            let v = v.clone();
            thread::spawn(move || {
                for _ in 0..3 {
                    let data = read(&v, "shared").unwrap();
                    assert!(data.iter().all(|b| [0, 1, 2].contains(b)), "{data:?}");
                }
            })
        })
        .collect();
    let sizes = v.clone();
    threads.push(thread::spawn(move || {
        for fill in [2, 1] {
            sizes.truncate(ino, KIB).unwrap();
            write(&sizes, ino, 1..8, fill).unwrap();
            sizes.sync().unwrap();
        }
    }));
    join(threads);
}

#[test]
fn readers_and_truncates_share_a_file() {
    explore(500, readers_beside_truncates);
}

#[cfg(feature = "mutants")]
#[test]
fn every_mutant_of_the_readers_is_found() {
    use quire_device::Mutant;
    for mutant in Mutant::OF_READERS {
        Mutant::set(Some(mutant));
        let found = finds(200_000, readers_beside_truncates);
        Mutant::set(None);
        assert!(found, "{mutant:?} is not found");
    }
}
