//! Checksums and the escape: what makes a log block trustworthy, and what keeps an image from posing as one.

use super::MAGIC;
use crate::bytes::{be32, put_be32, try_be32};
use crate::checksum::crc32c;
use crate::units::Tid;

/// crc32c over the journal's UUID; v2 and v3 checksums continue it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LogSeed(pub u32);

impl LogSeed {
    #[must_use]
    pub fn new(journal_uuid: &[u8; 16]) -> Self {
        LogSeed(crc32c(!0, journal_uuid))
    }

    /// The checksum of a logged image, *as logged* (escaped), in transaction `tid`.
    #[must_use]
    pub fn image(self, tid: Tid, logged: &[u8]) -> u32 {
        crc32c(crc32c(self.0, &tid.0.to_be_bytes()), logged)
    }

    /// The checksum of `block` with the four bytes at `at` taken as zero.
    fn hollow(self, block: &[u8], at: usize) -> u32 {
        let sum = crc32c(crc32c(self.0, &block[..at]), &[0; 4]);
        crc32c(sum, &block[at + 4..])
    }

    /// Puts the checksum of the whole of `block` at `at`.
    pub(super) fn seal(self, block: &mut [u8], at: usize) {
        let sum = self.hollow(block, at);
        put_be32(block, at, sum);
    }

    /// True if the checksum at `at` is right.
    pub(super) fn check(self, block: &[u8], at: usize) -> bool {
        block.len() >= at + 4 && be32(block, at) == self.hollow(block, at)
    }
}

/// The crc32 of v1 logs (polynomial 0x04C11DB7, most significant bit first, no final inversion), continued. A
/// transaction starts from `!0` and runs over its descriptors and images in log order.
#[must_use]
pub fn crc32_be(seed: u32, data: &[u8]) -> u32 {
    const BE: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_MPEG_2);
    let mut digest = BE.digest_with_initial(seed);
    digest.update(data);
    digest.finalize()
}

/// True if an image begins like a log block and has to be escaped.
#[must_use]
pub fn needs_escape(image: &[u8]) -> bool {
    try_be32(image, 0) == Some(MAGIC)
}

/// Makes a copy of an image fit for the log: zeroes the first four bytes.
pub fn escape(logged: &mut [u8]) {
    put_be32(logged, 0, 0);
}

/// Makes the image of an escaped copy: puts the magic back.
pub fn unescape(logged: &mut [u8]) {
    put_be32(logged, 0, MAGIC);
}

#[cfg(test)]
mod tests {
    use super::super::format::fixtures::*;
    use super::*;

    #[test]
    fn tails_of_debugfs_and_the_kernel() {
        for log in [V2, V3] {
            let f = format(log);
            for n in [1, 5, 7, 9] {
                assert!(f.tail_matches(block(log, n)), "block {n}");
                let mut bad = block(log, n).to_vec();
                bad[100] ^= 1;
                assert!(!f.tail_matches(&bad));
            }
        }
        assert!(format(KERNEL).tail_matches(block(KERNEL, 1)));
        assert!(!format(KERNEL).tail_matches(&block(KERNEL, 1)[..512]));
        assert!(!format(KERNEL).tail_matches(&[]));
    }

    #[test]
    fn crc32_be_is_the_kernels() {
        // The kernel's crc32_be(~0, "123456789"): CRC-32/MPEG-2.
        assert_eq!(crc32_be(!0, b"123456789"), 0x0376_E6E7);
        assert_eq!(crc32_be(crc32_be(!0, b"1234"), b"56789"), 0x0376_E6E7);
    }

    #[test]
    fn escape_and_back() {
        let mut b = MAGIC.to_be_bytes().to_vec();
        b.push(7);
        assert!(needs_escape(&b));
        let image = b.clone();
        escape(&mut b);
        assert!(!needs_escape(&b));
        unescape(&mut b);
        assert_eq!(b, image);
        assert!(!needs_escape(&[0xC0, 0x3B]));
    }
}
