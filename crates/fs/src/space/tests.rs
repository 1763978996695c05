//! Allocator tests: against images of mke2fs, judged by e2fsck.

use super::free_space::available;
use super::*;
use crate::Options;
use crate::error::Error;
use crate::records;
use crate::testing::TestVolume;
use quire_device::{Buf, Region};
use quire_layout::inode::{Inode, flags, mode};
use quire_layout::{BlockNo, GroupNo, Ino, Structure};
use quire_testkit::run as tool;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Kinds of images; 40 MiB have several groups with 1 KiB blocks.
const IMAGES: &[&[&str]] = &[
    &["-t", "ext4"],
    &["-t", "ext4", "-b", "1024", "-O", "^metadata_csum,^64bit,uninit_bg"],
    &["-t", "ext4", "-b", "1024", "-E", "lazy_itable_init=1"],
    &["-t", "ext4", "-b", "1024", "-O", "^resize_inode,meta_bg,^flex_bg"],
    &["-t", "ext4", "-b", "2048", "-I", "128", "-O", "^64bit,^metadata_csum"],
    &["-t", "ext3", "-b", "1024"],
    &["-t", "ext4", "-b", "1024", "-O", "sparse_super2,^resize_inode", "-g", "4096"],
    &["-t", "ext4", "-b", "1024", "-O", "^sparse_super,^flex_bg,^resize_inode"],
    &["-t", "ext4", "-b", "1024", "-g", "3000", "-G", "4", "-E", "packed_meta_blocks=1"],
];

const BIG: BlockNo = BlockNo(u64::MAX);

/// An owner for blocks, so that e2fsck sees them used: freed again by the test instead.
fn take_all(t: &TestVolume, want: u32, pool: Pool) -> Vec<Run> {
    let mut runs = Vec::new();
    loop {
        let goal = runs.last().map_or(BlockNo(0), Run::end);
        match t.volume.run(|op| alloc_blocks(op, goal, want, pool)) {
            Ok(r) => runs.push(r),
            Err(Error::NoSpace) => return runs,
            Err(e) => panic!("{e}"),
        }
    }
}

/// Asks e2fsck about the image as it is now.
fn check(t: &TestVolume) {
    t.volume.maintenance().freeze().unwrap();
    quire_testkit::fsck(&t.device.snapshot());
    t.volume.maintenance().thaw().unwrap();
}

fn free_all(t: &TestVolume, runs: &[Run]) {
    for r in runs {
        t.volume.run(|op| free_blocks(op, r.start, r.len)).unwrap();
    }
}

#[test]
fn every_free_block_is_handed_out_once_and_a1_holds() {
    for args in IMAGES {
        let t = TestVolume::new("40321K", args);
        let free = t.volume.superblock().free_blocks();
        let zones = t.volume.run(|op| Ok(op.tables().space.zones())).unwrap();
        let runs = take_all(&t, 100, Pool::Reserved);
        let mut seen = BTreeSet::new();
        for r in &runs {
            assert!(zones.legal(r.start, u64::from(r.len)), "{args:?}: {r:?}");
            for n in 0..u64::from(r.len) {
                assert!(seen.insert(r.start.0 + n), "{args:?}: {} twice", r.start.0 + n);
            }
        }
        assert_eq!(u64::try_from(seen.len()).unwrap(), free, "{args:?}");
        free_all(&t, &runs);
        check(&t);
        assert_eq!(t.volume.run(|op| Ok(op.tables().space.free_blocks())).unwrap(), free);
    }
}

#[test]
fn users_leave_the_reserves() {
    let t = TestVolume::new("40M", &["-t", "ext4", "-m", "5"]);
    let sb = t.volume.superblock();
    let runs = take_all(&t, 1000, Pool::User);
    let taken: u64 = runs.iter().map(|r| u64::from(r.len)).sum();
    let resv = (sb.blocks_count() / 50).min(4096);
    assert_eq!(taken, sb.free_blocks() - sb.reserved_blocks() - resv);
    let space = t.volume.run(|op| Ok(op.tables().space.space(op.sb(), false))).unwrap();
    assert_eq!((space.available, space.free), (0, sb.reserved_blocks() + resv));
    let more = take_all(&t, 1000, Pool::Root);
    assert_eq!(more.iter().map(|r| u64::from(r.len)).sum::<u64>(), sb.reserved_blocks());
    free_all(&t, &runs);
    free_all(&t, &more);
    check(&t);
}

