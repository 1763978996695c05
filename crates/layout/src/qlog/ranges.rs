//! The byte ranges in which an image differs from another, or from zeros.
//!
//! ```text
//! as a record's body:  { offset, length - 1 } * count, 2 bytes each   then the bytes of all ranges
//! ```
//! Ranges are in order and do not touch. Two that lie closer than a table entry is long are written as one.

use crate::bytes::{be16, put_be16};
use crate::units::BlockSize;
use std::ops::Range;

/// Bytes of a table entry.
pub const ENTRY: usize = 4;

/// Equal bytes between two ranges that are not worth another table entry.
const GAP: usize = ENTRY;
/// Bytes compared at once.
const LINE: usize = 64;
const WORD: usize = 8;
const WORDS: usize = LINE / WORD;
/// Lines to one that [`differs_throughout`] looks at.
const LOOK: usize = 8;

/// An image of zeros, for [`Ranges::find`].
pub static ZEROS: [u8; 65536] = [0; 65536];

/// Where two images differ. Reused from block to block.
#[derive(Default, Debug)]
pub struct Ranges {
    ranges: Vec<Range<usize>>,
    bytes: usize,
}

impl Ranges {
    /// Finds where `image` differs from `base`; both are whole lines of 64 bytes. False, and of no use, if the body
    /// would take `most` bytes or more.
    pub fn find(&mut self, base: &[u8], image: &[u8], most: usize) -> bool {
        self.ranges.clear();
        self.bytes = 0;
        for (n, (a, b)) in base.as_chunks::<LINE>().0.iter().zip(image.as_chunks::<LINE>().0).enumerate() {
            let differ = differ(a, b);
            if differ.iter().fold(0, |any, word| any | word) == 0 {
                continue;
            }
            let at = n * LINE;
            if differ.iter().fold(0, |any, word| any | zero_bytes(*word)) == 0 {
                self.add(at..at + LINE);
            } else {
                self.line(at, &differ);
            }
            if self.body_len() >= most {
                return false;
            }
        }
        true
    }

    /// `differ`: the words of a line where two images differ, xor-ed.
    fn line(&mut self, at: usize, differ: &[u64; WORDS]) {
        for (n, word) in differ.iter().enumerate().filter(|(_, word)| **word != 0) {
            let (first, last) = (word.trailing_zeros() / 8, 7 - word.leading_zeros() / 8);
            let at = at + n * WORD;
            self.add(at + usize_of(first)..at + usize_of(last) + 1);
        }
    }

    fn add(&mut self, r: Range<usize>) {
        match self.ranges.last_mut() {
            Some(last) if r.start - last.end <= GAP => {
                self.bytes += r.end - last.end;
                last.end = r.end;
            }
            _ => {
                self.bytes += r.len();
                self.ranges.push(r);
            }
        }
    }

    /// The whole of an image, as one range.
    pub fn whole(&mut self, image: &[u8]) {
        self.ranges.clear();
        self.ranges.push(0..image.len());
        self.bytes = image.len();
    }

    /// They, in order.
    #[must_use]
    pub fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }

    /// Bytes of the body.
    #[must_use]
    pub fn body_len(&self) -> usize {
        self.ranges.len() * ENTRY + self.bytes
    }

    /// How many ranges there are. Never more than fit into 16 bits: each takes more than 4 bytes of a block.
    #[must_use]
    pub fn count(&self) -> u16 {
        u16::try_from(self.ranges.len()).expect("gaps are longer than 4 bytes")
    }

    /// Appends the body: table, then the bytes of `image`.
    pub fn encode(&self, image: &[u8], out: &mut Vec<u8>) {
        for r in &self.ranges {
            let mut entry = [0; ENTRY];
            put_be16(&mut entry, 0, small(r.start));
            put_be16(&mut entry, 2, small(r.len() - 1));
            out.extend_from_slice(&entry);
        }
        self.ranges.iter().for_each(|r| out.extend_from_slice(&image[r.clone()]));
    }
}

/// True if two images seem to differ nearly everywhere, from a look at some of their lines: a guess, for which an
/// eighth of the memory is read.
#[must_use]
pub fn differs_throughout(base: &[u8], image: &[u8]) -> bool {
    let lines = base.as_chunks::<LINE>().0.iter().zip(image.as_chunks::<LINE>().0).skip(LOOK / 2).step_by(LOOK);
    let (mut equal, mut words) = (0, 0);
    for (a, b) in lines {
        equal += differ(a, b).iter().filter(|word| **word == 0).count();
        words += WORDS;
    }
    words > 0 && equal * 16 <= words
}

/// The words of two lines, xor-ed.
fn differ(a: &[u8; LINE], b: &[u8; LINE]) -> [u64; WORDS] {
    let mut out = [0; WORDS];
    let words = a.as_chunks::<WORD>().0.iter().zip(b.as_chunks::<WORD>().0);
    for (out, (a, b)) in out.iter_mut().zip(words) {
        *out = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
    }
    out
}

/// Not zero if a byte of the word is.
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(u64::MAX / 255) & !word & (u64::MAX / 255 * 128)
}

