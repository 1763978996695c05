//! The number of a device node, in the bytes of its block map.

use crate::bytes::{le32, put_le32};

/// Device number of a device node as (major, minor), from its block area.
#[must_use]
pub fn device_number(area: &[u8; 60]) -> (u32, u32) {
    let (old, new) = (le32(area, 0), le32(area, 4));
    if old != 0 {
        ((old >> 8) & 0xFF, old & 0xFF)
    } else {
        ((new >> 8) & 0xFFF, (new & 0xFF) | ((new >> 12) & 0xF_FF00))
    }
}

/// True if a device number as (major, minor) fits the bytes that it is stored in: 12 and 20 bits.
#[must_use]
pub fn is_device_number((major, minor): (u32, u32)) -> bool {
    major <= 0xFFF && minor <= 0xF_FFFF
}

/// Stores a device number in a block area. The caller has asked [`is_device_number`]; further bits are lost.
pub fn set_device_number(area: &mut [u8; 60], major: u32, minor: u32) {
    area.fill(0);
    if major < 256 && minor < 256 {
        put_le32(area, 0, major << 8 | minor);
    } else {
        put_le32(area, 4, (minor & 0xFF) | (major & 0xFFF) << 8 | (minor & 0xF_FF00) << 12);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_round_trip() {
        let mut area = [0; 60];
        for (major, minor) in [(0, 0), (8, 1), (255, 255), (256, 0), (1, 256), (0xFFF, 0xF_FFFF)] {
            set_device_number(&mut area, major, minor);
            assert_eq!(device_number(&area), (major, minor));
            assert!(is_device_number((major, minor)));
        }
        assert!(!is_device_number((0x1000, 0)) && !is_device_number((0, 0x10_0000)));
    }
}
