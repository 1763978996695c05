//! The exclusive or of two images that hardly differ, as an LZ4 block, made of the ranges in which they do: what
//! differs is literals, what does not is a match that repeats a zero. To search such a difference for more that repeats
//! takes longer than all of this, and finds next to nothing.
//!
//! ```text
//! [token][literals .. 0][offset 1]  [token][literals .. 0][offset 1]  ...  [token][at least 5 literals]
//! ```

use std::ops::Range;

/// As LZ4 wants it: so many bytes at the end are literals, no match begins in the last 12, and none is shorter than 4.
const LAST_LITERALS: usize = 5;
const NO_MATCH: usize = 12;
const SHORTEST: usize = 4;
/// What a token's half can say of a length; more follows.
const IN_TOKEN: usize = 15;

/// The block of the difference of two images that differ in `ranges`, which are in order, and nowhere else.
pub(super) fn pack(ranges: &[Range<usize>], base: &[u8], image: &[u8], out: &mut Vec<u8>) {
    out.clear();
    let len = image.len();
    // Literals that are not written yet begin at the one, and what differs so far ends at the other.
    let (mut literals, mut end) = (0, 0);
    for next in ranges.iter().cloned().chain(std::iter::once(len..len)) {
        // One zero is a literal, for the match to repeat.
        let (from, to) = (end + 1, next.start.min(len.saturating_sub(LAST_LITERALS)));
        if to >= from + SHORTEST && from + NO_MATCH <= len {
            sequence(literals..from, Some(to - from), base, image, out);
            literals = to;
        }
        end = next.end;
    }
    sequence(literals..len, None, base, image, out);
}

/// Literals, and a match of so many bytes that repeats the last of them.
fn sequence(literals: Range<usize>, matched: Option<usize>, base: &[u8], image: &[u8], out: &mut Vec<u8>) {
    let more = matched.map_or(0, |n| n - SHORTEST);
    let half = |n: usize| u8::try_from(n.min(IN_TOKEN)).expect("four bits");
    out.push(half(literals.len()) << 4 | half(more));
    rest(literals.len(), out);
    out.extend(base[literals.clone()].iter().zip(&image[literals]).map(|(a, b)| a ^ b));
    if matched.is_some() {
        out.extend_from_slice(&1u16.to_le_bytes());
        rest(more, out);
    }
}

/// What of a length the token could not say.
fn rest(n: usize, out: &mut Vec<u8>) {
    let Some(mut left) = n.checked_sub(IN_TOKEN) else { return };
    while left >= 255 {
        out.push(255);
        left -= 255;
    }
    out.push(u8::try_from(left).expect("less than 255"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unpacked(ranges: &[Range<usize>], base: &[u8], image: &[u8]) -> Vec<u8> {
        let (mut out, mut difference) = (Vec::new(), vec![7; image.len()]);
        pack(ranges, base, image, &mut out);
        assert_eq!(lz4_flex::block::decompress_into(&out, &mut difference).unwrap(), image.len());
        difference
    }

    proptest! {
        #[test]
        fn what_is_packed_is_the_difference(
            len in 1usize..64,
            changes in prop::collection::vec((0usize..4096, 1usize..400), 0..12),
        ) {
            let len = len * 64;
            let base: Vec<u8> = (0..len).map(|n| u8::try_from(n * 7 % 251).unwrap()).collect();
            let mut image = base.clone();
            for (at, n) in changes {
                image[at.min(len)..(at + n).min(len)].fill(0xee);
            }
            let want: Vec<u8> = base.iter().zip(&image).map(|(a, b)| a ^ b).collect();
            let mut ranges: Vec<Range<usize>> = Vec::new();
            for n in (0..len).filter(|n| want[*n] != 0) {
                match ranges.last_mut() {
                    Some(last) if last.end == n => last.end += 1,
                    _ => ranges.push(n..n + 1),
                }
            }
            prop_assert_eq!(unpacked(&ranges, &base, &image), want);
        }
    }

    #[test]
    fn it_is_as_short_as_lz4s_and_ends_as_lz4_wants_it() {
        let base = [0u8; 4096];
        for at in [0, 1, 2000, 4083, 4084, 4085, 4090, 4091, 4095] {
            let mut image = base;
            image[at] = 9;
            let (range, mut out) = (at..at + 1, Vec::new());
            let ranges = std::slice::from_ref(&range);
            pack(ranges, &base, &image, &mut out);
            let theirs = lz4_flex::block::compress(&image);
            assert!(out.len() <= theirs.len() + 4, "{at}: {} and {}", out.len(), theirs.len());
            assert!(out[out.len() - LAST_LITERALS..].iter().zip(&image[4096 - LAST_LITERALS..]).all(|(a, b)| a == b));
            assert_eq!(unpacked(ranges, &base, &image), image);
        }
    }
}