#[test]
fn a2_freed_blocks_wait_for_their_transaction() {
    let t = TestVolume::new("16M", &["-t", "ext4"]);
    let runs = take_all(&t, 100_000, Pool::Reserved);
    t.volume.maintenance().commit().unwrap();
    let run = runs[0];
    let tid = t.volume.engine().run_as(Pool::User, |op| free_blocks(op, run.start, 5)).unwrap().1;
    // An operation that does not wait is told which transaction to wait for.
    let refused = t.volume.run(|op| match alloc_blocks(op, run.start, 5, Pool::Reserved) {
        Err(Error::NoSpaceYet(t)) => Ok(t),
        other => panic!("{other:?}"),
    });
    assert_eq!(refused.unwrap(), tid);
    // The volume waits, and then the same blocks are there.
    assert_eq!(t.volume.run(|op| alloc_blocks(op, run.start, 9, Pool::Reserved)).unwrap(), Run::new(run.start, 5));
    // Freed and wanted in one operation, with room elsewhere: something else is given.
    let other = Run::new(run.start.plus(20), 3);
    t.volume.run(|op| free_blocks(op, other.start, 3)).unwrap();
    t.volume.maintenance().commit().unwrap();
    let (a, b) = t
        .volume
        .run(|op| {
            free_blocks(op, run.start, 5)?;
            Ok((alloc_blocks(op, run.start, 2, Pool::Reserved)?, alloc_blocks(op, run.start, 2, Pool::Reserved)?))
        })
        .unwrap();
    assert_eq!((a, b), (Run::new(other.start, 2), Run::new(other.start.plus(2), 1)));
    t.volume.run(|op| alloc_blocks(op, run.start, 5, Pool::Reserved)).unwrap();
    // Freed and wanted in one operation: not even a commit helps.
    let both = t.volume.run(|op| {
        free_blocks(op, run.start, 5)?;
        alloc_blocks(op, run.start, 5, Pool::Reserved)
    });
    assert!(matches!(both, Err(Error::NoSpace)));
    free_all(&t, &runs);
    check(&t);
}

/// A3.
#[test]
fn claims_keep_others_out_and_leave_no_trace_on_disk() {
    let t = TestVolume::new("16M", &["-t", "ext4"]);
    let r = Request { goal: BlockNo(3000).into(), want: 64, pool: Pool::User, below: BIG };
    let a = t.volume.run(|op| claim(op, &r)).unwrap();
    let b = t.volume.run(|op| claim(op, &r)).unwrap();
    assert_eq!(a.run(), Run::new(BlockNo(3000), 64));
    assert_eq!(b.run(), Run::new(BlockNo(3064), 64));
    // An operation that fails does not end or make a claim.
    let failed = t.volume.run(|op| {
        mark_claimed(op, &a)?;
        let _ = claim(op, &r)?;
        Err::<(), _>(Error::NotFound)
    });
    assert!(matches!(failed, Err(Error::NotFound)));
    assert_eq!(t.volume.run(|op| alloc_blocks(op, BlockNo(3000), 1, Pool::User)).unwrap().start, BlockNo(3128));
    t.volume.run(|op| free_blocks(op, BlockNo(3128), 1)).unwrap();
    check(&t);
    t.volume
        .run(|op| {
            drop_claim(op, &b);
            Ok(())
        })
        .unwrap();
    t.volume.run(|op| mark_claimed(op, &a)).unwrap();
    let next = t.volume.run(|op| alloc_blocks(op, BlockNo(3000), 10, Pool::User)).unwrap();
    assert_eq!(next, Run::new(BlockNo(3064), 10));
    free_all(&t, &[a.run(), next]);
    check(&t);
}

/// Large files lie behind each other all round the image; what a deleted one leaves is not filled before that.
#[test]
fn long_runs_go_round_the_image_one_behind_the_other() {
    long_runs_go_round("40321K");
    // One group.
    long_runs_go_round("8000K");
}

