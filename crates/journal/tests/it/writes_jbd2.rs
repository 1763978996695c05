//! What the journal writes is a jbd2 log: e2fsck replays it, and finds exactly what was committed.

use quire_device::sync::Arc;
use quire_device::{BlockDevice, FlushGate, SystemClock};
use quire_journal::{Journal, JournalConfig, Log, LogMap, LogRun};
use quire_layout::superblock::Superblock;
use quire_layout::{BlockNo, BlockSize, LogBlock, features};
use quire_testkit::MemDevice;
use std::process::{Command, Stdio};

/// An image with a journal, and the blocks of that journal.
struct Image {
    bytes: Vec<u8>,
    block_size: BlockSize,
    log: Vec<BlockNo>,
}

fn tool(name: &str, args: &[&str]) -> String {
    let out = Command::new(name).args(args).stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("{name}: {e}"));
    String::from_utf8_lossy(&out.stdout).into_owned() + &String::from_utf8_lossy(&out.stderr)
}

fn image(block_size: &str) -> Image {
    image_with(block_size, "^fast_commit")
}

fn image_with(block_size: &str, feature: &str) -> Image {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    tool("mke2fs", &["-q", "-F", "-t", "ext4", "-b", block_size, "-O", feature, "-J", "size=8", path, "64M"]);
    let blocks = Command::new("debugfs").args(["-R", "blocks <8>", path]).stdin(Stdio::null()).output().unwrap();
    let log = String::from_utf8_lossy(&blocks.stdout).split_whitespace().map(|n| BlockNo(n.parse().unwrap())).collect();
    let bytes = std::fs::read(path).unwrap();
    let block_size = Superblock::decode(&bytes[1024..]).unwrap().block_size();
    Image { bytes, block_size, log }
}

fn set_needs_recovery(bytes: &mut [u8]) {
    let mut sb = Superblock::decode(&bytes[1024..]).unwrap();
    let mut f = sb.features();
    f.incompat |= features::incompat::RECOVER;
    sb.set_features(f);
    sb.seal();
    bytes[1024..2048].copy_from_slice(sb.bytes());
}

fn journal(i: &Image) -> (Arc<MemDevice>, Journal) {
    let mut bytes = i.bytes.clone();
    set_needs_recovery(&mut bytes);
    let device = Arc::new(MemDevice::new(bytes));
    let gate = Arc::new(FlushGate::new(device.clone()));
    // `blocks` lists the extent tree's own blocks too where there are any; a journal of 8 MiB has none.
    let runs = i.log.iter().zip(0u32..).map(|(b, n)| LogRun { log: LogBlock(n), home: *b, len: 1 }).collect();
    let at = i.block_size.offset(i.log[0]);
    let block = device.read(at, i.block_size.bytes(), quire_device::Region::LogSuperblock).unwrap();
    let map = LogMap::new(runs).unwrap();
    let mut log = Log::open(gate.clone(), map, LogBlock(0), &block, i.block_size, true).unwrap();
    if Superblock::decode(&i.bytes[1024..]).unwrap().features().has_compat(features::compat::FAST_COMMIT) {
        log.spare_fast_commits();
    }
    let config = JournalConfig::new(i.block_size, Arc::new(SystemClock), 4 << 20);
    (device, Journal::with_log(gate, log, config))
}

/// A block of the file system's free space, far from metadata.
fn free_block(i: &Image, n: u64) -> BlockNo {
    BlockNo((i.bytes.len() as u64 >> i.block_size.bits()) * 7 / 8 + n)
}

fn block_of<'a>(bytes: &'a [u8], i: &Image, b: BlockNo) -> &'a [u8] {
    let at = usize::try_from(i.block_size.offset(b)).unwrap();
    &bytes[at..at + i.block_size.bytes()]
}

/// The image after e2fsck has replayed its journal.
fn replayed(bytes: &[u8]) -> Vec<u8> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    let path = file.path().to_str().unwrap();
    let said = tool("e2fsck", &["-y", "-E", "journal_only", path]);
    assert!(said.contains("recovering journal"), "{said}");
    assert!(!said.contains("orrupt"), "{said}");
    let said = tool("e2fsck", &["-fn", path]);
    assert!(!said.contains("Fix"), "{said}");
    std::fs::read(file.path()).unwrap()
}

fn put(j: &Journal, b: BlockNo, len: usize, fill: impl Fn(&mut [u8])) {
    let mut h = j.handle();
    fill(h.put_zeroed(b, len).unwrap());
    h.stop().unwrap();
}

