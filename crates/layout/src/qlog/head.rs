//! The first 64 bytes of a transaction.
//!
//! ```text
//! 0x00 magic C03B3998  0x04 type 51554C31  0x08 tid  0x0C length of the run, blocks  0x10 packed bytes  0x14 records
//! 0x18 flush epoch (8)  0x20 seconds (8)  0x28 nanoseconds  0x2C whole images  0x30 zero (8)
//! 0x38 crc of these 64 bytes, this field as 0   0x3C crc of the run, this field and the one before as 0
//! ```
//! Both checksums are crc32c, seeded with that of the journal's UUID. The second covers every byte of every block of
//! the run, so a run is whole or nothing (Q2).

pub use super::pack::HEAD_LEN as LEN;
use super::{BLOCK_TYPE, pack};
use crate::bytes::{be32, be64, put_be32, put_be64};
use crate::checksum::crc32c;
use crate::jbd2::{LogSeed, MAGIC};
use crate::units::{BlockSize, Tid};

const HEAD_SUM: usize = 0x38;
const RUN_SUM: usize = 0x3C;

/// A transaction's head.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Head {
    pub tid: Tid,
    /// Log blocks that the transaction takes.
    pub blocks: u32,
    /// Bytes of packed records.
    pub packed: u32,
    /// How many records they are.
    pub records: u32,
    /// Blocks that are whole images: the last ones.
    pub images: u32,
    /// Grows from each transaction to the next; one with a higher epoch was written when this one was durable.
    pub epoch: u64,
    pub seconds: u64,
    pub nanoseconds: u32,
}

/// The checksum that is to match the whole run, as its head has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunSum {
    expected: u32,
    sum: u32,
}

impl Head {
    /// True if a block begins as a head does; nothing is believed yet.
    #[must_use]
    pub fn is_at(block: &[u8]) -> bool {
        block.len() >= LEN && be32(block, 0) == MAGIC && be32(block, 4) == BLOCK_TYPE
    }

    /// The head at the start of a block, and what the run's checksum must be. `None`: there is none, its checksum does
    /// not match, or it says what cannot be.
    #[must_use]
    pub fn decode(seed: LogSeed, bs: BlockSize, block: &[u8]) -> Option<(Head, RunSum)> {
        if !Self::is_at(block) || be32(block, HEAD_SUM) != head_sum(seed, block) || be64(block, 0x30) != 0 {
            return None;
        }
        let head = Head {
            tid: Tid(be32(block, 0x08)),
            blocks: be32(block, 0x0C),
            packed: be32(block, 0x10),
            records: be32(block, 0x14),
            epoch: be64(block, 0x18),
            seconds: be64(block, 0x20),
            nanoseconds: be32(block, 0x28),
            images: be32(block, 0x2C),
        };
        let fits = pack::blocks_for(bs, head.packed).checked_add(head.images) == Some(head.blocks);
        fits.then_some((head, RunSum { expected: be32(block, RUN_SUM), sum: seed.0 }))
    }

    /// Writes the head at the start of the run's first block; which is otherwise as it will be on disk. `others` takes
    /// the checksum of that block on over all others.
    pub fn seal(&self, seed: LogSeed, first: &mut [u8], others: impl FnOnce(u32) -> u32) {
        first[..LEN].fill(0);
        put_be32(first, 0x00, MAGIC);
        put_be32(first, 0x04, BLOCK_TYPE);
        put_be32(first, 0x08, self.tid.0);
        put_be32(first, 0x0C, self.blocks);
        put_be32(first, 0x10, self.packed);
        put_be32(first, 0x14, self.records);
        put_be64(first, 0x18, self.epoch);
        put_be64(first, 0x20, self.seconds);
        put_be32(first, 0x28, self.nanoseconds);
        put_be32(first, 0x2C, self.images);
        let sum = others(crc32c(seed.0, first));
        put_be32(first, RUN_SUM, sum);
        let sum = head_sum(seed, first);
        put_be32(first, HEAD_SUM, sum);
    }
}

fn head_sum(seed: LogSeed, block: &[u8]) -> u32 {
    let sum = crc32c(crc32c(seed.0, &block[..HEAD_SUM]), &[0; 4]);
    crc32c(sum, &block[HEAD_SUM + 4..LEN])
}

impl RunSum {
    /// Takes in the run's blocks, one after the other, from its first.
    pub fn feed_first(&mut self, block: &[u8]) {
        self.sum = crc32c(crc32c(self.sum, &block[..HEAD_SUM]), &[0; 8]);
        self.sum = crc32c(self.sum, &block[LEN..]);
    }

    /// Takes in the next block.
    pub fn feed(&mut self, block: &[u8]) {
        self.sum = crc32c(self.sum, block);
    }

    /// True if all blocks were as they had been written.
    #[must_use]
    pub fn matches(self) -> bool {
        self.sum == self.expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> (Head, Vec<u8>) {
        let head = Head {
            tid: Tid(9),
            blocks: 3,
            packed: 1200,
            records: 2,
            images: 1,
            epoch: 7,
            seconds: 11,
            nanoseconds: 13,
        };
        let mut bytes: Vec<u8> = (0..3 * 1024u32).map(|n| n.to_le_bytes()[0]).collect();
        let (first, rest) = bytes.split_at_mut(1024);
        head.seal(LogSeed(5), first, |sum| rest.chunks(1024).fold(sum, crc32c));
        (head, bytes)
    }

    fn judge(bytes: &[u8]) -> Option<bool> {
        let (_, mut sum) = Head::decode(LogSeed(5), BlockSize::K1, &bytes[..1024])?;
        sum.feed_first(&bytes[..1024]);
        bytes[1024..].chunks(1024).for_each(|b| sum.feed(b));
        Some(sum.matches())
    }

    #[test]
    fn every_bit_of_a_run_counts_q2() {
        let (head, bytes) = run();
        assert_eq!(Head::decode(LogSeed(5), BlockSize::K1, &bytes).unwrap().0, head);
        assert_eq!(judge(&bytes), Some(true));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            let expected = if at < LEN { None } else { Some(false) };
            assert_eq!(judge(&bad), expected, "byte {at}");
        }
        assert!(Head::decode(LogSeed(6), BlockSize::K1, &bytes).is_none(), "another journal's");
        assert!(Head::decode(LogSeed(5), BlockSize::K4, &bytes).is_none(), "lengths that do not fit");
        assert!(Head::decode(LogSeed(5), BlockSize::K1, &bytes[..40]).is_none());
    }
}