fn long_runs_go_round(size: &str) {
    let t = TestVolume::new(size, &["-t", "ext4", "-b", "1024"]);
    let take = |at: Option<BlockNo>, want| {
        t.volume.run(|op| {
            let at = at.unwrap_or_else(|| start(op, GroupNo(0), true));
            alloc_with(op, &Request::new(Goal { at, long: true }, want, Pool::Reserved))
        })
    };
    let mut runs: Vec<Run> = (0..4).map(|_| take(None, 100).unwrap()).collect();
    assert!(runs.windows(2).all(|two| two[0].end() == two[1].start), "{runs:?}");
    let hole = runs.remove(2);
    t.volume.run(|op| free_blocks(op, hole.start, hole.len)).unwrap();
    t.volume.sync().unwrap();
    // One that can go on where it ends does; one that cannot goes with the others.
    let (first, second, behind) = (runs[0].end(), runs[1].end(), runs[2].end());
    runs.push(take(Some(second), 40).unwrap());
    runs.push(take(Some(first), 60).unwrap());
    assert_eq!((runs[3].start, runs[4].start), (hole.start, behind));
    let mut last = runs[4];
    loop {
        let run = take(None, 13).unwrap();
        runs.push(run);
        if run.start < last.start {
            break;
        }
        last = run;
    }
    let left = t.volume.run(|op| Ok(available(op))).unwrap();
    let round = runs.last().expect("the one that came round").start;
    assert!(left < 200 && round < hole.end(), "from {last:?} to {round}, {left} blocks left");
    free_all(&t, &runs);
    check(&t);
}

/// A5.
#[test]
fn a5_reservations_can_be_allocated() {
    let t = TestVolume::new("16M", &["-t", "ext4", "-m", "0"]);
    let room = t.volume.run(|op| Ok(op.tables().space.space(op.sb(), false).available)).unwrap();
    let data = Reservation::data;
    t.volume.run(|op| reserve(op, data(room - 10), Pool::User)).unwrap();
    assert!(matches!(t.volume.run(|op| reserve(op, data(11), Pool::User)), Err(Error::NoSpace)));
    let runs = take_all(&t, 100, Pool::User);
    assert_eq!(runs.iter().map(|r| r.len).sum::<u32>(), 10);
    t.volume
        .run(|op| {
            unreserve(op, data(room - 10));
            Ok(())
        })
        .unwrap();
    let rest = take_all(&t, 1000, Pool::User);
    assert_eq!(rest.iter().map(|r| u64::from(r.len)).sum::<u64>(), room - 10);
    free_all(&t, &runs);
    free_all(&t, &rest);
    check(&t);
}

/// A4.
#[test]
fn a4_freeing_what_is_free_or_the_file_systems_own_is_corruption() {
    let t = TestVolume::new("16M", &["-t", "ext4"]);
    let run = t.volume.run(|op| alloc_blocks(op, BlockNo(2000), 4, Pool::User)).unwrap();
    t.volume.run(|op| free_blocks(op, run.start, 4)).unwrap();
    let table = t.volume.run(|op| Ok(records::group(op, GroupNo(0))?.inode_table())).unwrap();
    let free = [(run.start, 1), (BlockNo(4095), 2)].map(|(b, n)| (b, n, Structure::BlockBitmap));
    let not_its_own = [(BlockNo(0), 1), (BlockNo(1), 1), (table, 2), (BIG, 1)];
    for (b, n, what) in free.into_iter().chain(not_its_own.map(|(b, n)| (b, n, Structure::BlockMap))) {
        let e = t.volume.run(|op| free_blocks(op, b, n)).unwrap_err();
        assert!(matches!(&e, Error::Corrupt(c) if c.structure == what), "{b}: {e}");
    }
    check(&t);
}

