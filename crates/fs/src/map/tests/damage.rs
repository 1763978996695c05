//! Damaged maps, bitmaps and descriptors: typed errors, no panic, no endless loop, whatever is done with them.

use super::*;
use crate::map::mapping::Removed;
use crate::records;
use crate::space::{alloc_inode, free_inode};
use quire_layout::GroupNo;
use quire_layout::extent::{Index, NodeMut};
use quire_layout::inode::mode;

/// Everything that reads or changes the map and the bitmaps, once. Each may fail, none may hang.
fn exercise(t: &TestVolume, ino: Ino, rng: &mut Rng) -> u32 {
    let mut refused = 0;
    let mut note = |r: Result<()>| {
        match r {
            Ok(()) | Err(Error::NoSpace | Error::TooLarge | Error::NotSupported(_) | Error::Invalid(_)) => {}
            // A pointer outside the device cannot be told from a truncated image before it is read.
            Err(Error::Corrupt(_) | Error::Journal(_) | Error::NoInodes) => refused += 1,
            Err(e) => panic!("{e:?}"),
        }
    };
    for _ in 0..6 {
        let at = FileBlock(rng.below(5000));
        note(t.volume.run(|op| {
            let i = records::inode(op, ino)?;
            lookup(op, ino, &i, at, 100).map(|_| ())
        }));
        note(t.volume.run(|op| {
            let i = records::inode(op, ino)?;
            extents(op, ino, &i, at, 10_000).map(|_| ())
        }));
        let mut changed = |f: &mut dyn FnMut(&mut Op<'_>, &mut Inode) -> Result<()>| {
            note(t.volume.run(|op| {
                let mut i = records::inode(op, ino)?;
                f(op, &mut i)?;
                records::put_inode(op, ino, &mut i)
            }));
        };
        changed(&mut |op, i| allocate(op, ino, i, at, 3, Pool::User).map(|_| ()));
        changed(&mut |op, i| convert_written(op, ino, i, at, 50));
        changed(&mut |op, i| mark_unwritten(op, ino, i, at, 7));
        changed(&mut |op, i| remove(op, ino, i, at, FileBlock(at.0 + 40), 50).map(|_| ()));
        changed(&mut |op, i| {
            split_for_shift(op, ino, i, at, 3)?;
            shift_right(op, ino, i, at, 3, None, 50).map(|_| ())
        });
        changed(&mut |op, i| shift_left(op, ino, i, FileBlock(at.0 + 3), 3, 50).map(|_| ()));
    }
    let mut to = FileBlock(u32::MAX);
    for _ in 0..2000 {
        let done = t.volume.run(|op| {
            let mut i = records::inode(op, ino)?;
            let r = remove(op, ino, &mut i, FileBlock(0), to, 30)?;
            records::put_inode(op, ino, &mut i)?;
            Ok(r)
        });
        match done {
            Ok(Removed { next: Some(next) }) => {
                assert!(next < to);
                to = next;
            }
            Ok(Removed { next: None }) => break,
            Err(e) => {
                note(Err(e));
                break;
            }
        }
    }
    note(t.volume.run(|op| alloc_inode(op, Ino::ROOT, mode::REG).map(|_| ())));
    note(t.volume.run(|op| free_inode(op, ino, false)));
    note(t.volume.run(|op| alloc_blocks(op, BlockNo(9999), 77, Pool::Reserved).map(|_| ())));
    refused
}

fn fragmented(args: &[&str]) -> (Vec<u8>, Ino, Vec<u64>) {
    let (t, ino) = with_file("24M", args);
    let mut m = Model::new();
    let mut rng = Rng(1);
    if t.volume.run(|op| records::inode(op, ino)).unwrap().uses_extents() {
        fragment(&t, ino, &mut m, &mut rng);
    } else {
        for b in (0..2000).step_by(2) {
            change(&t, ino, |op, i| allocate(op, ino, i, FileBlock(b), 1, Pool::User)).unwrap();
        }
    }
    let mut blocks: Vec<u64> = Vec::new();
    let root = t.volume.run(|op| records::inode(op, ino)).unwrap();
    if root.uses_extents() {
        let n = quire_layout::extent::Node::new(root.block_area());
        blocks.extend((0..n.entries()).map(|i| n.index(i).child.0));
    } else {
        blocks.extend((12..15).filter_map(|i| imap::get(root.block_area(), i)).map(|b| b.0));
    }
    let d = t.volume.run(|op| records::group(op, GroupNo(0))).unwrap();
    let table = d.inode_table().0 + u64::from(ino.0 - 1) * 128 / 1024;
    blocks.extend([d.block_bitmap().0, d.inode_bitmap().0, 2, table]);
    t.volume.close().unwrap();
    (t.device.snapshot(), ino, blocks)
}

