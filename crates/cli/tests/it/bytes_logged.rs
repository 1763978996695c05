//! What a small overwrite on a mount costs the log: the bytes that changed, not the page that the kernel hands over.

use crate::common::{Place, needs_mounts, ok, quire, said, text};
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::FileExt;

/// Overwrites that are made durable one by one.
const OVERWRITES: u64 = 50;
/// Bytes of each.
const BYTES: usize = 100;
/// Blocks from one to the next: each is the first to its block.
const STRIDE: u64 = 3;
const BLOCK: u64 = 4096;

/// Where a file's pages are when it is overwritten.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Pages {
    /// On the disk only: the image was mounted again.
    Cold,
    /// The kernel has read the file, Quire keeps nothing of it.
    Read,
    /// Each block was overwritten before.
    Overwritten,
}

/// Records that were whole blocks, records of ranges, bytes written to the log, and to data in place.
fn figures(dir: &str) -> [u64; 4] {
    let stats: serde_json::Value = serde_json::from_str(&ok(&mut quire(&["stats", "--json", dir]))).unwrap();
    let record = |kind: &str| stats["journal"][kind].as_u64().unwrap();
    let written = |region: &str| stats["devices"]["fs"]["regions"][region]["writes"]["bytes"].as_u64().unwrap_or(0);
    [record("whole_records"), record("range_records"), written("log"), written("data")]
}

/// By as much the [`figures`] have risen since.
fn risen(dir: &str, before: [u64; 4]) -> [u64; 4] {
    let after = figures(dir);
    std::array::from_fn(|n| after[n] - before[n])
}

fn overwrite(f: &File, salt: u8) {
    for n in 0..OVERWRITES {
        let fill = u8::try_from(n % 100).unwrap() + salt;
        f.write_all_at(&[fill; BYTES], n * STRIDE * BLOCK + 700).unwrap();
        f.sync_data().unwrap();
    }
}

/// What the overwrites cost, in the order of [`figures`].
fn cost_of_overwrites(options: &str, pages: Pages) -> [u64; 4] {
    let place = Place::new("128M", &["-b", "4096"]);
    let len = usize::try_from(OVERWRITES * STRIDE * BLOCK).unwrap();
    // Not zeros, over which anything is ranges.
    let mut bytes: Vec<u8> = (0..len).map(|n| u8::try_from(n * 31 % 251).unwrap()).collect();
    let m = place.mount("");
    fs::write(m.path("f"), &bytes).unwrap();
    m.unmount();
    let m = place.mount(options);
    let f = OpenOptions::new().read(true).write(true).open(m.path("f")).unwrap();
    match pages {
        Pages::Cold => {}
        Pages::Read => assert!(fs::read(m.path("f")).unwrap() == bytes),
        Pages::Overwritten => overwrite(&f, 1),
    }
    let before = figures(m.dir());
    overwrite(&f, 101);
    let cost = risen(m.dir(), before);
    drop(f);
    for n in 0..OVERWRITES {
        let at = usize::try_from(n * STRIDE * BLOCK).unwrap() + 700;
        bytes[at..at + BYTES].fill(u8::try_from(n % 100).unwrap() + 101);
    }
    // The log alone has the changes: a killed daemon leaves them to recovery, which merges them with the blocks at
    // home.
    let (dir, image) = (m.dir().to_owned(), place.image());
    m.end_by(rustix::process::Signal::KILL);
    let (code, words) = said(&mut quire(&["umount", &dir]));
    assert!(code == 32 && words.contains("daemon had died"), "{code}: {words}");
    let (code, words) = said(&mut quire(&["recover", text(&image)]));
    assert_eq!(code, 1, "{words}");
    place.check();
    let m = place.mount("ro");
    assert!(fs::read(m.path("f")).unwrap() == bytes, "{options}, {pages:?}");
    m.unmount();
    cost
}

/// The blocks of the overwrites that were logged whole, and those written in place.
fn check(options: &str, pages: Pages) {
    needs_mounts();
    let [whole, ranges, log, data] = cost_of_overwrites(options, pages);
    println!("{options}, {pages:?}: {whole} whole records, {ranges} of ranges, {log} bytes of log, {data} in place");
    assert_eq!(data, 0, "all go to the log");
    assert!(ranges >= OVERWRITES, "{ranges} records of ranges");
    // Okeanos' profiles log metadata whole: the inode's block, with the times, at most once for each overwrite.
    let metadata = if options.contains("profile") { OVERWRITES + 2 } else { 2 };
    assert!(whole <= metadata, "{whole} whole records");
    assert!(log <= (OVERWRITES + metadata) * BLOCK, "{log} bytes of log");
}

/// A write of the threshold's size or more goes in place, and the log has its metadata at most.
#[test]
fn selective_writes_large_overwrites_in_place() {
    needs_mounts();
    let place = Place::new("128M", &["-b", "4096"]);
    let size = 2 * usize::try_from(BLOCK).unwrap();
    let all = u64::try_from(size).unwrap() * OVERWRITES;
    let m = place.mount("");
    fs::write(m.path("f"), vec![1; usize::try_from(all).unwrap()]).unwrap();
    m.unmount();
    let m = place.mount("profile=selective,noatime");
    let f = OpenOptions::new().write(true).open(m.path("f")).unwrap();
    let before = figures(m.dir());
    for n in 0..OVERWRITES {
        f.write_all_at(&vec![2; size], n * 2 * BLOCK).unwrap();
        f.sync_data().unwrap();
    }
    let [_, ranges, log, data] = risen(m.dir(), before);
    drop(f);
    m.unmount();
    assert_eq!((data, ranges), (all, 0), "bytes in place, records of ranges");
    assert!(log <= all / 2, "{log} bytes of log: of {OVERWRITES} inodes");
    place.check();
}

macro_rules! overwrites {
    ($($name:ident: $options:literal, $pages:ident;)+) => {
        $(#[test]
        fn $name() {
            check($options, Pages::$pages);
        })+
    };
}

overwrites! {
    selective_logs_the_bytes_of_a_cold_file: "profile=selective,noatime", Cold;
    selective_logs_the_bytes_of_a_file_that_was_read: "profile=selective,noatime", Read;
    selective_with_the_kernels_cache_logs_the_bytes_of_a_cold_file: "profile=selective,writeback,noatime", Cold;
    wasteless_logs_the_bytes_of_a_cold_file: "profile=wasteless,noatime", Cold;
    wasteless_logs_the_bytes_of_a_file_that_was_read: "profile=wasteless,noatime", Read;
    wasteless_with_the_kernels_cache_logs_the_bytes_of_a_cold_file: "profile=wasteless,writeback,noatime", Cold;
    auto_logs_the_bytes_of_a_cold_file: "noatime", Cold;
    auto_logs_the_bytes_of_a_file_that_was_overwritten: "noatime", Overwritten;
}