/// A7.
#[test]
fn a_bitmap_with_a_bit_changed_is_refused() {
    for args in [&["-t", "ext4"][..], &["-t", "ext3"]] {
        let t = TestVolume::new("16M", args);
        let (blocks, inodes) =
            t.volume.run(|op| records::group(op, GroupNo(0)).map(|d| (d.block_bitmap(), d.inode_bitmap()))).unwrap();
        let mut image = t.device.snapshot();
        let bs = t.volume.superblock().block_size();
        for b in [blocks, inodes] {
            image[usize::try_from(bs.offset(b)).unwrap() + 1] ^= 1;
        }
        let t = TestVolume::on(image, Options::default());
        let group = |op: &mut crate::txn::Op<'_>| records::group(op, GroupNo(0));
        let e = t.volume.run(|op| group(op).and_then(|d| super::group::block_bitmap(op, GroupNo(0), &d))).unwrap_err();
        assert!(
            matches!(&e, Error::Corrupt(c) if c.structure == Structure::BlockBitmap && c.block == Some(blocks)),
            "{e}"
        );
        let e = t.volume.run(|op| group(op).and_then(|d| super::group::inode_bitmap(op, GroupNo(0), &d))).unwrap_err();
        assert!(
            matches!(&e, Error::Corrupt(c) if c.structure == Structure::InodeBitmap && c.block == Some(inodes)),
            "{e}"
        );
        // A9: what is wanted is taken in the other group.
        let run = t.volume.run(|op| alloc_blocks(op, BlockNo(0), 1, Pool::User)).unwrap();
        assert_eq!(t.volume.superblock().group_of(run.start), Some(GroupNo(1)));
        let ino = t.volume.run(|op| alloc_inode(op, Ino::ROOT, mode::REG)).unwrap();
        assert!(ino.0 > t.volume.superblock().inodes_per_group(), "{ino}");
    }
}

#[test]
fn all_inodes_are_handed_out_once_and_unused_tables_are_zeroed_a6() {
    for args in IMAGES {
        let args = [args, &["-N", "600"][..]].concat();
        let mut image = quire_testkit::mke2fs("40321K", &args);
        spoil_unused_tables(&mut image);
        let t = TestVolume::on(image, Options::default());
        let sb = t.volume.superblock();
        let mut made = Vec::new();
        loop {
            let m = if made.len() % 3 == 0 { mode::DIR } else { mode::REG };
            let parent = if made.len() % 2 == 0 { Ino::ROOT } else { *made.last().unwrap_or(&Ino::ROOT) };
            let got = t.volume.run(|op| {
                let ino = alloc_inode(op, parent, m)?;
                assert!(records::inode(op, ino)?.raw().iter().all(|b| *b == 0), "{ino} holds what was on the disk");
                let (g, index) = ((ino.0 - 1) / sb.inodes_per_group(), (ino.0 - 1) % sb.inodes_per_group());
                let d = records::group(op, GroupNo(g))?;
                assert!(index < sb.inodes_per_group() - d.itable_unused(), "{ino} lies behind the border");
                let mut i = Inode::new(sb.inode_size(), 32);
                i.set_mode(m | 0o600);
                // Marked as free, but with a good checksum: what e2fsck wants of an inode that was deleted.
                i.set_dtime(1_700_000_000);
                records::put_inode(op, ino, &mut i)?;
                Ok(ino)
            });
            match got {
                Ok(ino) => made.push(ino),
                Err(Error::NoInodes) => break,
                Err(e) => panic!("{args:?}: {e}"),
            }
        }
        assert_eq!(made.len(), usize::try_from(sb.free_inodes()).unwrap(), "{args:?}");
        assert_eq!(made.iter().collect::<BTreeSet<_>>().len(), made.len());
        assert!(made.iter().all(|i| *i >= sb.first_ino()));
        for (n, ino) in made.iter().enumerate() {
            t.volume.run(|op| free_inode(op, *ino, n % 3 == 0)).unwrap();
            assert!(matches!(t.volume.run(|op| free_inode(op, *ino, false)), Err(Error::Corrupt(_))));
        }
        check(&t);
        assert_eq!(t.volume.run(|op| Ok(op.tables().space.free_inodes())).unwrap(), u64::from(sb.free_inodes()));
    }
}

/// Fills what was never used of the inode tables with rubbish, as a disk that held something else.
fn spoil_unused_tables(image: &mut [u8]) {
    let t = TestVolume::on(image.to_vec(), Options::default());
    if !t.volume.engine().context.has_lazy_groups() {
        return;
    }
    let sb = t.volume.superblock();
    for g in (0..sb.group_count()).map(GroupNo) {
        let d = t.volume.run(|op| records::group(op, g)).unwrap();
        let used = usize::try_from(sb.inodes_per_group() - d.itable_unused()).unwrap() * sb.inode_size();
        let start = usize::try_from(sb.block_size().offset(d.inode_table())).unwrap();
        let end = start + usize::try_from(sb.inodes_per_group()).unwrap() * sb.inode_size();
        image[start + used..end].fill(0xA5);
    }
}

