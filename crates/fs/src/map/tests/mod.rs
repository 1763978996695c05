//! Map tests: random changes against a model that maps block by block, on images of mke2fs, judged by e2fsck.

mod bound;
mod damage;
mod full_disk;
mod kernel;
mod scale;

pub(super) use super::*;
pub(super) use crate::error::{Error, Result};
use crate::records;
use crate::space::{Run, alloc_blocks, free_blocks};
use crate::testing::TestVolume;
pub(super) use crate::txn::Op;
use crate::{Options, space::Pool};
pub(super) use quire_layout::inode::Inode;
pub(super) use quire_layout::{BlockNo, BlockSize, FileBlock, Ino, Structure, indirect as imap};
use quire_testkit::{fsck, mke2fs, run as tool};
use std::collections::BTreeMap;

/// A volume with one empty file.
fn with_file(size: &str, args: &[&str]) -> (TestVolume, Ino) {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), b"").unwrap();
    let from = dir.path().to_str().unwrap();
    let image = mke2fs(size, &[args, &["-d", from]].concat());
    (TestVolume::on(image, Options::default()), Ino(12))
}

fn check(t: &TestVolume) {
    t.volume.maintenance().freeze().unwrap();
    fsck(&t.device.snapshot());
    t.volume.maintenance().thaw().unwrap();
}

/// Changes the file in one operation.
fn change<T>(t: &TestVolume, ino: Ino, mut f: impl FnMut(&mut Op<'_>, &mut Inode) -> Result<T>) -> Result<T> {
    t.volume.run(|op| {
        let mut inode = records::inode(op, ino)?;
        let r = f(op, &mut inode)?;
        let bs = op.sb().block_size().bytes64();
        let last = extents(op, ino, &inode, FileBlock(0), usize::MAX)?.last().map_or(0, |e| u64::from(e.end().0));
        inode.set_size(last * bs);
        records::put_inode(op, ino, &mut inode)?;
        Ok(r)
    })
}

/// Blocks where the file would have them next.
fn alloc_near(op: &mut Op<'_>, ino: Ino, inode: &Inode, at: FileBlock, n: u32) -> Result<Run> {
    let goal = goal(op, ino, inode, at, n)?.at;
    alloc_blocks(op, goal, n, Pool::User)
}

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        u32::try_from((self.0 >> 11) % u64::from(n)).unwrap()
    }
}

/// Names the seed of a test that fails, and how to run it again.
struct Seed(u64, &'static str);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("repeat: QUIRE_SEED={} cargo test -p quire-fs --lib {}", self.0, self.1);
        }
    }
}

fn seeds(n: u64) -> Vec<u64> {
    match std::env::var("QUIRE_SEED") {
        Ok(s) => vec![s.parse().expect("QUIRE_SEED is a number")],
        Err(_) => (1..=n).collect(),
    }
}

/// Each mapped file block: disk block, unwritten.
type Model = BTreeMap<u32, (u64, bool)>;

fn read_back(t: &TestVolume, ino: Ino) -> Model {
    let mut m = Model::new();
    let found = t.volume.run(|op| {
        let inode = records::inode(op, ino)?;
        extents(op, ino, &inode, FileBlock(0), usize::MAX)
    });
    for e in found.unwrap() {
        for n in 0..e.len {
            assert!(m.insert(e.at.0 + n, (e.phys.0 + u64::from(n), e.unwritten)).is_none(), "E1");
        }
    }
    m
}

