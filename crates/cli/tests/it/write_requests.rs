//! How many requests one write(2) becomes: the unit that is whole or absent after a crash is a request.

use crate::common::{Place, cannot_mount, ok, quire};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;

const BLOCK: u64 = 4096;
const LARGEST: usize = 1 << 20;

fn write_requests(dir: &str) -> u64 {
    let stats: serde_json::Value = serde_json::from_str(&ok(&mut quire(&["stats", "--json", dir]))).unwrap();
    stats["requests_by_kind"]["write"].as_u64().unwrap_or(0)
}

/// Requests of one write of `len` bytes at `offset`, of a file that holds data there.
fn requests_of(dir: &str, file: &std::fs::File, offset: u64, len: usize) -> u64 {
    let before = write_requests(dir);
    file.write_all_at(&vec![1; len], offset).unwrap();
    write_requests(dir) - before
}

#[test]
fn a_write_through_of_whole_pages_up_to_a_mebibyte_is_one_request() {
    if cannot_mount("a_write_through_of_whole_pages_up_to_a_mebibyte_is_one_request") {
        return;
    }
    let place = Place::new("64M", &[]);
    let m = place.mount("data=journal,writethrough");
    let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(m.path("f")).unwrap();
    file.write_all_at(&vec![0; 4 * LARGEST], 0).unwrap();
    for (offset, len) in [(0, 100), (0, 4096), (BLOCK, 16384), (3 * BLOCK, 65536), (BLOCK, LARGEST)] {
        assert_eq!(requests_of(m.dir(), &file, offset, len), 1, "{len} bytes at {offset}");
    }
    // Inside one page, too.
    assert_eq!(requests_of(m.dir(), &file, 700, 100), 1);
    // What the kernel's FUSE module cannot hand over at once. README says so.
    for (offset, len) in [(700, LARGEST), (0, 2 * LARGEST)] {
        let n = requests_of(m.dir(), &file, offset, len);
        assert_eq!(n, 2, "{len} bytes at {offset}");
    }
    let across = requests_of(m.dir(), &file, BLOCK - 50, 100);
    assert!((1..=2).contains(&across), "100 bytes across two pages: {across} requests");
    println!("100 bytes across two pages: {across} requests");
    drop(file);
    m.unmount();
}
