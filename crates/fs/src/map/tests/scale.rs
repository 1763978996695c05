//! Long maps and large images: the cost of a step does not grow with the file or the file system (E5).

use super::*;
use crate::map::rules::STEP_BLOCKS;
use crate::records;
use crate::{Devices, Volume};
use quire_device::sync::Arc;
use quire_device::{FileDevice, OpenOptions, SystemClock};
use std::time::{Duration, Instant};

/// A file whose every block is an extent of its own: `n` of them.
fn many_extents(n: u32, size: &str) -> (TestVolume, Ino) {
    let (t, ino) = with_file(size, &["-t", "ext4", "-b", "1024", "-O", "^has_journal", "-m", "0"]);
    let mut at = 0;
    while at < n {
        let upto = n.min(at + 2000);
        t.volume
            .run(|op| {
                let mut i = records::inode(op, ino)?;
                let mut b = at;
                while b < upto {
                    let run = alloc_near(op, ino, &i, FileBlock(b * 2), upto - b)?;
                    for k in 0..run.len {
                        let phys = run.start.plus(u64::from(k));
                        insert(op, ino, &mut i, FileBlock((b + k) * 2), phys, 1, false)?;
                    }
                    b += run.len;
                }
                i.set_size(u64::from(upto) * 2 * 1024);
                records::put_inode(op, ino, &mut i)
            })
            .unwrap();
        at = upto;
    }
    (t, ino)
}

#[test]
fn many_extents_are_found_cut_and_removed_within_budgets_e5() {
    let n = 30_000;
    let (t, ino) = many_extents(n, "64M");
    check(&t);
    let m = read_back(&t, ino);
    assert_eq!(m.len(), usize::try_from(n).unwrap());
    let touched = t.volume.run(|op| {
        let mut i = records::inode(op, ino)?;
        lookup(op, ino, &i, FileBlock(31_111), 1)?;
        convert_written(op, ino, &mut i, FileBlock(0), 10)?;
        remove(op, ino, &mut i, FileBlock(31_000), FileBlock(31_010), 1000)?;
        records::put_inode(op, ino, &mut i)?;
        Ok(op.touched())
    });
    assert!(touched.unwrap() < 16);
    let mut to = FileBlock(u32::MAX);
    let mut steps = 0;
    loop {
        let (done, touched) = t
            .volume
            .run(|op| {
                let mut i = records::inode(op, ino)?;
                let r = remove(op, ino, &mut i, FileBlock(0), to, 64)?;
                i.set_size(u64::from(r.next.map_or(0, |b| b.0)) * 1024);
                records::put_inode(op, ino, &mut i)?;
                Ok((r, op.touched()))
            })
            .unwrap();
        assert!(touched <= 64 + STEP_BLOCKS, "{touched}");
        steps += 1;
        if steps % 5 == 1 {
            check(&t);
        }
        match done.next {
            Some(next) => to = next,
            None => break,
        }
    }
    assert!(steps > 3, "{steps}");
    check(&t);
}

#[test]
fn two_hundred_thousand_extents() {
    let begin = std::time::Instant::now();
    let (t, ino) = many_extents(200_000, "512M");
    println!("inserted in {:?}", begin.elapsed());
    check(&t);
    assert_eq!(read_back(&t, ino).len(), 200_000);
    let begin = std::time::Instant::now();
    let mut to = FileBlock(u32::MAX);
    while let Some(next) = change(&t, ino, |op, i| remove(op, ino, i, FileBlock(0), to, 500)).unwrap().next {
        to = next;
    }
    println!("removed in {:?}", begin.elapsed());
    check(&t);
}

/// A sparse image of 12 TiB with a sparse file of 4 TiB.
#[test]
fn sparse_file_of_4_tib_on_12_tib() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    file.as_file()
        .set_len(12 << 40)
        .expect("TMPDIR allows a sparse file of 12 TiB: ext4 with 4 KiB blocks, XFS, tmpfs");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("f"), b"").unwrap();
    let from = dir.path().to_str().unwrap();
    tool(
        "mke2fs",
        &["-q", "-F", "-t", "ext4", "-E", "nodiscard,lazy_itable_init=1", "-J", "size=16", "-d", from, path],
    );
    let begin = Instant::now();
    let device = Arc::new(FileDevice::open(file.path(), OpenOptions::default()).unwrap());
    let v = Volume::open(Devices::one(device), Arc::new(SystemClock), Options::default()).unwrap();
    let mount = begin.elapsed();
    assert!(v.superblock().group_count() > 98_000);
    let ino = Ino(12);
    let begin = Instant::now();
    let mut rng = Rng(5);
    let mut made = BTreeMap::new();
    let end = FileBlock(u32::try_from((4u64 << 40) / 4096).unwrap());
    for n in 0..500 {
        let at = FileBlock(if n == 0 { end.0 - 1 } else { rng.below(end.0 - 1) });
        let phys = v.run(|op| {
            let mut i = records::inode(op, ino)?;
            i.set_size(4 << 40);
            if let Mapping::Mapped { phys, .. } = lookup(op, ino, &i, at, 1)? {
                return Ok(phys);
            }
            // Blocks from all over the disk, too.
            let far = BlockNo(u64::from(rng.below(u32::MAX)) * 3 % op.sb().blocks_count());
            let run = alloc_blocks(op, far, 1, Pool::User)?;
            insert(op, ino, &mut i, at, run.start, 1, false)?;
            records::put_inode(op, ino, &mut i)?;
            Ok(run.start)
        });
        made.insert(at.0, phys.unwrap());
    }
    let filled = begin.elapsed();
    v.maintenance().commit().unwrap();
    for (at, phys) in &made {
        let got = v.run(|op| {
            let i = records::inode(op, ino)?;
            lookup(op, ino, &i, FileBlock(*at), 1)
        });
        assert_eq!(got.unwrap().written(), Some(*phys));
    }
    v.close().unwrap();
    println!("mount {mount:?}, 500 blocks {filled:?}");
    assert!(
        mount < Duration::from_secs(10) && filled < Duration::from_secs(20),
        "mount {mount:?}, 500 blocks {filled:?}"
    );
    // A full check of 98,304 groups takes e2fsck half a minute; debugfs reads the file's map, which is what changed.
    let out = tool("debugfs", &["-c", "-R", "stat /f", path]);
    assert!(out.contains("Size: 4398046511104"), "{out}");
    let m = as_debugfs_sees(file.path(), "/f");
    assert_eq!(m.len(), made.len());
    assert!(m.iter().all(|(b, (phys, _))| made[b].0 == *phys));
}
