//! The difference of two images, compressed: an LZ4 block of their exclusive or.

use super::ranges::Ranges;
use super::sparse;
use lz4_flex::block::{compress_into, decompress_into, get_maximum_output_size};

/// What takes less than this part of an image as ranges is written as it is found ([`sparse`]).
const SPARSE: usize = 16;

/// Makes differences. Its memory is reused from block to block.
#[derive(Default, Debug)]
pub struct Delta {
    ranges: Ranges,
    xor: Vec<u8>,
    packed: Vec<u8>,
}

impl Delta {
    /// The difference of `image` to `base`, both whole lines of 64 bytes, compressed; `None` if it takes `most` bytes
    /// or more, or looks so much like noise that it is not tried.
    pub fn find(&mut self, base: &[u8], image: &[u8], most: usize) -> Option<&[u8]> {
        if self.ranges.find(base, image, image.len() / SPARSE) {
            sparse::pack(self.ranges.ranges(), base, image, &mut self.packed);
            return (self.packed.len() < most).then_some(&self.packed[..]);
        }
        self.xor.resize(image.len(), 0);
        xor_into(&mut self.xor, base, image);
        if is_noise(&self.xor) {
            return None;
        }
        self.packed.resize(get_maximum_output_size(image.len()), 0);
        let len = compress_into(&self.xor, &mut self.packed).expect("room for the worst case");
        (len < most).then(|| &self.packed[..len])
    }
}

/// Turns `image`, which is the base, into the image that the difference was made of. False: it is none of such an
/// image; `image` is then as it was.
#[must_use]
pub fn apply(packed: &[u8], image: &mut [u8]) -> bool {
    let mut difference = vec![0; image.len()];
    match decompress_into(packed, &mut difference) {
        Ok(n) if n == image.len() => xor(image, &difference),
        _ => return false,
    }
    true
}

/// True if next to nothing in a difference repeats: hardly two neighbouring words are equal. What does not differ is
/// zeros, so a change of a part never looks so. Compressing in vain would take longer than logging the block whole.
fn is_noise(difference: &[u8]) -> bool {
    let words = difference.chunks_exact(8).zip(difference.chunks_exact(8).skip(1));
    let enough = (difference.len() / 8).div_ceil(64);
    words.filter(|(a, b)| a == b).take(enough).count() < enough
}

fn xor(a: &mut [u8], b: &[u8]) {
    a.iter_mut().zip(b).for_each(|(a, b)| *a ^= b);
}

fn xor_into(out: &mut [u8], a: &[u8], b: &[u8]) {
    out.iter_mut().zip(a).zip(b).for_each(|((out, a), b)| *out = a ^ b);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn noise() -> Vec<u8> {
        let mut x = 1u64;
        let mut next = || {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x.to_le_bytes()[4]
        };
        (0..4096).map(|_| next()).collect()
    }

    proptest! {
        #[test]
        fn a_delta_makes_the_image(changes in prop::collection::vec((0usize..4096, 1usize..64, any::<u8>()), 0..20)) {
            let base = noise();
            let mut image = base.clone();
            for (at, len, byte) in changes {
                let end = (at + len).min(4096);
                image[at..end].fill(byte);
            }
            let mut d = Delta::default();
            if let Some(packed) = d.find(&base, &image, 4096) {
                let mut again = base.clone();
                prop_assert!(apply(packed, &mut again));
                prop_assert_eq!(again, image);
            }
        }

        #[test]
        fn any_bytes_are_refused_or_make_some_image(packed in prop::collection::vec(any::<u8>(), 0..256)) {
            let _ = apply(&packed, &mut [7; 1024]);
        }
    }

    #[test]
    fn what_does_not_shrink_is_none() {
        let base = [0u8; 4096];
        let image = noise();
        assert!(Delta::default().find(&base, &image, 4096).is_none());
        assert!(!is_noise(&[0; 4096]) && !is_noise(&[7; 4096]) && is_noise(&image));
        let mut near = base;
        near[7] = 1;
        assert!(Delta::default().find(&base, &near, 4096).unwrap().len() < 40);
        let mut short = [1u8; 8];
        assert!(!apply(&[], &mut short) && short == [1; 8]);
    }
}