#[test]
fn directories_at_the_top_are_spread_and_files_stay_with_their_directory() {
    let t = TestVolume::new("64M", &["-t", "ext4", "-b", "1024", "-G", "2"]);
    let sb = t.volume.superblock();
    let group = |i: Ino| (i.0 - 1) / sb.inodes_per_group();
    let tops: Vec<Ino> = (0..4).map(|_| t.volume.run(|op| alloc_inode(op, Ino::ROOT, mode::DIR)).unwrap()).collect();
    let units: BTreeSet<u32> = tops.iter().map(|i| group(*i) / 2).collect();
    assert!(units.len() >= 2, "{tops:?}");
    for dir in tops {
        let file = t.volume.run(|op| alloc_inode(op, dir, mode::REG)).unwrap();
        assert_eq!(group(file), group(dir));
    }
}

#[test]
fn trim_covers_what_is_free_and_nothing_else() {
    let t = TestVolume::new("40M", &["-t", "ext4", "-b", "1024"]);
    let held = t.volume.run(|op| claim(op, &Request::new(BlockNo(20_000), 500, Pool::User))).unwrap();
    let gone = t.volume.run(|op| alloc_blocks(op, BlockNo(30_000), 500, Pool::User)).unwrap();
    t.volume.maintenance().commit().unwrap();
    t.volume.run(|op| free_blocks(op, gone.start, gone.len)).unwrap();
    let mut seen = BTreeSet::new();
    let mut at = Some(BlockNo(0));
    while let Some(from) = at {
        let step = t.volume.run(|op| trim_next(op, from, &(BlockNo(0)..BIG), 1)).unwrap();
        for c in &step.claims {
            for n in 0..u64::from(c.run().len) {
                assert!(seen.insert(c.run().start.0 + n));
            }
        }
        t.volume
            .run(|op| {
                trim_done(op, &step.claims);
                Ok(())
            })
            .unwrap();
        at = step.next;
    }
    let free = t.volume.run(|op| Ok(op.tables().space.free_blocks())).unwrap();
    assert_eq!(u64::try_from(seen.len()).unwrap(), free - 1000);
    assert!(!seen.contains(&held.run().start.0) && !seen.contains(&gone.start.0));
    let step = t.volume.run(|op| trim_next(op, BlockNo(0), &(BlockNo(0)..BIG), 100_000)).unwrap();
    assert!(step.claims.is_empty());
    t.volume
        .run(|op| {
            drop_claim(op, &held);
            Ok(())
        })
        .unwrap();
    // What is in use is untouched by a discard, which the memory device does with zeros.
    t.volume.maintenance().commit().unwrap();
    let bytes = t.volume.maintenance().trim(0, u64::MAX, 0).unwrap();
    assert_eq!(bytes, free * 1024);
    check(&t);
    assert!(matches!(t.volume.maintenance().trim(u64::MAX - 4096, 8192, 0), Err(Error::Invalid(_))));
}

#[test]
fn freed_blocks_are_discarded_when_their_freeing_is_durable() {
    let t =
        TestVolume::on(quire_testkit::mke2fs("16M", &["-t", "ext4"]), Options { discard: true, ..Options::default() });
    let run = t.volume.run(|op| alloc_blocks(op, BlockNo(2000), 50, Pool::User)).unwrap();
    t.volume.maintenance().commit().unwrap();
    t.volume.run(|op| free_blocks(op, run.start, run.len)).unwrap();
    assert_eq!(t.volume.engine().discard_freed().unwrap(), 0, "not durable yet");
    t.volume.maintenance().commit().unwrap();
    assert_eq!(t.volume.engine().discard_freed().unwrap(), 50 * 1024);
    assert_eq!(t.volume.run(|op| alloc_blocks(op, run.start, 50, Pool::User)).unwrap(), run);
    t.volume.run(|op| free_blocks(op, run.start, run.len)).unwrap();
    // The background step does the same.
    t.volume.maintenance().commit().unwrap();
    while t.volume.maintenance().step().unwrap() == crate::Step::Did {}
    assert_eq!(t.volume.engine().discard_freed().unwrap(), 0);
    t.volume.run(|op| alloc_blocks(op, run.start, 50, Pool::User)).unwrap();
    t.volume.run(|op| free_blocks(op, run.start, run.len)).unwrap();
    // A disk that is full but for undiscarded blocks is not full.
    let runs = take_all(&t, 100_000, Pool::Reserved);
    assert!(runs.iter().any(|r| (r.start..r.end()).contains(&run.start)));
}

