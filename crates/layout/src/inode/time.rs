//! The times of an inode: 32 bits of seconds in the old part, two more and the nanoseconds in the extended one.

use super::checksum::{CSUM_HI, CSUM_LO};
use super::extended::has_extra;
use super::{GOOD_OLD_SIZE, Inode};
use crate::bytes::{le32, lo32, put_le32};

/// A point in time as ext4 stores it: seconds since the epoch in 34 bits (1901 to 2446), nanoseconds in 30.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Timestamp {
    pub secs: i64,
    pub nanos: u32,
}

impl Timestamp {
    /// The last second that 34 bits hold, 2446-05-10.
    pub const MAX_SECS: i64 = 0x3_7FFF_FFFF;
    /// The first, 1901-12-13.
    pub const MIN_SECS: i64 = -0x8000_0000;

    fn decode(base: u32, extra: Option<u32>) -> Self {
        let secs = i64::from(base.cast_signed());
        match extra {
            None => Timestamp { secs, nanos: 0 },
            Some(x) => Timestamp { secs: secs + (i64::from(x & 3) << 32), nanos: (x >> 2).min(999_999_999) },
        }
    }

    /// Base and extra words; clamps to what they hold. The first and the last second have no parts, as in the kernel.
    fn encode(self, wide: bool) -> (u32, u32) {
        let max = if wide { Self::MAX_SECS } else { i64::from(i32::MAX) };
        let secs = self.secs.clamp(Self::MIN_SECS, max);
        let nanos = if secs == Self::MIN_SECS || secs == max { 0 } else { self.nanos };
        let base = lo32(secs.cast_unsigned());
        let epoch = lo32(((secs - i64::from(base.cast_signed())) >> 32).cast_unsigned()) & 3;
        (base, epoch | nanos << 2)
    }
}

/// Which of an inode's times.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Time {
    Access,
    Change,
    Modify,
    Create,
}

impl Time {
    /// Offsets of the base and the extra word.
    fn at(self) -> (usize, usize) {
        match self {
            Time::Access => (0x08, 0x8C),
            Time::Change => (0x0C, 0x84),
            Time::Modify => (0x10, 0x88),
            Time::Create => (0x90, 0x94),
        }
    }
}

impl Inode {
    /// One of the times, or `None` for a creation time that the record has no room for.
    #[must_use]
    pub fn time(&self, which: Time) -> Option<Timestamp> {
        let (base, extra) = which.at();
        if which == Time::Create && !has_extra(&self.raw, base + 4) {
            return None;
        }
        let extra = has_extra(&self.raw, extra + 4).then(|| le32(&self.raw, extra));
        Some(Timestamp::decode(le32(&self.raw, base), extra))
    }

    /// Stores a time, clamped to what the record can hold.
    pub fn set_time(&mut self, which: Time, t: Timestamp) {
        let (base, extra) = which.at();
        if which == Time::Create && !has_extra(&self.raw, base + 4) {
            return;
        }
        let wide = has_extra(&self.raw, extra + 4);
        let (b, x) = t.encode(wide);
        put_le32(&mut self.raw, base, b);
        if wide {
            put_le32(&mut self.raw, extra, x);
        }
    }
}

/// True if two records of the same size differ at most in access, modification and change times, `i_version` and
/// checksum.
#[must_use]
pub fn same_but_for_times(record: &[u8], other: &[u8]) -> bool {
    const KEPT: [std::ops::Range<usize>; 4] = [0..0x08, 0x14..0x24, 0x28..CSUM_LO, CSUM_LO + 2..GOOD_OLD_SIZE];
    let same = |r: std::ops::Range<usize>| record.get(r.clone()) == other.get(r);
    let wide = record.len().min(0x9C);
    let extra = record.len() <= GOOD_OLD_SIZE || (same(0x80..CSUM_HI) && same(0x90..wide.min(0x98)));
    KEPT.into_iter().all(same) && extra && record[wide..] == other[wide.min(other.len())..]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::Ino;

    #[test]
    fn times_keep_34_bits_and_nanoseconds() {
        let mut i = Inode::new(256, 32);
        let (min, max) = (Timestamp::MIN_SECS, Timestamp::MAX_SECS);
        for secs in [min + 1, -1, 0, 0x7FFF_FFFF, 0x8000_0000, 0x1_0000_0000, max - 1] {
            let t = Timestamp { secs, nanos: 999_999_999 };
            i.set_time(Time::Modify, t);
            assert_eq!(i.time(Time::Modify), Some(t));
        }
        for (secs, kept) in [(i64::MIN, min), (min, min), (max, max), (i64::MAX, max)] {
            i.set_time(Time::Modify, Timestamp { secs, nanos: 999_999_999 });
            assert_eq!(i.time(Time::Modify), Some(Timestamp { secs: kept, nanos: 0 }));
        }
        let mut old = Inode::new(128, 0);
        old.set_time(Time::Modify, Timestamp { secs: 0x1_0000_0000, nanos: 5 });
        assert_eq!(old.time(Time::Modify), Some(Timestamp { secs: 0x7FFF_FFFF, nanos: 0 }));
        assert_eq!(old.time(Time::Create), None);
    }

    #[test]
    fn times_versions_and_checksums_do_not_make_a_difference() {
        for size in [128, 256, 512] {
            let mut i = Inode::new(size, 32);
            i.set_mode(0o100_644);
            let old = i.sealed(Ino(12), Some(7)).to_vec();
            i.set_version(0x1_0000_0001);
            for t in [Time::Access, Time::Change, Time::Modify] {
                i.set_time(t, Timestamp { secs: 0x1_0000_0005, nanos: 7 });
            }
            i.sealed(Ino(12), Some(7));
            assert!(same_but_for_times(i.raw(), &old));
            for change in [0x00, 0x14, 0x28, 0x64, 0x7F, 0x81, 0x90, 0x9C, 0xA0, size - 1] {
                let mut j = i.clone();
                if change < size {
                    j.raw_mut()[change] ^= 1;
                    assert!(!same_but_for_times(j.raw(), &old), "byte {change:#x} of {size}");
                }
            }
        }
    }
}