/// Walks the whole tree: every node has entries (but the root of an empty file), and every index entry has its child's
/// first key (E2). Returns the nodes.
fn check_tree(t: &TestVolume, ino: Ino) -> u32 {
    fn walk(op: &mut Op<'_>, ino: Ino, inode: &Inode, node: Option<BlockNo>, key: Option<FileBlock>) -> Result<u32> {
        let (first, children) = tree::view(op, ino, inode, node, |n| {
            let first = (n.entries() > 0).then(|| n.key(0));
            let children = if n.depth() == 0 { 0 } else { n.entries() };
            (first, (0..children).map(|i| n.index(i)).collect::<Vec<_>>())
        })?;
        assert!(key.is_none() || first == key, "E2: {key:?} leads to {first:?}");
        if let (None, [only]) = (node, &children[..]) {
            let entries = tree::view(op, ino, inode, Some(only.child), |n| n.entries())?;
            assert!(entries > 4, "{entries} entries would fit in the root");
        }
        let mut nodes = 1;
        for c in children {
            nodes += walk(op, ino, inode, Some(c.child), Some(c.at))?;
        }
        Ok(nodes)
    }
    let nodes = t.volume.run(|op| {
        let inode = records::inode(op, ino)?;
        if inode.uses_extents() { walk(op, ino, &inode, None, None) } else { Ok(0) }
    });
    nodes.unwrap()
}

/// Lookup says the same as the model, block by block and in runs.
fn check_lookups(t: &TestVolume, ino: Ino, m: &Model, rng: &mut Rng, space: u32) {
    for _ in 0..20 {
        let at = rng.below(space);
        let got = t
            .volume
            .run(|op| {
                let inode = records::inode(op, ino)?;
                lookup(op, ino, &inode, FileBlock(at), 50)
            })
            .unwrap();
        match got {
            Mapping::Hole { len } => assert!((at..at + len).all(|b| !m.contains_key(&b)), "hole at {at}"),
            Mapping::Mapped { phys, len, unwritten } => {
                for n in 0..len {
                    assert_eq!(m.get(&(at + n)), Some(&(phys.0 + u64::from(n), unwritten)), "at {at}+{n}");
                }
            }
        }
    }
}

/// Removes a range in as many operations as the budget wants.
fn remove_in_steps(t: &TestVolume, ino: Ino, from: u32, to: u32, budget: usize) {
    let mut to = FileBlock(to);
    let mut steps = 0;
    loop {
        let done = change(t, ino, |op, i| remove(op, ino, i, FileBlock(from), to, budget)).unwrap();
        let Some(next) = done.next else { return };
        assert!(next < to, "a step makes progress");
        to = next;
        steps += 1;
        assert!(steps < 10_000);
    }
}

fn one_step(t: &TestVolume, ino: Ino, m: &mut Model, rng: &mut Rng, space: u32, unwritten_ok: bool) {
    let at = rng.below(space);
    let longest = if rng.below(8) == 0 { 300 } else { 12 };
    let len = 1 + rng.below(longest);
    let end = (at + len).min(space);
    match rng.below(if unwritten_ok { 10 } else { 6 }) {
        0..=3 => {
            // Fill the holes of a range, piece by piece.
            let unwritten = unwritten_ok && rng.below(2) == 0;
            let mut b = at;
            while b < end {
                let hole = u32::try_from((b..end).take_while(|x| !m.contains_key(x)).count()).unwrap();
                if hole == 0 {
                    b += 1;
                    continue;
                }
                // Half of the time from anywhere, so that extents do not merge.
                let (far, n) = (rng.below(2) == 0, 1 + rng.below(3).min(hole - 1));
                let from = BlockNo(u64::from(rng.below(24_000)));
                let run = change(t, ino, |op, i| {
                    let goal = if far { from } else { goal(op, ino, i, FileBlock(b), hole)?.at };
                    let run = alloc_blocks(op, goal, if far { n } else { hole }, Pool::User)?;
                    insert(op, ino, i, FileBlock(b), run.start, run.len, unwritten)?;
                    Ok(run)
                })
                .unwrap();
                for n in 0..run.len {
                    m.insert(b + n, (run.start.0 + u64::from(n), unwritten));
                }
                b += run.len;
            }
        }
        4 | 5 => {
            let budget = [1, 3, 1000][usize::try_from(rng.below(3)).unwrap()];
            remove_in_steps(t, ino, at, end, budget);
            m.retain(|b, _| *b < at || *b >= end);
        }
        6 | 7 => {
            let kind = rng.below(2) == 0;
            change(t, ino, |op, i| {
                let f = if kind { mark_unwritten } else { convert_written };
                f(op, ino, i, FileBlock(at), end - at)
            })
            .unwrap();
            for (_, v) in m.range_mut(at..end) {
                v.1 = kind;
            }
        }
        8 => {
            remove_in_steps(t, ino, at, end, 1000);
            let budget = [1, 1000][usize::try_from(rng.below(2)).unwrap()];
            let mut from = Some(FileBlock(end));
            while let Some(f) = from {
                from = change(t, ino, |op, i| shift_left(op, ino, i, f, end - at, budget)).unwrap();
            }
            m.retain(|b, _| *b < at || *b >= end);
            *m = std::mem::take(m).into_iter().map(|(b, v)| (if b >= end { b - (end - at) } else { b }, v)).collect();
        }
        _ => {
            let by = 1 + rng.below(5);
            let budget = [1, 1000][usize::try_from(rng.below(2)).unwrap()];
            change(t, ino, |op, i| split_for_shift(op, ino, i, FileBlock(at), by)).unwrap();
            let mut to = None;
            loop {
                to = change(t, ino, |op, i| shift_right(op, ino, i, FileBlock(at), by, to, budget)).unwrap();
                if to.is_none() {
                    break;
                }
            }
            *m = std::mem::take(m).into_iter().map(|(b, v)| (if b >= at { b + by } else { b }, v)).collect();
        }
    }
}

