//! A size is durable no earlier than zeros behind the old end that were written in place before it, though nothing
//! names them: else a power loss would show what lay there (F3, Q5). The log is on a device of its own, all of which
//! survives; of the file system's only what a flush covered does.

use super::{Bench, file, options};
use crate::config::{Choices, CommitMode, ModeRule, Record, Route};
use crate::data::WriteFlags;
use crate::data::writeback::write_back_exclusive;
use crate::testing::tie_to_log;
use crate::{Devices, Options, Volume};
use quire_device::sync::Arc;
use quire_device::{BlockDevice, Buf, Region, SystemClock};
use quire_layout::Ino;
use quire_testkit::{MemDevice, PowerLossDevice};

/// What lies behind the end of file 0, in its only block.
const STALE: u8 = 0xAA;
/// Bytes of file 0.
const LEN: usize = 1000;
/// A request of the kernel's write-back, which sends times by themselves.
fn keep_times() -> WriteFlags {
    WriteFlags { keep_times: true, ..WriteFlags::default() }
}

/// An image in which somebody else has left bytes behind the end of file 0, and its log.
fn stale_image() -> [Vec<u8>; 2] {
    let b = Bench::new("16M", &["-t", "ext4", "-b", "4096", "-O", "^has_journal"], 1, options(Route::Ordered));
    b.volume.write(file(0), 0, &[7; LEN], WriteFlags::default()).unwrap();
    b.volume.sync().unwrap();
    let at = b.volume.extents(file(0), 0, u64::MAX, 9).unwrap().last().unwrap().physical;
    b.check();
    let mut block = vec![7; LEN];
    block.resize(4096, STALE);
    b.device.write(at, Arc::new(Buf::copy_of(&block)), Region::Data).unwrap();
    let mut image = b.device.inner().inner().snapshot();
    let log = tie_to_log(&mut image, "8M");
    [image, log]
}

fn open(fs: Arc<dyn BlockDevice>, log: &Arc<MemDevice>, options: &Options) -> Volume {
    let devices = Devices { fs, journal: Some(log.clone()), nvram: None };
    Volume::open(devices, Arc::new(SystemClock), options.clone()).unwrap()
}

/// What file 0 holds if the power goes after `grow` and a commit, and nothing survives that no flush covered.
fn after_power_loss(options: &Options, grow: impl FnOnce(&Volume)) -> Vec<u8> {
    let [fs, log] = stale_image();
    let (fs, log) = (Arc::new(PowerLossDevice::from_bytes(&fs)), Arc::new(MemDevice::new(log)));
    let v = open(fs.clone(), &log, options);
    grow(&v);
    v.maintenance().commit().unwrap();
    let log = Arc::new(MemDevice::new(log.snapshot()));
    let v = open(Arc::new(MemDevice::new(fs.durable().to_vec())), &log, options);
    let mut bytes = vec![0; 1 << 20];
    let len = v.read(file(0), 0, &mut bytes).unwrap();
    bytes.truncate(len);
    bytes
}

fn check(bytes: &[u8], len: usize) {
    assert_eq!(bytes.len(), len, "the size is durable");
    assert!(bytes[..900] == [7; 900] && !bytes.contains(&STALE), "stale bytes in the file");
}

/// Both commits of a log on a device.
fn each_commit(route: Route, check: impl Fn(Options)) {
    for commit in [CommitMode::Checksum, CommitMode::Barrier] {
        check(Options::default().with(Choices { record: Record::Range, commit, ..Choices::of_route(route) }));
    }
}

/// `selective`: the old last block goes in place, with zeros, and what grows the file is logged.
#[test]
fn a_record_of_a_small_update_waits_for_the_zeros_of_a_large_one() {
    each_commit(Route::Selective, |options| {
        let options = Options { write_threshold: Some(512), ..options };
        let bytes = after_power_loss(&options, |v| {
            v.write(file(0), 0, &[7; LEN], keep_times()).unwrap();
            v.maintenance().write_back().unwrap();
            v.write(file(0), 98_304, &[1; 100], keep_times()).unwrap();
            v.maintenance().write_back().unwrap();
        });
        check(&bytes, 98_404);
    });
}

/// `adaptive`: a file with two names is ordered by one and journaled by the other.
#[test]
fn a_journaled_write_waits_for_the_zeros_of_an_ordered_one() {
    let rules = ModeRule::parse("*-journal=journal,*-wal=ordered").unwrap();
    each_commit(Route::Adaptive, |options| {
        let options = Options { journal_rules: rules.clone(), ..options };
        let bytes = after_power_loss(&options, |v| {
            for name in [&b"x-journal"[..], b"x-wal"] {
                v.link(file(0), Ino::ROOT, name).unwrap();
            }
            v.write(file(0), 0, &[7; LEN], keep_times()).unwrap();
            v.maintenance().write_back().unwrap();
            v.maintenance().commit().unwrap();
            v.lookup(Ino::ROOT, b"x-journal").unwrap();
            v.write(file(0), 98_304, &[1; 100], keep_times()).unwrap();
        });
        check(&bytes, 98_404);
    });
}

/// A batch that has a size alone, which a commit closes before anything else orders it.
#[test]
fn a_size_without_pages_waits_for_the_zeros_of_an_earlier_batch() {
    each_commit(Route::Ordered, |options| {
        let bytes = after_power_loss(&options, |v| {
            v.truncate(file(0), 900).unwrap();
            v.maintenance().commit().unwrap();
            v.maintenance().write_back().unwrap();
            let (d, ino) = (v.data(), file(0));
            let of = d.files.get(ino);
            let mut s = of.exclusive();
            s.size = Some(5000);
            write_back_exclusive(d, ino, &mut s).unwrap();
        });
        check(&bytes, 5000);
    });
}