/// Q9: the ranges of a table of `count` entries. `None`: they are not in order, touch, or leave the block.
#[must_use]
pub fn decode_table(bs: BlockSize, table: &[u8], count: u16) -> Option<Vec<Range<usize>>> {
    let table = table.get(..usize::from(count) * ENTRY)?;
    let mut end = None;
    let mut out = Vec::with_capacity(usize::from(count));
    for entry in table.chunks_exact(ENTRY) {
        let start = usize::from(be16(entry, 0));
        let r = start..start + usize::from(be16(entry, 2)) + 1;
        if r.end > bs.bytes() || end.is_some_and(|end| r.start <= end) {
            return None;
        }
        end = Some(r.end);
        out.push(r);
    }
    Some(out)
}

/// Puts the bytes of ranges into an image. False, and nothing done, if there are too few of them.
#[must_use]
pub fn apply(ranges: &[Range<usize>], mut bytes: &[u8], image: &mut [u8]) -> bool {
    if ranges.iter().map(Range::len).sum::<usize>() != bytes.len() {
        return false;
    }
    for r in ranges {
        let (now, rest) = bytes.split_at(r.len());
        image[r.clone()].copy_from_slice(now);
        bytes = rest;
    }
    true
}

fn usize_of(n: u32) -> usize {
    usize::try_from(n).expect("below 8")
}

fn small(n: usize) -> u16 {
    u16::try_from(n).expect("within a block of at most 64 KiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn round_trip(base: &[u8], image: &[u8]) -> usize {
        let mut r = Ranges::default();
        assert!(r.find(base, image, usize::MAX));
        let mut body = Vec::new();
        r.encode(image, &mut body);
        assert_eq!(body.len(), r.body_len());
        let (table, bytes) = body.split_at(usize::from(r.count()) * ENTRY);
        let ranges = decode_table(BlockSize::K4, table, r.count()).unwrap();
        let mut again = base.to_vec();
        assert!(apply(&ranges, bytes, &mut again));
        assert_eq!(again, image);
        assert!(apply(&ranges, bytes, &mut again) && again == image, "twice is once");
        body.len()
    }

    proptest! {
        #[test]
        fn ranges_make_the_image(changes in prop::collection::vec((0usize..4096, 1usize..200, any::<u8>()), 0..30)) {
            let base: Vec<u8> = (0..4096usize).map(|n| n.to_le_bytes()[0]).collect();
            let mut image = base.clone();
            for (at, len, byte) in changes {
                let end = (at + len).min(4096);
                image[at..end].fill(byte);
            }
            round_trip(&base, &image);
            round_trip(&ZEROS[..4096], &image);
        }

        #[test]
        fn any_table_is_refused_or_stays_in_its_block(table in prop::collection::vec(any::<u8>(), 0..64), count in 0u16..20) {
            if let Some(ranges) = decode_table(BlockSize::K1, &table, count) {
                prop_assert!(ranges.iter().all(|r| r.end <= 1024 && !r.is_empty()));
                prop_assert!(ranges.windows(2).all(|w| w[0].end < w[1].start));
            }
        }
    }

    #[test]
    fn a_byte_of_a_word_is_zero_or_none_is() {
        for n in 0..8 {
            assert_ne!(zero_bytes(!(0xFF << (8 * n))), 0);
            assert_eq!(zero_bytes((u64::MAX / 255) | (0x80 << (8 * n))), 0);
        }
        assert_ne!(zero_bytes(0), 0);
    }

    #[test]
    fn small_changes_are_small_and_near_ones_are_one() {
        let base = vec![7u8; 4096];
        let mut image = base.clone();
        assert_eq!(round_trip(&base, &image), 0);
        image[100] = 1;
        assert_eq!(round_trip(&base, &image), 5);
        image[105] = 1;
        assert_eq!(round_trip(&base, &image), 4 + 6, "one range over a gap of four");
        image[4095] = 1;
        assert_eq!(round_trip(&base, &image), 4 + 6 + 5);
        let other: Vec<u8> = base.iter().map(|b| !b).collect();
        assert!(!Ranges::default().find(&base, &other, 4096));
    }

    #[test]
    fn a_look_tells_what_differs_throughout() {
        let base: Vec<u8> = (0..4096usize).map(|n| n.to_le_bytes()[0]).collect();
        let other: Vec<u8> = base.iter().map(|b| !b).collect();
        assert!(differs_throughout(&base, &other));
        assert!(differs_throughout(&ZEROS[..1024], &[1; 1024]));
        assert!(!differs_throughout(&base, &base));
        let half = [&other[..2048], &base[2048..]].concat();
        assert!(!differs_throughout(&base, &half));
        let mut nearly = other;
        nearly[300..340].copy_from_slice(&base[300..340]);
        assert!(differs_throughout(&base, &nearly), "few equal words");
    }

    #[test]
    fn a_table_that_makes_no_sense_is_refused() {
        let table = |entries: &[(u16, u16)]| -> Vec<u8> {
            entries.iter().flat_map(|(a, b)| [a.to_be_bytes(), b.to_be_bytes()].concat()).collect()
        };
        let decode = |t: &[(u16, u16)]| decode_table(BlockSize::K1, &table(t), u16::try_from(t.len()).unwrap());
        assert!(decode(&[(0, 9), (11, 1012)]).is_some());
        assert!(decode(&[(0, 9), (10, 3)]).is_none(), "they touch");
        assert!(decode(&[(50, 9), (10, 3)]).is_none(), "not in order");
        assert!(decode(&[(1020, 4)]).is_none(), "outside");
        assert!(decode_table(BlockSize::K1, &[0; 3], 1).is_none());
        assert!(!apply(std::slice::from_ref(&(0..4)), &[1, 2, 3], &mut [0; 8]));
    }
}
