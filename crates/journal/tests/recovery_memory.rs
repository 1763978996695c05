//! A log of 1 GiB recovers in bounded memory (R4). Alone in its process, whose peak it measures.

use quire_device::sync::Arc;
use quire_device::{BlockDevice, FileDevice, OpenOptions};
use quire_journal::recover::UnrecoveredLog;
use quire_journal::{LogMap, LogRun, geometry::LogGeometry};
use quire_layout::jbd2::{DescriptorBuilder, JournalSuperblock, RevokeBuilder, encode_commit};
use quire_layout::{BlockNo, BlockSize, LogBlock, Tid};
use std::fs::File;
use std::os::unix::fs::FileExt;

const LOG_BLOCKS: u32 = 262_144;
const BS: u64 = 4096;
/// Home blocks that the log's images belong to, again and again.
const HOMES: u64 = 4096;

/// Peak resident set of this process, in KiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).unwrap();
    line.trim().split(' ').next().unwrap().parse().unwrap()
}

/// Fills the log: full descriptors whose images are holes of the file, revokes of blocks that the log does not hold, a
/// commit after every tenth descriptor.
fn fill(file: &File, map: &LogMap, sb: &JournalSuperblock) -> (Tid, u64) {
    let f = sb.log_format().unwrap();
    let (zeros, mut at, mut tid, mut images) = (vec![0u8; 4096], sb.first(), sb.sequence(), 0u64);
    let write = |at: LogBlock, b: &[u8]| file.write_all_at(b, BlockSize::K4.offset(map.home(at))).unwrap();
    let tags = u32::try_from(f.tags_per_block()).unwrap();
    while at.0 + 10 * (tags + 1) + 3 < sb.end().0 {
        let sum = f.tag_checksum(tid, &zeros);
        for _ in 0..10 {
            let mut d = DescriptorBuilder::new(&f, tid, vec![0; 4096]);
            while !d.is_full() {
                d.push(BlockNo(600_000 + images % HOMES), false, sum);
                images += 1;
            }
            write(at, &d.seal());
            at = at.plus(tags + 1);
        }
        let mut r = RevokeBuilder::new(&f, tid, vec![0; 4096]);
        while !r.is_full() {
            r.push(BlockNo(500_000));
        }
        write(at, &r.seal());
        let mut c = vec![0; 4096];
        encode_commit(&f, &mut c, tid, 1_600_000_000, 0, 0);
        write(at.plus(1), &c);
        at = at.plus(2);
        tid = tid.next();
    }
    (tid, images)
}

#[test]
fn a_log_of_one_gib_recovers_in_bounded_memory() {
    let file = tempfile::NamedTempFile::new().unwrap();
    file.as_file().set_len(3 << 30).unwrap();
    // The journal in two pieces, to be read across the seam.
    let half = LOG_BLOCKS / 2;
    let runs = vec![
        LogRun { log: LogBlock(0), home: BlockNo(200_000), len: half },
        LogRun { log: LogBlock(half), home: BlockNo(20_000), len: LOG_BLOCKS - half },
    ];
    let map = LogMap::new(runs.clone()).unwrap();
    let mut sb = JournalSuperblock::new(BlockSize::K4, LOG_BLOCKS, LogBlock(1), [7; 16]);
    sb.set_our_features(true);
    sb.set_start(Some(LogBlock(1)));
    sb.seal();
    file.as_file().write_all_at(sb.bytes(), 200_000 * BS).unwrap();
    let (end, images) = fill(file.as_file(), &map, &sb);

    let before = peak();
    let how = OpenOptions::default();
    let home: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(file.path(), how).unwrap());
    let log = UnrecoveredLog::open(LogGeometry::internal(home.clone(), BlockSize::K4, runs).unwrap()).unwrap();
    let plan = log.scan((3 << 30) / BS, &mut |_| {}).unwrap();
    assert_eq!((plan.end, plan.logged), (end, images));
    assert!(images > 250_000, "the log is full");
    assert_eq!(plan.images().len() as u64, HOMES);
    assert!(plan.revokes > 40_000);
    println!("after the scan: {} MiB", (peak() - before) / 1024);
    let clean = log.replay(plan, &home, None, &mut |_| {}).unwrap();
    assert!(clean.damage().is_none());
    let used = (peak() - before) / 1024;
    println!("peak over the start: {used} MiB");
    assert!(used < 32, "{used} MiB");
}
