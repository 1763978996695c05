//! The first 64 bytes of a transaction, and its commit word.
//!
//! ```text
//! 0x00 magic 51554E54 (4)   0x04 tid (4)        0x08 position (8)       0x10 bytes in all, commit included (4)
//! 0x14 packed bytes (4)     0x18 records (4)    0x1C whole images (4)   0x20 seconds (8)   0x28 nanoseconds (4)
//! 0x2C zero (12)            0x38 crc of what follows the head up to the commit (4)         0x3C crc of the 60 bytes before (4)
//!
//! the commit word, at the start of the last granule:   tid (4), ~ crc of the head (4)
//! ```
//! V2: the commit word is stored when everything before it is fenced. So: no word, the transaction was torn off; a word
//! and bytes that do not match, the memory is damaged.

use super::LINE;
use super::label::Label;
use crate::bytes::{be32, be64, put_be32, put_be64};
use crate::checksum::crc32c;
use crate::units::Tid;

const MAGIC: u32 = 0x5155_4E54;
/// Bytes of a head.
pub const LEN: usize = 64;
const BODY_SUM: usize = 0x38;
const HEAD_SUM: usize = 0x3C;

/// V8: the seed of all checksums of transactions in one region of one use of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TxnSeed(u32);

impl TxnSeed {
    /// Of the region that a position lies in.
    #[must_use]
    pub fn at(label: &Label, position: u64) -> Self {
        let sum = crc32c(crc32c(!0, &label.uuid), &label.epoch.to_be_bytes());
        TxnSeed(crc32c(sum, &(position / label.region_len()).to_be_bytes()))
    }

    /// The checksum of a transaction's body begins with this.
    #[must_use]
    pub fn start(self) -> u32 {
        self.0
    }
}

/// A transaction's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    pub tid: Tid,
    pub position: u64,
    /// Bytes in all, the commit's granule included.
    pub bytes: u32,
    /// Bytes of records and their bodies, which follow the head.
    pub packed: u32,
    pub records: u32,
    pub images: u32,
    pub seconds: u64,
    pub nanoseconds: u32,
    /// crc32c of everything between head and commit.
    pub body: u32,
}

/// The word that makes the transaction with this head valid.
#[must_use]
pub fn commit_word(tid: Tid, head: &[u8; LEN]) -> [u8; 8] {
    let mut word = [0; 8];
    put_be32(&mut word, 0, tid.0);
    put_be32(&mut word, 4, !be32(head, HEAD_SUM));
    word
}

impl Head {
    /// Bytes from the head on until the whole images: whole granules.
    #[must_use]
    pub fn descriptor_len(packed: u32, granule: u32) -> u64 {
        (u64::from(packed) + LEN as u64).next_multiple_of(granule.into())
    }

    /// Bytes that a transaction takes.
    #[must_use]
    pub fn total(packed: u32, images: u32, block: u64, granule: u32) -> u64 {
        Self::descriptor_len(packed, granule) + u64::from(images) * block + u64::from(granule)
    }

    #[must_use]
    pub fn encode(&self, seed: TxnSeed) -> [u8; LEN] {
        let mut b = [0; LEN];
        put_be32(&mut b, 0x00, MAGIC);
        put_be32(&mut b, 0x04, self.tid.0);
        put_be64(&mut b, 0x08, self.position);
        put_be32(&mut b, 0x10, self.bytes);
        put_be32(&mut b, 0x14, self.packed);
        put_be32(&mut b, 0x18, self.records);
        put_be32(&mut b, 0x1C, self.images);
        put_be64(&mut b, 0x20, self.seconds);
        put_be32(&mut b, 0x28, self.nanoseconds);
        put_be32(&mut b, BODY_SUM, self.body);
        let sum = crc32c(seed.0, &b[..HEAD_SUM]);
        put_be32(&mut b, HEAD_SUM, sum);
        b
    }

    /// The head at a position. `None`: none was written there for this round.
    #[must_use]
    pub fn decode(label: &Label, position: u64, b: &[u8; LEN]) -> Option<Head> {
        let seed = TxnSeed::at(label, position);
        if be32(b, 0) != MAGIC || be32(b, HEAD_SUM) != crc32c(seed.0, &b[..HEAD_SUM]) || be64(b, 0x08) != position {
            return None;
        }
        let head = Head {
            tid: Tid(be32(b, 0x04)),
            position,
            bytes: be32(b, 0x10),
            packed: be32(b, 0x14),
            records: be32(b, 0x18),
            images: be32(b, 0x1C),
            seconds: be64(b, 0x20),
            nanoseconds: be32(b, 0x28),
            body: be32(b, BODY_SUM),
        };
        let total = Self::total(head.packed, head.images, label.block_size.bytes64(), label.granule);
        let end = position % label.region_len() + total;
        (total == u64::from(head.bytes) && end <= label.region_len()).then_some(head)
    }

    /// Where its whole images begin, from the transaction's start.
    #[must_use]
    pub fn images_at(&self, granule: u32) -> u64 {
        Self::descriptor_len(self.packed, granule)
    }

    /// Where its commit word stands, from the transaction's start.
    #[must_use]
    pub fn commit_at(&self, granule: u32) -> u64 {
        u64::from(self.bytes) - u64::from(granule.max(LINE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// V8.
    #[test]
    fn a_head_is_believed_at_its_place_in_its_round_only() {
        let label = Label { tail: 0, ..crate::nvlog::sample() };
        let position = label.region_len() + 128;
        let bytes = u32::try_from(Head::total(100, 2, 4096, 64)).unwrap();
        let (packed, records, images) = (100, 3, 2);
        let head =
            Head { tid: Tid(9), position, bytes, packed, records, images, seconds: 7, nanoseconds: 8, body: 0xABCD };
        let b = head.encode(TxnSeed::at(&label, position));
        assert_eq!(Head::decode(&label, position, &b), Some(head));
        assert_eq!((head.images_at(64), head.commit_at(64)), (192, u64::from(bytes) - 64));
        let next_round = position + label.capacity();
        assert_eq!(Head::decode(&label, next_round, &b), None);
        assert_eq!(Head::decode(&Label { epoch: 4, ..label }, position, &b), None);
        for at in 0..LEN {
            let mut bad = b;
            bad[at] ^= 4;
            assert_eq!(Head::decode(&label, position, &bad), None, "byte {at}");
        }
        let too_long = Head { images: 200, bytes: u32::try_from(Head::total(100, 200, 4096, 64)).unwrap(), ..head };
        assert_eq!(Head::decode(&label, position, &too_long.encode(TxnSeed::at(&label, position))), None);
        assert_ne!(commit_word(Tid(9), &b), commit_word(Tid(10), &b));
    }
}
