//! The label of a log in NVRAM: what it is, whose it is, and where it begins.
//!
//! ```text
//! 0x00 "QuireNV1"   0x08 version (2)  0x0A log2 of the granule (2)  0x0C incompat (4)
//! 0x10 UUID         0x20 UUID of the file system
//! 0x30 use (8)      0x38 sequence of the label (8)   0x40 bytes in all (8)   0x48 regions (4)  0x4C log2 of the block size (4)
//! 0x50 position of the tail (8)   0x58 tid of the tail (4)   0x5C zero (32)
//! 0x7C crc32c over the 124 bytes before, seeded with ~0
//! ```
//! Guarantee V3: a label is changed by writing the slot that is not the newest, and then a fence: a torn slot does not
//! match its checksum, and the other one stands.
//!
//! Whose transactions stand at the tail is needed by an image; a log without any is free.

use super::{PAGE, START};
use crate::bytes::{be16, be32, be64, put_be16, put_be32, put_be64};
use crate::checksum::crc32c;
use crate::error::Unsupported;
use crate::qlog::signature::incompat;
use crate::units::{BlockSize, Tid};

/// Bytes of a label.
pub const LEN: usize = 128;
/// Where its slots lie.
pub const SLOTS: [u64; 2] = [0, 0x1000];
const MAGIC: &[u8; 8] = b"QuireNV1";
/// Bytes of the largest log: its lines are counted in 32 bits.
pub const LARGEST: u64 = 1 << 38;
/// No label ever counts so far: there is always a next number.
const LAST: u64 = u64::MAX - (1 << 32);
const VERSION: u16 = 1;
const SUM: usize = 0x7C;

/// A label.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label {
    /// Transactions begin at multiples of this: [`super::LINE`], or the block size.
    pub granule: u32,
    /// Features that readers must know, as of the block log's signature.
    pub incompat: u32,
    pub uuid: [u8; 16],
    /// UUID of the file system whose log it is.
    pub fs_uuid: [u8; 16],
    /// The use of the log: the journal's superblock in the image names the same.
    pub epoch: u64,
    /// Grows from label to label: of two valid slots the higher one counts.
    pub sequence: u64,
    /// Bytes of the memory that the log takes, the label included.
    pub size: u64,
    pub regions: u32,
    pub block_size: BlockSize,
    /// Position of the oldest transaction that is still needed.
    pub tail: u64,
    /// Its number.
    pub tid: Tid,
}

/// True if bytes that are no label may be the part of one that had arrived: its first word did, or did not.
#[must_use]
pub fn may_be_torn(bytes: &[u8]) -> bool {
    bytes.get(..8).is_none_or(|first| first == MAGIC || first == [0; 8])
}

impl Label {
    /// The label of the two slots that counts. `None`: there is none.
    #[must_use]
    pub fn newest(slots: [&[u8; LEN]; 2]) -> Option<Label> {
        slots.into_iter().filter_map(Self::decode).max_by_key(|l| l.sequence)
    }

    /// From one slot. `None`: no label, torn, or one that cannot be.
    #[must_use]
    pub fn decode(b: &[u8; LEN]) -> Option<Label> {
        if &b[..8] != MAGIC || be32(b, SUM) != crc32c(!0, &b[..SUM]) || be16(b, 0x08) != VERSION {
            return None;
        }
        let id = |at: usize| b[at..at + 16].try_into().expect("16 bytes");
        let block_size = BlockSize::from_log(be32(b, 0x4C).checked_sub(10)?)?;
        let label = Label {
            granule: 1u32.checked_shl(be16(b, 0x0A).into())?,
            incompat: be32(b, 0x0C),
            uuid: id(0x10),
            fs_uuid: id(0x20),
            epoch: be64(b, 0x30),
            sequence: be64(b, 0x38),
            size: be64(b, 0x40),
            regions: be32(b, 0x48),
            block_size,
            tail: be64(b, 0x50),
            tid: Tid(be32(b, 0x58)),
        };
        let granule = label.granule == super::LINE || u64::from(label.granule) == block_size.bytes64();
        let counts = label.tail < 1 << 62 && label.sequence < LAST && label.epoch < LAST;
        let sane = granule && label.size <= LARGEST && label.regions > 0 && label.region_len() >= PAGE;
        (sane && counts && label.tail.is_multiple_of(label.granule.into())).then_some(label)
    }

    #[must_use]
    pub fn encode(&self) -> [u8; LEN] {
        let mut b = [0; LEN];
        b[..8].copy_from_slice(MAGIC);
        put_be16(&mut b, 0x08, VERSION);
        put_be16(&mut b, 0x0A, u16::try_from(self.granule.ilog2()).expect("below 32"));
        put_be32(&mut b, 0x0C, self.incompat);
        b[0x10..0x20].copy_from_slice(&self.uuid);
        b[0x20..0x30].copy_from_slice(&self.fs_uuid);
        put_be64(&mut b, 0x30, self.epoch);
        put_be64(&mut b, 0x38, self.sequence);
        put_be64(&mut b, 0x40, self.size);
        put_be32(&mut b, 0x48, self.regions);
        put_be32(&mut b, 0x4C, self.block_size.bits());
        put_be64(&mut b, 0x50, self.tail);
        put_be32(&mut b, 0x58, self.tid.0);
        let sum = crc32c(!0, &b[..SUM]);
        put_be32(&mut b, SUM, sum);
        b
    }

    /// This version can read the log.
    ///
    /// # Errors
    /// Unsupported, by name.
    pub fn check(&self) -> Result<(), Unsupported> {
        match self.incompat & !incompat::KNOWN {
            0 => Ok(()),
            n => Err(Unsupported::new(format!("incompat features {n:#x} of Quire's log in NVRAM"))),
        }
    }

    /// Bytes of a region.
    #[must_use]
    pub fn region_len(&self) -> u64 {
        let each = self.size.saturating_sub(START) / u64::from(self.regions);
        each - each % PAGE
    }

    /// Bytes of all regions.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        self.region_len() * u64::from(self.regions)
    }

    /// Where a position lies in the memory.
    #[must_use]
    pub fn place(&self, position: u64) -> u64 {
        START + position % self.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nvlog::sample as label;

    #[test]
    fn a_torn_slot_leaves_the_other_one_v3() {
        let (old, new) = (label(), Label { sequence: 5, tail: 1280, ..label() });
        let (a, b) = (old.encode(), new.encode());
        assert_eq!(Label::newest([&a, &b]), Some(new));
        assert_eq!(Label::newest([&b, &a]), Some(new));
        for at in 0..LEN {
            let mut torn = b;
            torn[at] ^= 1;
            assert_eq!(Label::newest([&a, &torn]), Some(old), "byte {at}");
        }
        assert_eq!(Label::newest([&[0; LEN]; 2]), None);
    }

    #[test]
    fn positions_go_round_and_sizes_are_pages() {
        let l = label();
        assert_eq!(l.region_len(), (1 << 20) / 2 - 4096);
        assert_eq!(l.place(0), START);
        assert_eq!(l.place(l.region_len() * 2 + 64), START + 64);
        assert!(Label::decode(&Label { regions: 0, ..l }.encode()).is_none());
        assert!(Label::decode(&Label { granule: 128, ..l }.encode()).is_none());
        assert!(Label::decode(&Label { size: 4096, ..l }.encode()).is_none());
        assert!(Label::decode(&Label { sequence: u64::MAX, ..l }.encode()).is_none());
        assert!(Label::decode(&Label { epoch: u64::MAX, ..l }.encode()).is_none());
        assert!(Label { incompat: 0x100, ..l }.check().is_err());
    }
}
