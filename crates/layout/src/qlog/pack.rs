//! How packed records are laid into a run's first blocks: after the head in block 0, after one zero byte in the others
//! (Q1).

use crate::units::BlockSize;

/// Bytes of a transaction's head, before the packed bytes of block 0.
pub const HEAD_LEN: usize = 64;

/// Packed bytes in block 0.
fn in_first(bs: BlockSize) -> usize {
    bs.bytes() - HEAD_LEN
}

/// Packed bytes in every other block.
fn in_next(bs: BlockSize) -> usize {
    bs.bytes() - 1
}

/// Blocks that `packed` bytes take: at least the one with the head.
#[must_use]
pub fn blocks_for(bs: BlockSize, packed: u32) -> u32 {
    let (first, next) = (u32::try_from(in_first(bs)), u32::try_from(in_next(bs)));
    let (first, next) = (first.expect("at most 64 KiB"), next.expect("at most 64 KiB"));
    1 + packed.saturating_sub(first).div_ceil(next)
}

/// Where packed byte `at` is: the block of the run, and the byte in it.
#[must_use]
pub fn place(bs: BlockSize, at: usize) -> (usize, usize) {
    match at.checked_sub(in_first(bs)) {
        None => (0, HEAD_LEN + at),
        Some(rest) => (1 + rest / in_next(bs), 1 + rest % in_next(bs)),
    }
}

/// Copies the part of `packed` that block `n` of the run holds into it.
pub fn fill(bs: BlockSize, packed: &[u8], n: usize, block: &mut [u8]) {
    let (start, room, skip) = match n {
        0 => (0, in_first(bs), HEAD_LEN),
        n => (in_first(bs) + (n - 1) * in_next(bs), in_next(bs), 1),
    };
    let part = &packed[start.min(packed.len())..(start + room).min(packed.len())];
    block[skip..skip + part.len()].copy_from_slice(part);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_where_it_is_said_to_be() {
        let bs = BlockSize::K1;
        for len in [0usize, 1, 959, 960, 961, 1983, 1984, 5000] {
            let packed: Vec<u8> = (0..len).map(|n| n.to_le_bytes()[0] | 1).collect();
            let count = usize::try_from(blocks_for(bs, u32::try_from(len).unwrap())).unwrap();
            let blocks: Vec<Vec<u8>> = (0..count)
                .map(|n| {
                    let mut b = vec![0; 1024];
                    fill(bs, &packed, n, &mut b);
                    b
                })
                .collect();
            for (at, byte) in packed.iter().enumerate() {
                let (block, offset) = place(bs, at);
                assert_eq!(blocks[block][offset], *byte, "{at} of {len}");
            }
            assert!(blocks[1..].iter().all(|b| b[0] == 0), "Q1");
            let used = blocks.iter().flatten().filter(|b| **b != 0).count();
            assert_eq!(used, len, "nothing else is written");
        }
    }
}