#[test]
fn e2fsck_replays_what_was_committed_and_nothing_else() {
    for block_size in ["1024", "2048", "4096"] {
        let i = image(block_size);
        let len = i.block_size.bytes();
        let (device, j) = journal(&i);
        for n in 0..100u64 {
            put(&j, free_block(&i, n), len, |b| b.fill(u8::try_from(n).unwrap() + 1));
        }
        // An image that begins with the log's magic is escaped in the log and whole at home.
        put(&j, free_block(&i, 100), len, |b| b[..8].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98, 1, 2, 3, 4]));
        j.commit_all().unwrap();
        put(&j, free_block(&i, 5), len, |b| b.fill(0xEE));
        j.commit_all().unwrap();
        put(&j, free_block(&i, 6), len, |b| b.fill(0xDD)); // never committed
        let before = device.snapshot();
        assert_eq!(block_of(&before, &i, free_block(&i, 0)), block_of(&i.bytes, &i, free_block(&i, 0)));
        let after = replayed(&before);
        for n in (0..100u64).filter(|n| *n != 5) {
            let want = u8::try_from(n).unwrap() + 1;
            assert!(block_of(&after, &i, free_block(&i, n)).iter().all(|b| *b == want), "block {n}");
        }
        assert!(block_of(&after, &i, free_block(&i, 5)).iter().all(|b| *b == 0xEE));
        assert_eq!(block_of(&after, &i, free_block(&i, 100))[..8], [0xC0, 0x3B, 0x39, 0x98, 1, 2, 3, 4]);
    }
}

#[test]
fn a_revoked_block_is_not_replayed() {
    let i = image("1024");
    let len = i.block_size.bytes();
    let (device, j) = journal(&i);
    for n in 0..700u64 {
        put(&j, free_block(&i, n), len, |b| b.fill(1));
    }
    j.commit_all().unwrap();
    let mut h = j.handle();
    (0..700).for_each(|n| h.forget(free_block(&i, n)));
    h.stop().unwrap();
    put(&j, free_block(&i, 800), len, |b| b.fill(8));
    j.commit_all().unwrap();
    let after = replayed(&device.snapshot());
    for n in 0..700u64 {
        assert_eq!(block_of(&after, &i, free_block(&i, n)), block_of(&i.bytes, &i, free_block(&i, n)), "block {n}");
    }
    assert!(block_of(&after, &i, free_block(&i, 800)).iter().all(|b| *b == 8));
    assert_eq!(j.stats().memory.live, 1);
}

#[test]
fn a_full_log_is_checkpointed_and_wraps() {
    is_checkpointed(&image("4096"));
}

/// J14: e2fsck finds all of a log that goes back to its first block before it comes to the journal's end.
#[test]
fn a_full_log_beside_fast_commits_is_checkpointed_and_begins_anew() {
    is_checkpointed(&image_with("4096", "fast_commit"));
}

/// A log runs full again and again, and e2fsck replays it now and then.
fn is_checkpointed(i: &Image) {
    let len = i.block_size.bytes();
    let (device, j) = journal(i);
    let rounds = 40u64;
    for round in 0..rounds {
        for n in 0..200u64 {
            put(&j, free_block(i, n + round % 7), len, |b| b.fill(u8::try_from(round).unwrap() + 1));
        }
        j.commit_all().unwrap();
        if round % 11 == 3 {
            let after = replayed(&device.snapshot());
            let last = free_block(i, 199 + round % 7);
            assert!(block_of(&after, i, last).iter().all(|b| u64::from(*b) == round + 1));
        }
    }
    let s = j.stats();
    assert!(s.checkpoints > 2 && s.memory.never_written_home > 4000, "{s:?}");
    j.empty_log().unwrap();
    let end = device.snapshot();
    assert!(block_of(&end, i, free_block(i, 50)).iter().all(|b| u64::from(*b) == rounds));
    let s = j.stats();
    assert_eq!((s.log_used, s.memory.live, s.memory.in_log), (0, 0, 0));
}

#[test]
fn a_handle_that_is_dropped_leaves_the_transaction_as_it_was() {
    let i = image("1024");
    let (_, j) = journal(&i);
    let b = free_block(&i, 0);
    put(&j, b, 1024, |b| b.fill(1));
    let mut h = j.handle();
    h.write(b).unwrap().fill(2);
    h.forget(b);
    h.put_zeroed(free_block(&i, 1), 1024).unwrap();
    drop(h);
    let s = j.stats().memory;
    assert_eq!((s.running_blocks, s.pinned), (1, 1));
    assert!(j.handle().read(b).unwrap().iter().all(|b| *b == 1));
    assert!(j.handle().read(free_block(&i, 1)).is_none());
    j.commit_all().unwrap();
    assert_eq!(j.stats().memory.pinned, 0);
}