/// Every second file block, from all over the disk: more extents than a root of leaves holds.
fn fragment(t: &TestVolume, ino: Ino, m: &mut Model, rng: &mut Rng) {
    let mut left: Vec<u32> = (0..2000).map(|n| n * 2).collect();
    while !left.is_empty() {
        let part: Vec<(u32, u64)> = (0..100.min(left.len()))
            .map(|_| {
                let n = rng.below(u32::try_from(left.len()).unwrap());
                (left.swap_remove(usize::try_from(n).unwrap()), u64::from(rng.below(24_000)))
            })
            .collect();
        let made = change(t, ino, |op, i| {
            part.iter()
                .map(|(b, from)| {
                    let run = alloc_blocks(op, BlockNo(*from), 1, Pool::User)?;
                    insert(op, ino, i, FileBlock(*b), run.start, 1, b % 8 == 0)?;
                    Ok((*b, (run.start.0, b % 8 == 0)))
                })
                .collect::<Result<Vec<_>>>()
        });
        m.extend(made.unwrap());
    }
}

fn random_changes(args: &[&str], seed: u64, steps: u32, unwritten_ok: bool, name: &'static str) {
    let _named = Seed(seed, name);
    let (t, ino) = with_file("24M", args);
    let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let free = t.volume.run(|op| Ok(op.tables().space.free_blocks())).unwrap();
    let mut m = Model::new();
    let space = 4000;
    let mut most = 0;
    if unwritten_ok {
        fragment(&t, ino, &mut m, &mut rng);
    }
    for step in 0..steps {
        one_step(&t, ino, &mut m, &mut rng, space, unwritten_ok);
        most = most.max(check_tree(&t, ino));
        if step % 16 == 0 {
            assert_eq!(read_back(&t, ino), m, "{args:?} seed {seed} step {step}");
            check_lookups(&t, ino, &m, &mut rng, space);
        }
    }
    assert!(most > 6 || !unwritten_ok, "{args:?}: a tree of {most} nodes tries nothing");
    assert_eq!(read_back(&t, ino), m);
    check(&t);
    // A fresh mount reads the same; then everything goes.
    let again = TestVolume::on(t.device.snapshot(), Options::default());
    assert_eq!(read_back(&again, ino), m);
    remove_in_steps(&again, ino, 0, u32::MAX, 40);
    assert_eq!(read_back(&again, ino), Model::new());
    let left = again.volume.run(|op| {
        let i = records::inode(op, ino)?;
        Ok((i.sectors(op.sb().features(), 4096), op.tables().space.free_blocks()))
    });
    assert_eq!(left.unwrap(), (0, free), "E3, E4");
    again.check();
}

