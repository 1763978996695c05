//! One record: what a transaction does to a block.
//!
//! ```text
//! 0x0 home block (8)  0x8 kind  0x9 zero  0xA count (2)  0xC crc of the resulting image      then the body
//!
//! kind          count                body
//! 1 image       0                    none: the run's next whole-image block
//! 2 ranges      ranges               table and bytes ([`super::ranges`]), over the block's last image
//! 3 zero ranges ranges               the same, over zeros
//! 4 delta       compressed bytes     LZ4 block of the exclusive or with the image logged last ([`super::delta`])
//! 5 revoke      blocks               none: records of these blocks, here and earlier, are void; crc 0
//! ```
//! The crc is crc32c, seeded with that of the journal's UUID, over the home block's number (8 bytes) and the image.

use super::ranges::ENTRY;
use crate::bytes::{be16, be32, be64, put_be16, put_be32, put_be64};
use crate::checksum::{Known, crc32c};
use crate::jbd2::LogSeed;
use crate::units::{BlockNo, BlockSize};

/// Bytes of a record without its body.
pub const RECORD: usize = 16;

/// What a record holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Image,
    Ranges,
    ZeroRanges,
    Delta,
    Revoke,
}

impl Kind {
    /// True if the resulting image needs nothing but this record.
    #[must_use]
    pub fn is_self_contained(self) -> bool {
        matches!(self, Kind::Image | Kind::ZeroRanges)
    }

    fn code(self) -> u8 {
        match self {
            Kind::Image => 1,
            Kind::Ranges => 2,
            Kind::ZeroRanges => 3,
            Kind::Delta => 4,
            Kind::Revoke => 5,
        }
    }

    fn from_code(n: u8) -> Option<Kind> {
        [Kind::Image, Kind::Ranges, Kind::ZeroRanges, Kind::Delta, Kind::Revoke].into_iter().find(|k| k.code() == n)
    }
}

/// A record without its body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    pub home: BlockNo,
    pub kind: Kind,
    pub count: u16,
    /// Checksum of the resulting image: [`Record::result_of`].
    pub result: u32,
}

impl Record {
    /// Checksum of an image of block `home`.
    #[must_use]
    pub fn result_of(seed: LogSeed, home: BlockNo, image: &[u8]) -> u32 {
        crc32c(Self::before(seed, home), image)
    }

    /// What the checksum of an image of block `home` goes on from.
    fn before(seed: LogSeed, home: BlockNo) -> u32 {
        crc32c(seed.0, &home.0.to_be_bytes())
    }

    /// Takes a checksum of the run on over this record's image, which is not looked at again: `known` is for a block's
    /// length.
    #[must_use]
    pub fn carry(&self, seed: LogSeed, known: &Known, sum: u32) -> u32 {
        known.crc32c(sum, Self::before(seed, self.home), self.result)
    }

    #[must_use]
    pub fn encode(&self) -> [u8; RECORD] {
        let mut b = [0; RECORD];
        put_be64(&mut b, 0, self.home.0);
        b[8] = self.kind.code();
        put_be16(&mut b, 0xA, self.count);
        put_be32(&mut b, 0xC, self.result);
        b
    }

    /// `None`: no such record can have been written for blocks of this size.
    #[must_use]
    pub fn decode(bs: BlockSize, bytes: &[u8; RECORD]) -> Option<Record> {
        let kind = Kind::from_code(bytes[8]).filter(|_| bytes[9] == 0)?;
        let r = Record { home: BlockNo(be64(bytes, 0)), kind, count: be16(bytes, 0xA), result: be32(bytes, 0xC) };
        let count = usize::from(r.count);
        let sane = match kind {
            Kind::Image => count == 0,
            Kind::Ranges | Kind::ZeroRanges => count * ENTRY <= bs.bytes(),
            Kind::Delta => count > 0 && count < bs.bytes(),
            Kind::Revoke => count > 0 && r.result == 0 && r.home.0.checked_add(u64::from(r.count)).is_some(),
        };
        sane.then_some(r)
    }

    /// Bytes of the body's table.
    #[must_use]
    pub fn table_len(&self) -> usize {
        if matches!(self.kind, Kind::Ranges | Kind::ZeroRanges) { usize::from(self.count) * ENTRY } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_come_back(bytes in any::<[u8; RECORD]>()) {
            if let Some(r) = Record::decode(BlockSize::K4, &bytes) {
                prop_assert_eq!(r.encode(), bytes);
            }
        }

        #[test]
        fn what_is_written_is_read(home in any::<u64>(), kind in 1u8..5, count in 1u16..1000, result in any::<u32>()) {
            let kind = Kind::from_code(kind).unwrap();
            let count = if kind == Kind::Image { 0 } else { count };
            let r = Record { home: BlockNo(home), kind, count, result };
            prop_assert_eq!(Record::decode(BlockSize::K4, &r.encode()), Some(r));
        }
    }

    #[test]
    fn impossible_records_are_refused() {
        let r = Record { home: BlockNo(4), kind: Kind::Revoke, count: 1, result: 0 };
        assert!(Record::decode(BlockSize::K1, &r.encode()).is_some());
        for bad in [
            Record { count: 0, ..r },
            Record { result: 1, ..r },
            Record { home: BlockNo(u64::MAX), count: 2, ..r },
            Record { kind: Kind::Image, ..r },
            Record { kind: Kind::Ranges, count: 257, ..r },
            Record { kind: Kind::Delta, count: 1024, ..r },
        ] {
            assert!(Record::decode(BlockSize::K1, &bad.encode()).is_none(), "{bad:?}");
        }
    }
}
