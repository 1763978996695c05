//! The revoke block: homes whose images in this and all earlier transactions must not be replayed.
//!
//! ```text
//! 0x0 header | 0xC bytes used, with this head | 0x10 block, block, ... (4 bytes, 8 with 64bit)   [| checksum, 4 bytes: v2, v3]
//! ```

use super::format::{BlockKind, Header, LogFormat, REVOKE_HEAD as HEAD};
use crate::bytes::{be32, be64, put_be32, put_be64, try_be32};
use crate::error::{Corrupt, Structure};
use crate::units::{BlockNo, Tid};
use std::ops::DerefMut;

/// The block numbers of a revoke block.
#[derive(Clone, Debug)]
pub struct Revokes<'a> {
    records: std::slice::ChunksExact<'a, u8>,
}

impl<'a> Revokes<'a> {
    /// Over the records of `block`, whose header the caller has looked at.
    ///
    /// # Errors
    /// Corrupt: the count leaves the block.
    pub fn new(format: &LogFormat, block: &'a [u8]) -> Result<Self, Corrupt> {
        let bad = |why| Corrupt::new(Structure::JournalBlock, why);
        let used = try_be32(block, 0xC).and_then(|n| usize::try_from(n).ok()).ok_or_else(|| bad("truncated"))?;
        if used > format.usable().min(block.len()) {
            return Err(bad("the count of a revoke block leaves the block"));
        }
        // A count below the head means no records, as in the kernel.
        let records = block.get(HEAD..used).unwrap_or_default().chunks_exact(format.revoke_bytes());
        Ok(Revokes { records })
    }
}

impl Iterator for Revokes<'_> {
    type Item = BlockNo;

    fn next(&mut self) -> Option<BlockNo> {
        let r = self.records.next()?;
        Some(BlockNo(if r.len() == 8 { be64(r, 0) } else { u64::from(be32(r, 0)) }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.records.size_hint()
    }
}

/// Builds a revoke block in a buffer of one block.
pub struct RevokeBuilder<B> {
    block: B,
    format: LogFormat,
    at: usize,
}

impl<B: DerefMut<Target = [u8]>> RevokeBuilder<B> {
    /// Starts a revoke block of transaction `tid`; `block` is overwritten.
    ///
    /// # Panics
    /// If `block` is not one block.
    #[must_use]
    pub fn new(format: &LogFormat, tid: Tid, mut block: B) -> Self {
        assert_eq!(block.len(), format.block_size.bytes(), "a revoke block is one block");
        block.fill(0);
        Header { kind: BlockKind::Revoke, tid }.encode(&mut block);
        RevokeBuilder { block, format: *format, at: HEAD }
    }

    /// True if no further record fits: [`LogFormat::revokes_per_block`] of them are in.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.at + self.format.revoke_bytes() > self.format.usable()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.at == HEAD
    }

    /// Adds a record.
    ///
    /// # Panics
    /// If the block is full or `home` needs 64 bits that the log lacks.
    pub fn push(&mut self, home: BlockNo) {
        assert!(!self.is_full(), "a full revoke block was checked for");
        if self.format.wide {
            put_be64(&mut self.block, self.at, home.0);
        } else {
            put_be32(&mut self.block, self.at, u32::try_from(home.0).expect("a log of 32-bit numbers"));
        }
        self.at += self.format.revoke_bytes();
    }

    /// Sets the count and seals the block.
    ///
    /// # Panics
    /// Never: a block's size fits 32 bits.
    #[must_use]
    pub fn seal(mut self) -> B {
        put_be32(&mut self.block, 0xC, u32::try_from(self.at).expect("at most 64 KiB"));
        if self.format.sealed() {
            let tail = self.block.len() - 4;
            self.format.seed.seal(&mut self.block, tail);
        }
        self.block
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::fixtures::*;
    use super::*;

    #[test]
    fn built_blocks_are_debugfs_ones() {
        for log in [NONE, V2, V3] {
            let f = format(log);
            let homes: Vec<BlockNo> = Revokes::new(&f, block(log, 5)).unwrap().collect();
            assert_eq!(homes, [BlockNo(15000), BlockNo(15002)]);
            let mut b = RevokeBuilder::new(&f, Tid(2), vec![0xEE; 1024]);
            homes.iter().for_each(|h| b.push(*h));
            assert_eq!(b.seal(), block(log, 5));
        }
    }

    #[test]
    fn a_full_block_gives_back_its_records() {
        for log in [NONE, V3] {
            let f = format(log);
            let mut b = RevokeBuilder::new(&f, Tid(2), vec![0; 1024]);
            let mut n = 0;
            while !b.is_full() {
                b.push(BlockNo(n));
                n += 1;
            }
            let sealed = b.seal();
            assert!(f.tail_matches(&sealed));
            assert_eq!(Revokes::new(&f, &sealed).unwrap().count(), f.revokes_per_block());
            assert_eq!(n, f.revokes_per_block() as u64);
        }
    }

    #[test]
    fn hostile_counts() {
        let f = format(V3);
        let mut b = block(V3, 5).to_vec();
        for (count, want) in
            [(0, Some(0)), (15, Some(0)), (23, Some(0)), (1020, Some(125)), (1021, None), (u32::MAX, None)]
        {
            put_be32(&mut b, 0xC, count);
            assert_eq!(Revokes::new(&f, &b).ok().map(Iterator::count), want, "{count}");
        }
        assert!(Revokes::new(&f, &b[..14]).is_err());
    }
}
