//! A full disk at any point of a change of the map (E6).

use super::*;

/// E6.
#[test]
fn a_full_disk_leaves_a_clean_image_and_the_map_as_it_was() {
    for seed in seeds(3) {
        for args in [&["-t", "ext4", "-b", "1024", "-m", "0", "-O", "^has_journal"][..], &["-t", "ext2", "-b", "1024"]]
        {
            let _named = Seed(seed, "a_full_disk_leaves_a_clean_image");
            let (t, ino) = with_file("1M", args);
            let mut rng = Rng(seed | 1);
            let (mut full, mut tries) = (0, 0);
            while full < 60 && tries < 5000 {
                tries += 1;
                let before = read_back(&t, ino);
                let at = FileBlock(rng.below(100_000));
                let cut = rng.below(4) == 0;
                let r = change(&t, ino, |op, i| {
                    if cut && i.uses_extents() {
                        // Cutting extents may need blocks for the tree, too.
                        return convert_written(op, ino, i, FileBlock(at.0 % 50), 1);
                    }
                    if let Mapping::Mapped { .. } = lookup(op, ino, i, at, 1)? {
                        return Ok(());
                    }
                    let run = alloc_blocks(op, BlockNo(u64::from(at.0) % 1024), 1, Pool::Reserved)?;
                    insert(op, ino, i, at, run.start, 1, i.uses_extents() && at.0.is_multiple_of(3))
                });
                match r {
                    Ok(()) => {}
                    Err(Error::NoSpace) => {
                        full += 1;
                        assert_eq!(read_back(&t, ino), before);
                        if full % 20 == 1 {
                            check(&t);
                        }
                        // Make a little room, so that it fills up at another point.
                        let some: Vec<_> = before
                            .keys()
                            .copied()
                            .skip(usize::try_from(rng.below(9)).unwrap())
                            .take(1 + full % 3)
                            .collect();
                        for b in some {
                            remove_in_steps(&t, ino, b, b + 1, 100);
                        }
                    }
                    Err(e) => panic!("{e}"),
                }
            }
            assert!(full >= 60);
            check(&t);
        }
    }
}