/// E1 to E4.
#[test]
fn extents_agree_with_a_model() {
    const KINDS: &[&[&str]] = &[
        &["-t", "ext4", "-b", "1024"],
        &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,^64bit,uninit_bg"],
        &["-t", "ext4", "-b", "2048", "-O", "^flex_bg,meta_bg,^resize_inode"],
        &["-t", "ext4", "-b", "1024", "-O", "^huge_file,^metadata_csum", "-I", "128"],
    ];
    for seed in seeds(3) {
        for args in KINDS {
            random_changes(args, seed, 250, true, "extents_agree_with_a_model");
        }
    }
}

#[test]
fn indirect_maps_agree_with_a_model() {
    for seed in seeds(2) {
        for args in [&["-t", "ext3", "-b", "1024"][..], &["-t", "ext2", "-b", "4096"]] {
            random_changes(args, seed, 250, false, "indirect_maps_agree_with_a_model");
        }
    }
}

#[test]
fn long_runs_are_cut_into_extents_of_legal_length() {
    let (t, ino) = with_file("300M", &["-t", "ext4", "-b", "1024", "-O", "^has_journal", "-g", "8192"]);
    let run = Run::new(BlockNo(20_000), 1);
    // One extent of 32768 written blocks, made from pieces that touch; then all of it unwritten.
    let start = change(&t, ino, |op, i| {
        let first = alloc_blocks(op, run.start, 6000, Pool::User)?;
        insert(op, ino, i, FileBlock(0), first.start, first.len, false)?;
        let mut at = first.len;
        while at < 40_000 {
            let n = alloc_near(op, ino, i, FileBlock(at), 40_000 - at)?;
            insert(op, ino, i, FileBlock(at), n.start, n.len, false)?;
            at += n.len;
        }
        Ok(first.start)
    })
    .unwrap();
    assert!(start.0 > 0);
    let written = read_back(&t, ino);
    assert_eq!(written.len(), 40_000);
    change(&t, ino, |op, i| mark_unwritten(op, ino, i, FileBlock(0), 40_000)).unwrap();
    assert!(read_back(&t, ino).values().all(|v| v.1));
    check(&t);
    change(&t, ino, |op, i| convert_written(op, ino, i, FileBlock(0), 40_000)).unwrap();
    assert_eq!(read_back(&t, ino), written);
    check(&t);
}

#[test]
fn an_extent_of_32768_blocks_becomes_unwritten_in_two() {
    // No backups of the superblock, so that free space runs across groups.
    let args = ["-t", "ext4", "-b", "4096", "-O", "^has_journal,sparse_super2,^resize_inode", "-E", "num_backup_sb=0"];
    let (t, ino) = with_file("200M", &args);
    change(&t, ino, |op, i| {
        let mut at = 0;
        while at < 32768 {
            let n = alloc_blocks(op, BlockNo(10_000 + u64::from(at)), 32768 - at, Pool::User)?;
            insert(op, ino, i, FileBlock(at), n.start, n.len, false)?;
            at += n.len;
        }
        Ok(())
    })
    .unwrap();
    let all = || {
        let found = t.volume.run(|op| {
            let inode = records::inode(op, ino)?;
            extents(op, ino, &inode, FileBlock(0), 10)
        });
        found.unwrap().iter().map(|e| (e.at.0, e.len, e.unwritten)).collect::<Vec<_>>()
    };
    assert_eq!(all(), [(0, 32768, false)]);
    check(&t);
    change(&t, ino, |op, i| mark_unwritten(op, ino, i, FileBlock(0), 32768)).unwrap();
    assert_eq!(all(), [(0, 32767, true), (32767, 1, true)]);
    check(&t);
    change(&t, ino, |op, i| convert_written(op, ino, i, FileBlock(100), 5)).unwrap();
    assert_eq!(all(), [(0, 100, true), (100, 5, false), (105, 32663, true)]);
    check(&t);
}

