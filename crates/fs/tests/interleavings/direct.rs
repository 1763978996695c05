//! Requests that go to the device without pages, beside smaller ones of the same file.

use super::{KIB, create, device, join, mount_with, read, write};
use quire_device::sync::thread;
use quire_fs::Route;
use quire_testkit::interleave::explore;
#[cfg(feature = "mutants")]
use quire_testkit::interleave::finds;

/// F19: a large request makes the file grow, and a small one before it does, too; then a third caller cuts the large
/// one. Whoever is last, the file has the larger size, and nothing that was cut off comes back.
fn growth_on_both_ways() {
    let v = mount_with(&device(), Route::Ordered, 8 << 10);
    let ino = create(&v, "shared").unwrap();
    let writers = [(32..40, 1), (0..2, 2)].map(|(kib, fill)| {
        let v = v.clone();
        thread::spawn(move || write(&v, ino, kib, fill).unwrap())
    });
    join(writers.into());
    let bytes = |kib: u64, fill: u8| vec![fill; usize::try_from(kib * KIB).unwrap()];
    let all = [bytes(2, 2), bytes(30, 0), bytes(8, 1)].concat();
    assert!(read(&v, "shared").unwrap() == all, "before a sync");
    v.truncate(ino, 36 * KIB).unwrap();
    v.truncate(ino, 40 * KIB).unwrap();
    let cut = [&all[..36 << 10], &bytes(4, 0)].concat();
    assert!(read(&v, "shared").unwrap() == cut, "what was cut off is back");
    v.close().unwrap();
}

#[test]
fn a_file_grows_on_both_ways() {
    explore(500, growth_on_both_ways);
}

#[cfg(feature = "mutants")]
#[test]
fn every_mutant_of_direct_writes_is_found() {
    use quire_device::Mutant;
    for mutant in Mutant::OF_DIRECT_WRITES {
        Mutant::set(Some(mutant));
        let found = finds(20_000, growth_on_both_ways);
        Mutant::set(None);
        assert!(found, "{mutant:?} is not found");
    }
}
