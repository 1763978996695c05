//! What a tree takes is what was foreseen at most (F13).

use super::*;
use std::collections::BTreeSet;

/// Blocks of the tree: those of the map that are not data.
fn nodes(inode: &Inode, op: &Op<'_>, data: u64) -> u64 {
    let bs = op.sb().block_size().bytes64();
    inode.sectors(op.sb().features(), bs) / (bs / 512) - data
}

/// Which file blocks come next, where none of `used` is: at the end, side by side, spread over all leaves, anywhere.
fn next_blocks(rng: &mut Rng, used: &BTreeSet<u32>, how: u32) -> Vec<u32> {
    const SPACE: u32 = 1 << 20;
    let count = [1, 2, 5, 30, 100, 400][usize::try_from(rng.below(6)).unwrap()];
    let end = used.last().map_or(0, |last| last + 2);
    let first = if used.is_empty() { 0 } else { rng.below(end) };
    let step = end / count + 1;
    let mut new = BTreeSet::new();
    for n in 0..count {
        let mut at = match how {
            0 => end + 2 * n,
            1 => first + n,
            2 => n * step + rng.below(3),
            _ => rng.below(end.max(10)),
        };
        while used.contains(&at) || !new.insert(at) {
            at += 1;
        }
        assert!(at < SPACE);
    }
    let mut new: Vec<u32> = new.into_iter().collect();
    if rng.below(2) == 0 {
        new.reverse();
    }
    new
}

#[test]
fn a_tree_takes_no_more_blocks_than_foreseen() {
    for seed in seeds(4) {
        let _named = Seed(seed, "a_tree_takes_no_more_blocks_than_foreseen");
        let (t, ino) = with_file("64M", &["-t", "ext4", "-b", "1024", "-O", "^has_journal", "-m", "0"]);
        let (mut rng, mut used) = (Rng(seed.wrapping_mul(0x9E37_79B9) | 1), BTreeSet::new());
        while used.len() < 6_000 {
            let how = rng.below(4);
            let new = next_blocks(&mut rng, &used, how);
            let (before, bound) = change(&t, ino, |op, i| {
                let bs = op.sb().block_size();
                Ok((nodes(i, op, used.len() as u64), tree_blocks(bs, i, new.len() as u64)))
            })
            .unwrap();
            let inserted = change(&t, ino, |op, i| {
                for at in &new {
                    // No two of them join.
                    let phys = BlockNo(40_000 + u64::from(*at % 1000) * 2);
                    insert(op, ino, i, FileBlock(*at), phys, 1, false)?;
                }
                Ok(nodes(i, op, (used.len() + new.len()) as u64))
            });
            let taken = inserted.unwrap() - before;
            assert!(taken <= bound, "{taken} of {bound} for {} entries, case {how}, {} there", new.len(), used.len());
            used.extend(new);
        }
    }
}

/// An extent that needs a node gets one, and one that needs none costs nothing while it waits for writeback.
#[test]
fn a_node_is_foreseen_where_it_is_taken() {
    let (t, ino) = with_file("16M", &["-t", "ext4", "-b", "1024", "-O", "^has_journal"]);
    let mut taken = Vec::new();
    for n in 0..90u32 {
        let step = change(&t, ino, |op, i| {
            let bs = op.sb().block_size();
            let (before, bound) = (nodes(i, op, n.into()), tree_blocks(bs, i, 1));
            insert(op, ino, i, FileBlock(2 * n), BlockNo(9000 + 2 * u64::from(n)), 1, false)?;
            Ok((nodes(i, op, u64::from(n) + 1) - before, bound))
        });
        let (took, bound) = step.unwrap();
        assert!(took <= bound && bound <= 1, "{took} of {bound} for extent {n}");
        assert!(n > 4 || took == bound, "{took} of {bound} for extent {n}");
        taken.extend((took > 0).then_some(n));
    }
    // The inode has room for four, a block of this size for 84.
    assert_eq!(taken, [4, 84]);
}