/// Every extent of a deep tree loses its head, then its head changes kind: first entries of leaves change their key.
#[test]
fn keys_above_follow_the_first_entry_of_a_leaf() {
    let (t, ino) = with_file("24M", &["-t", "ext4", "-b", "1024"]);
    let n = 600;
    for e in 0..n {
        change(&t, ino, |op, i| {
            let run = alloc_blocks(op, BlockNo(3000 + u64::from(e % 2) * 9000 + u64::from(e) * 4), 3, Pool::User)?;
            assert_eq!(run.len, 3);
            insert(op, ino, i, FileBlock(e * 5), run.start, 3, false)
        })
        .unwrap();
    }
    assert!(check_tree(&t, ino) > 6);
    for e in (0..n).rev() {
        remove_in_steps(&t, ino, e * 5, e * 5 + 1, 100);
        check_tree(&t, ino);
    }
    check(&t);
    for e in (0..n).filter(|e| e % 3 != 1) {
        change(&t, ino, |op, i| mark_unwritten(op, ino, i, FileBlock(e * 5 + 1), 1)).unwrap();
        check_tree(&t, ino);
    }
    check(&t);
    for e in 0..n {
        remove_in_steps(&t, ino, e * 5, e * 5 + 5, 100);
        check_tree(&t, ino);
    }
    assert_eq!(read_back(&t, ino), Model::new());
    check(&t);
}

#[test]
fn limits_of_the_file_are_typed() {
    let (t, ino) = with_file("24M", &["-t", "ext4"]);
    let last = FileBlock(u32::MAX - 1);
    change(&t, ino, |op, i| allocate(op, ino, i, last, 1, Pool::User)).unwrap();
    assert!(matches!(change(&t, ino, |op, i| allocate(op, ino, i, last, 2, Pool::User)), Err(Error::TooLarge)));
    let far = change(&t, ino, |op, i| split_for_shift(op, ino, i, FileBlock(5), 1));
    assert!(matches!(far, Err(Error::TooLarge)));
    let (t, ino) = with_file("24M", &["-t", "ext3", "-b", "1024"]);
    let end = FileBlock(u32::try_from(imap::file_blocks(BlockSize::K1)).unwrap());
    change(&t, ino, |op, i| allocate(op, ino, i, FileBlock(end.0 - 1), 1, Pool::User)).unwrap();
    assert!(matches!(change(&t, ino, |op, i| allocate(op, ino, i, end, 1, Pool::User)), Err(Error::TooLarge)));
    let shift = change(&t, ino, |op, i| shift_left(op, ino, i, FileBlock(5), 1, 100));
    assert!(matches!(shift, Err(Error::NotSupported(_))));
    check(&t);
}

/// Runs of a file as debugfs sees them: logical, physical, unwritten.
fn as_debugfs_sees(image: &std::path::Path, path: &str) -> Model {
    let out = tool("debugfs", &["-R", &format!("dump_extents -l {path}"), image.to_str().unwrap()]);
    let mut m = Model::new();
    for line in out.lines().filter(|l| l.contains('/') && l.contains('-') && !l.contains("Level")) {
        let nums: Vec<u64> =
            line.split(|c: char| !c.is_ascii_digit()).filter(|s| !s.is_empty()).map(|s| s.parse().unwrap()).collect();
        // level/depth entry/entries logical-logical physical-physical length
        for (n, b) in (nums[4]..=nums[5]).enumerate() {
            m.insert(u32::try_from(b).unwrap(), (nums[6] + u64::try_from(n).unwrap(), line.contains("Uninit")));
        }
    }
    m
}

#[test]
fn debugfs_sees_the_same_tree() {
    let (t, ino) = with_file("24M", &["-t", "ext4", "-b", "1024"]);
    let mut rng = Rng(99);
    for _ in 0..300 {
        let at = FileBlock(rng.below(3000));
        let unwritten = rng.below(2) == 0;
        change(&t, ino, |op, i| match lookup(op, ino, i, at, 1)? {
            Mapping::Mapped { .. } => Ok(()),
            Mapping::Hole { .. } => {
                let run = alloc_near(op, ino, i, at, 1)?;
                insert(op, ino, i, at, run.start, 1, unwritten)
            }
        })
        .unwrap();
    }
    let m = read_back(&t, ino);
    t.volume.close().unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), t.device.snapshot()).unwrap();
    assert_eq!(as_debugfs_sees(file.path(), "/f"), m);
}