/// E7: without checksums every changed byte is believed until it breaks a rule.
#[test]
fn random_damage_never_panics_or_hangs() {
    let kinds: [&[&str]; 2] = [
        &["-t", "ext4", "-b", "1024", "-I", "128", "-O", "^metadata_csum,^has_journal,^uninit_bg"],
        &["-t", "ext2", "-b", "1024", "-I", "128"],
    ];
    for args in kinds {
        let (image, ino, blocks) = fragmented(args);
        let mut refused = 0;
        for seed in seeds(150) {
            let _named = Seed(seed, "random_damage_never_panics_or_hangs");
            let mut rng = Rng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
            let mut bad = image.clone();
            for _ in 0..1 + rng.below(4) {
                let block = blocks[usize::try_from(rng.below(u32::try_from(blocks.len()).unwrap())).unwrap()];
                let offset = if rng.below(2) == 0 { rng.below(48) } else { rng.below(1024) };
                let at = usize::try_from(block * 1024 + u64::from(offset)).unwrap();
                bad[at] = [0, 0xFF, bad[at] ^ 1, bad[at].wrapping_add(8)][usize::try_from(rng.below(4)).unwrap()];
            }
            let device = std::sync::Arc::new(quire_testkit::MemDevice::new(bad));
            let clock = std::sync::Arc::new(quire_device::SystemClock);
            let options = Options { on_error: Some(quire_layout::superblock::OnError::Continue), ..Options::default() };
            // Descriptors are checked at mount.
            match crate::Volume::open(crate::Devices::one(device.clone()), clock, options) {
                Ok(volume) => refused += exercise(&TestVolume { device, volume }, ino, &mut rng),
                Err(Error::Corrupt(_)) => refused += 1,
                Err(e) => panic!("{e:?}"),
            }
        }
        assert!(refused > 0 || std::env::var("QUIRE_SEED").is_ok());
    }
}

/// A leaf that maps its own block, or that of its parent: removing the file frees a block that is still in use.
#[test]
fn a_tree_that_maps_itself_is_corrupt() {
    let args = ["-t", "ext4", "-b", "1024", "-O", "^metadata_csum"];
    let (image, ino, blocks) = fragmented(&args);
    let child = usize::try_from(blocks[0]).unwrap();
    let mut leaf = child;
    loop {
        let n = quire_layout::extent::Node::new(&image[leaf * 1024..(leaf + 1) * 1024]);
        if n.depth() == 0 {
            break;
        }
        leaf = usize::try_from(n.index(0).child.0).unwrap();
    }
    for target in [leaf, child] {
        let mut bad = image.clone();
        let mut n = NodeMut::new(&mut bad[leaf * 1024..(leaf + 1) * 1024]);
        let last = n.view().entries() - 1;
        let e = quire_layout::extent::Extent { phys: BlockNo(u64::try_from(target).unwrap()), ..n.view().extent(last) };
        n.set(last, &e.encode());
        let t = TestVolume::on(bad, Options::default());
        let e = t.volume.run(|op| {
            let mut i = records::inode(op, ino)?;
            remove_all(op, ino, &mut i, FileBlock(0), usize::MAX / 2)
        });
        // The block is freed as data, and then as the tree's; or the tree is used after it.
        assert!(matches!(&e, Err(Error::Corrupt(c)) if c.structure == Structure::BlockBitmap), "{e:?}");
    }
    // An index that leads back to itself: the depth tells.
    let mut bad = image.clone();
    let mut n = NodeMut::new(&mut bad[child * 1024..(child + 1) * 1024]);
    let at = n.view().index(0).at;
    n.set(0, &Index { at, child: BlockNo(u64::try_from(child).unwrap()) }.encode());
    let t = TestVolume::on(bad, Options::default());
    let e = t.volume.run(|op| {
        let i = records::inode(op, ino)?;
        lookup(op, ino, &i, FileBlock(0), 1)
    });
    assert!(matches!(e, Err(Error::Corrupt(_))), "{e:?}");
}

/// A tree block with one rule broken is refused by name and block, and nothing panics.
#[test]
fn a_spoiled_tree_block_is_refused() {
    let (t, ino) = with_file("24M", &["-t", "ext4", "-b", "1024"]);
    for n in 0..200 {
        change(&t, ino, |op, i| allocate(op, ino, i, FileBlock(n * 2), 1, Pool::User)).unwrap();
    }
    check(&t);
    let root = t.volume.run(|op| records::inode(op, ino)).unwrap();
    let child = quire_layout::extent::Node::new(root.block_area()).index(0).child;
    let image = t.device.snapshot();
    let at = usize::try_from(child.0 * 1024).unwrap();
    for (offset, why) in [(0, "magic"), (40, "key"), (1020, "checksum")] {
        let mut bad = image.clone();
        bad[at + offset] ^= 0x40;
        let t = TestVolume::on(bad, Options::default());
        let e = t.volume.run(|op| {
            let i = records::inode(op, ino)?;
            lookup(op, ino, &i, FileBlock(0), 1)
        });
        let Err(Error::Corrupt(c)) = e else { panic!("{why}: {e:?}") };
        assert_eq!((c.structure, c.block, c.object), (Structure::ExtentNode, Some(child), Some(12)), "{why}");
    }
}

#[test]
fn blocks_that_two_files_share_are_not_freed_twice() {
    let (t, ino) = with_file("24M", &["-t", "ext4"]);
    let phys = change(&t, ino, |op, i| allocate(op, ino, i, FileBlock(0), 1, Pool::User)).unwrap().0;
    t.volume.run(|op| free_blocks(op, phys, 1)).unwrap();
    let e = change(&t, ino, |op, i| remove_all(op, ino, i, FileBlock(0), 100)).unwrap_err();
    assert!(matches!(&e, Error::Corrupt(c) if c.structure == Structure::BlockBitmap), "{e}");
}
