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
    fn known_answers() {
        assert_eq!(!crc32c(!0, b"123456789"), 0xE306_9283);
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
        assert_eq!(crc16(crc16(0, b"1234"), b"56789"), 0xBB3D);
        assert_eq!(crc32c(crc32c(!0, b"1234"), b"56789"), crc32c(!0, b"123456789"));
    }
}
