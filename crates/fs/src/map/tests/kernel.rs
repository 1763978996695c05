//! The kernel's files as we map them, and ours as the kernel reads them. Skipped where loop mounts are not possible.

use super::*;
use crate::records;
use quire_testkit::Mounted;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::process::Command;

const KINDS: &[&[&str]] = &[
    &["-t", "ext4", "-b", "1024"],
    &["-t", "ext4", "-b", "4096", "-O", "^64bit,^metadata_csum,uninit_bg"],
    &["-t", "ext4", "-b", "2048", "-O", "meta_bg,^resize_inode"],
    &["-t", "ext4", "-b", "4096", "-O", "bigalloc", "-C", "16384"],
    &["-t", "ext3", "-b", "1024"],
];

/// What a block of a test file holds.
fn content(file: u32, block: u32, bs: usize) -> Vec<u8> {
    let mut b = vec![u8::try_from(block % 251).unwrap() ^ 0x5A; bs];
    b[..8].copy_from_slice(&(u64::from(file) << 32 | u64::from(block)).to_le_bytes());
    b
}

/// Two files that the kernel writes in turns, with holes, punched and preallocated parts.
fn kernel_writes(dir: &std::path::Path, bs: usize) -> Vec<BTreeMap<u32, bool>> {
    let files: Vec<File> = (0..2).map(|n| File::create(dir.join(format!("f{n}"))).unwrap()).collect();
    let mut maps = vec![BTreeMap::new(), BTreeMap::new()];
    let mut rng = Rng(77);
    for round in 0..400 {
        for (n, f) in files.iter().enumerate() {
            let at = rng.below(6000);
            for b in at..at + 1 + rng.below(4) {
                let data = content(u32::try_from(n).unwrap(), b, bs);
                f.write_all_at(&data, u64::from(b) * bs as u64).unwrap();
                maps[n].insert(b, true);
            }
            if round % 8 == 0 {
                f.sync_all().unwrap();
            }
        }
    }
    for (n, map) in maps.iter_mut().enumerate() {
        let path = dir.join(format!("f{n}"));
        let at = |b: u32| (u64::from(b) * bs as u64).to_string();
        let run = |args: &[&str]| Command::new("fallocate").args(args).arg(&path).status().unwrap().success();
        if run(&["-p", "-o", &at(1000), "-l", &at(500)]) {
            map.retain(|b, _| !(1000..1500).contains(b));
        }
        // Unwritten where nothing was; indirect maps refuse.
        if run(&["-n", "-o", &at(7000), "-l", &at(64)]) {
            map.extend((7000..7064).map(|b| (b, false)));
        }
    }
    maps
}

#[test]
#[ignore = "needs root and loop mounts"]
fn what_the_kernel_wrote_is_mapped_the_same() {
    for args in KINDS {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), mke2fs("64M", args)).unwrap();
        let m = Mounted::new(file.path(), "loop");
        let bs = std::fs::metadata(file.path()).map(|_| block_size(args)).unwrap();
        let expected = kernel_writes(m.at.path(), bs);
        drop(m);
        let image = std::fs::read(file.path()).unwrap();
        let t = TestVolume::on(image.clone(), Options::default());
        for (n, expected) in (0u32..).zip(&expected) {
            let stat = tool("debugfs", &["-R", &format!("stat /f{n}"), file.path().to_str().unwrap()]);
            let ino = Ino(stat.split_whitespace().nth(1).unwrap().parse().unwrap());
            let map = read_back(&t, ino);
            for (b, written) in expected {
                let (phys, unwritten) = map.get(b).unwrap_or_else(|| panic!("{args:?}: f{n} block {b} is a hole"));
                assert_eq!(*unwritten, !written, "{args:?}: f{n} block {b}");
                if *written {
                    let at = usize::try_from(*phys).unwrap() * bs;
                    assert_eq!(&image[at..at + bs], content(n, *b, bs), "{args:?}: f{n} block {b}");
                }
            }
            // Nothing else is there, but what the kernel zeroed itself (unwritten, or zeros in a cluster).
            for (b, (phys, unwritten)) in map.iter().filter(|(b, _)| !expected.contains_key(b)) {
                let at = usize::try_from(*phys).unwrap() * bs;
                assert!(*unwritten || image[at..at + bs].iter().all(|x| *x == 0), "{args:?}: f{n} block {b}");
            }
        }
    }
}

fn block_size(args: &[&str]) -> usize {
    let at = args.iter().position(|a| *a == "-b").unwrap();
    args[at + 1].parse().unwrap()
}

#[test]
#[ignore = "needs root and loop mounts"]
fn the_kernel_reads_what_we_mapped() {
    for args in KINDS.iter().filter(|a| !a.contains(&"bigalloc")) {
        let (t, ino) = with_file("40M", args);
        let bs = block_size(args);
        let mut rng = Rng(3);
        let mut blocks = BTreeMap::new();
        for _ in 0..600 {
            let at = FileBlock(rng.below(5000));
            let made = change(&t, ino, |op, i| match lookup(op, ino, i, at, 1)? {
                Mapping::Mapped { .. } => Ok(None),
                Mapping::Hole { .. } => allocate(op, ino, i, at, 1, Pool::User).map(|(phys, _)| Some(phys)),
            });
            if let Some(phys) = made.unwrap() {
                blocks.insert(at.0, phys);
            }
        }
        if t.volume.run(|op| records::inode(op, ino)).unwrap().uses_extents() {
            change(&t, ino, |op, i| mark_unwritten(op, ino, i, FileBlock(2000), 300)).unwrap();
        }
        t.volume.close().unwrap();
        let mut image = t.device.snapshot();
        for (b, phys) in &blocks {
            let at = usize::try_from(phys.0).unwrap() * bs;
            image[at..at + bs].copy_from_slice(&content(9, *b, bs));
        }
        let unwritten = |b: u32| !args.contains(&"ext3") && (2000..2300).contains(&b);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), image).unwrap();
        let m = Mounted::new(file.path(), "loop");
        let path = m.at.path().join("f");
        let f = OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let last = blocks.keys().last().unwrap();
        for b in 0..=*last {
            let mut got = vec![0; bs];
            f.read_exact_at(&mut got, u64::from(b) * bs as u64).unwrap();
            let want = if blocks.contains_key(&b) && !unwritten(b) { content(9, b, bs) } else { vec![0; bs] };
            assert_eq!(got, want, "{args:?}: block {b}");
        }
        // The kernel goes on with our tree and our bitmaps.
        for b in (0..6000).step_by(7) {
            f.write_all_at(&content(8, b, bs), u64::from(b) * bs as u64).unwrap();
        }
        f.set_len(3000 * bs as u64).unwrap();
        f.sync_all().unwrap();
        drop(f);
        std::fs::remove_file(&path).unwrap();
        drop(m);
        fsck(&std::fs::read(file.path()).unwrap());
    }
}
