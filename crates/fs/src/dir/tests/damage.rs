//! Damaged directories: typed errors that name the block, no panic, no endless walk (D2).

use super::*;
use crate::error::Error;
use quire_layout::{BlockNo, FileBlock};

/// A directory with an htree of two levels and where its blocks are.
fn grown(args: &[&str]) -> (Dirs, Vec<BlockNo>) {
    let mut d = Dirs::new("8M", &[&["-t", "ext4", "-b", "1024"], args].concat());
    for i in 0..1500 {
        d.add(format!("{i:0100}").as_bytes(), d.file(i)).unwrap();
    }
    assert_eq!(d.levels(), Some(1));
    d.check();
    let blocks = d.run(|op, ino, inode| {
        let dir = Dir::new(op, ino, inode)?;
        (0..dir.blocks).map(|n| dir.phys(op, inode, FileBlock(n))).collect::<Result<Vec<_>>>()
    });
    (d, blocks.unwrap())
}

/// Does everything to a directory once; nothing of it may panic or hang.
fn use_all(d: &Dirs) -> Vec<Error> {
    let mut errors = Vec::new();
    for i in (0..1500).step_by(50) {
        let name = format!("{i:0100}").into_bytes();
        errors.extend(d.lookup(&name).err());
        errors.extend(d.add(&[&name[..], b"+"].concat(), d.file(i)).err());
        errors.extend(d.remove(&name).err());
    }
    errors.extend(d.list(0, usize::MAX).err());
    errors.extend(d.run(|op, ino, inode| super::super::is_empty(op, ino, inode)).err());
    errors
}

#[test]
fn a_changed_byte_is_found_by_its_checksum() {
    let (d, blocks) = grown(&[]);
    let clean = d.t.device.snapshot();
    for (i, block) in blocks.iter().enumerate().step_by(7) {
        let mut bad = clean.clone();
        let at = usize::try_from(block.0).unwrap() * 1024 + 40 + i;
        bad[at] ^= 0x10;
        let d = Dirs::on(bad);
        match d.list(0, usize::MAX).expect_err("a checksum covers every byte") {
            Error::Corrupt(c) => assert_eq!((c.block, c.object), (Some(*block), Some(u64::from(d.dir.0)))),
            e => panic!("{e}"),
        }
        assert!(use_all(&d).iter().all(|e| matches!(e, Error::Corrupt(_) | Error::NotFound)));
    }
}

#[test]
fn damage_without_checksums_never_panics() {
    let (d, blocks) = grown(&["-O", "^metadata_csum"]);
    let clean = d.t.device.snapshot();
    let seed = seed("damage_without_checksums_never_panics");
    let mut n = Numbers(seed);
    let mut found = 0;
    for _ in 0..150 {
        let mut bad = clean.clone();
        for _ in 0..=n.next(3) {
            // Mostly the index, mostly its small numbers.
            let block = if n.next(2) == 0 { blocks[0] } else { blocks[n.next(blocks.len())] };
            let at = usize::try_from(block.0).unwrap() * 1024 + if n.next(2) == 0 { n.next(64) } else { n.next(1024) };
            bad[at] = match n.next(3) {
                0 => 0,
                1 => u8::try_from(n.next(8)).unwrap(),
                _ => u8::try_from(n.next(256)).unwrap(),
            };
        }
        let d = Dirs::on(bad);
        let errors = use_all(&d);
        for e in &errors {
            let known = matches!(e, Error::Corrupt(_) | Error::NotFound | Error::Exists | Error::NoSpace);
            assert!(known, "{e}");
        }
        found += usize::from(errors.iter().any(|e| matches!(e, Error::Corrupt(_))));
    }
    assert!(found > 50, "only {found} of 150 damaged directories were noticed");
}

#[test]
fn index_cycles_and_strays_are_errors() {
    let (d, blocks) = grown(&["-O", "^metadata_csum"]);
    let clean = d.t.device.snapshot();
    let root = usize::try_from(blocks[0].0).unwrap() * 1024;
    // The root's first pair: to itself, to a leaf, out of the directory; and a tree said to be deeper.
    for child in [0, 1, 1 << 27] {
        let mut bad = clean.clone();
        quire_layout::bytes::put_le32(&mut bad, root + 36, child);
        let d = Dirs::on(bad);
        assert!(matches!(d.list(0, usize::MAX), Err(Error::Corrupt(_))), "{child}");
        use_all(&d);
    }
    // The second pair's hash: below what the first node holds; above what the second one does.
    for hash in [2, u32::MAX - 1] {
        let mut bad = clean.clone();
        quire_layout::bytes::put_le32(&mut bad, root + 40, hash);
        let d = Dirs::on(bad);
        assert!(matches!(d.list(0, usize::MAX), Err(Error::Corrupt(_))), "{hash:#x}");
        use_all(&d);
    }
    let mut bad = clean;
    bad[root + 30] = 2;
    assert!(matches!(Dirs::on(bad).lookup(b"x"), Err(Error::Corrupt(_))));
}
