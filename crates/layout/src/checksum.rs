//! crc32c as ext4 and jbd2 use it: no final inversion, the seed is the running value.
//!
//! Source: kernel documentation, "ext4: checksums".

/// Continues `seed` over `data` (the kernel's `ext4_chksum`).
#[must_use]
pub fn crc32c(seed: u32, data: &[u8]) -> u32 {
    !::crc32c::crc32c_append(!seed, data)
}

/// Continues `seed` over a little-endian 32-bit number.
#[must_use]
pub fn crc32c_le32(seed: u32, v: u32) -> u32 {
    crc32c(seed, &v.to_le_bytes())
}

/// Takes running checksums past data of one length whose own checksum is known, without the data.
///
/// [`crc32c()`] is linear: `crc32c(a, data) ^ crc32c(b, data)` is what `a ^ b` becomes over as many zero bytes, which
/// is looked up.
pub struct Known {
    /// What each value of each byte of a checksum becomes over the zeros.
    zeros: [[u32; 256]; 4],
}

impl Known {
    /// For data of `len` bytes.
    #[must_use]
    pub fn of_len(len: usize) -> Self {
        let zeros = vec![0; len];
        let bits: [u32; 32] = std::array::from_fn(|bit| crc32c(1 << bit, &zeros));
        let value =
            |byte: usize, v: usize| (0..8).filter(|n| v >> n & 1 == 1).fold(0, |sum, n| sum ^ bits[byte * 8 + n]);
        Known { zeros: std::array::from_fn(|byte| std::array::from_fn(|v| value(byte, v))) }
    }

    /// `crc32c(seed, data)`, where `known` is `crc32c(other, data)`.
    #[must_use]
    pub fn crc32c(&self, seed: u32, other: u32, known: u32) -> u32 {
        let [a, b, c, d] = (seed ^ other).to_le_bytes().map(usize::from);
        known ^ self.zeros[0][a] ^ self.zeros[1][b] ^ self.zeros[2][c] ^ self.zeros[3][d]
    }
}

/// crc16 (polynomial 0x8005, reflected), as `uninit_bg` uses it for group descriptors.
#[must_use]
pub fn crc16(seed: u16, data: &[u8]) -> u16 {
    const ARC: crc::Crc<u16> = crc::Crc::<u16>::new(&crc::CRC_16_ARC);
    // CRC-16/ARC reflects, so the running register is the reflected initial value.
    let mut digest = ARC.digest_with_initial(seed.reverse_bits());
    digest.update(data);
    digest.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checksum_is_taken_past_data_that_is_known() {
        for len in [1, 7, 1024, 4096] {
            let data: Vec<u8> = (0..len).map(|n: usize| (n * n).to_le_bytes()[0]).collect();
            let known = Known::of_len(len);
            for (seed, other) in [(0, 0), (!0, 1), (0x1234_5678, 0x9ABC_DEF0), (1 << 31, 1 << 8)] {
                assert_eq!(known.crc32c(seed, other, crc32c(other, &data)), crc32c(seed, &data), "{len} bytes");
            }
        }
    }

    #[test]
    fn known_answers() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283);
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
        assert_eq!(crc16(crc16(0, b"1234"), b"56789"), 0xBB3D);
        assert_eq!(crc32c(crc32c(!0, b"1234"), b"56789"), crc32c(!0, b"123456789"));
    }
}