/// A10: blocks that another thread is discarding are waited for; the disk is not full.
#[test]
fn blocks_that_are_being_discarded_are_waited_for() {
    let image = quire_testkit::mke2fs("16M", &["-t", "ext4"]);
    let t = TestVolume::on(image, Options { discard: true, ..Options::default() });
    let runs = take_all(&t, 100_000, Pool::Reserved);
    t.volume.maintenance().commit().unwrap();
    t.volume.run(|op| free_blocks(op, runs[0].start, 5)).unwrap();
    t.volume.maintenance().commit().unwrap();
    let (discarding, taken) = t.volume.engine().take_for_discard();
    assert_eq!(taken, [Run::new(runs[0].start, 5)]);
    std::thread::scope(|scope| {
        let wants = scope.spawn(|| t.volume.run(|op| alloc_blocks(op, runs[0].start, 5, Pool::Reserved)));
        std::thread::sleep(std::time::Duration::from_millis(50));
        t.volume.engine().tables().space.release(&taken);
        drop(discarding);
        assert_eq!(wants.join().unwrap().unwrap(), taken[0]);
    });
}

/// Without the option, a full disk is no reason to discard.
#[test]
fn nothing_is_discarded_for_space_without_the_option() {
    let image = quire_testkit::mke2fs("16M", &["-t", "ext4"]);
    let t = TestVolume::on(image, Options::default());
    let runs = take_all(&t, 100_000, Pool::Reserved);
    let (device, marked) = (t.volume.engine().journal.gate().device().clone(), runs[0].start.0 * 1024);
    let bytes = Buf::copy_of(&[7; 1024]);
    device.write(marked, Arc::new(bytes), Region::Data).unwrap();
    t.volume.maintenance().commit().unwrap();
    t.volume.run(|op| free_blocks(op, runs[0].start, 5)).unwrap();
    t.volume.run(|op| alloc_blocks(op, runs[0].start, 5, Pool::Reserved)).unwrap();
    assert_eq!(&device.read(marked, 1024, Region::Data).unwrap()[..], &[7; 1024], "it was discarded");
}

#[test]
fn counts_agree_with_dumpe2fs() {
    for args in IMAGES {
        let t = TestVolume::new("40321K", args);
        let space = t.volume.run(|op| Ok(op.tables().space.space(op.sb(), false))).unwrap();
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), t.device.snapshot()).unwrap();
        let out = tool("dumpe2fs", &["-h", file.path().to_str().unwrap()]);
        let field = |name: &str| -> u64 {
            let line = out.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("{name}"));
            line.rsplit(' ').next().unwrap().parse().unwrap()
        };
        assert_eq!(space.free, field("Free blocks:"));
        assert_eq!(space.free_inodes, field("Free inodes:"));
        if out.contains("Overhead clusters:") {
            assert_eq!(space.blocks, field("Block count:") - field("Overhead clusters:"), "{args:?}");
        }
    }
}

#[test]
fn the_topdir_flag_spreads() {
    let t = TestVolume::new("64M", &["-t", "ext4", "-b", "1024", "-G", "2"]);
    let groups: BTreeSet<u32> = (0..4)
        .map(|_| {
            let ino = t.volume.run(|op| {
                let mut lost = records::inode(op, Ino(11))?;
                lost.set_flags(lost.flags() | flags::TOPDIR);
                records::put_inode(op, Ino(11), &mut lost)?;
                alloc_inode(op, Ino(11), mode::DIR)
            });
            (ino.unwrap().0 - 1) / t.volume.superblock().inodes_per_group() / 2
        })
        .collect();
    assert!(groups.len() >= 2, "{groups:?}");
}
