//! What the journal's superblock says about a log of Quire's, in bytes that jbd2 leaves unused.
//!
//! ```text
//! 0x60 "QuireLog"  0x68 version  0x6A log2 of the granularity  0x6C compat  0x70 incompat  0x74 ro_compat  0x78 epoch
//! 0x80 UUID of the log in NVRAM, if it is there  0x90 blocks of the longest transaction
//! ```
//! They share the first sector of the superblock with its checksum, so no tear parts them.

use crate::bytes::{be16, be32, be64, put_be16, put_be32, put_be64};
use crate::error::{Corrupt, Structure, Unsupported};
use crate::units::BlockSize;

/// Where the signature lies in the journal's superblock.
pub const AT: usize = 0x60;
/// Its length in bytes.
pub const LEN: usize = 0x34;
const MAGIC: &[u8; 8] = b"QuireLog";
/// The version that is written, and the only one that is read.
pub const VERSION: u16 = 1;

/// Bits of the feature word that readers may ignore.
pub mod compat {
    /// No transaction is longer than the signature says.
    pub const LONGEST: u32 = 0x1;
}

/// Bits of the feature word that readers must know.
pub mod incompat {
    /// Records may be byte ranges.
    pub const RANGES: u32 = 0x1;
    /// Records may be compressed differences.
    pub const DELTAS: u32 = 0x2;
    /// The log is in NVRAM; the log blocks hold nothing.
    pub const NVRAM: u32 = 0x4;
    pub const KNOWN: u32 = 0x7;
}

/// The signature.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Signature {
    pub version: u16,
    /// Unit of a transaction's length, log2 of bytes. Version 1: the block size.
    pub granularity: u16,
    pub compat: u32,
    pub incompat: u32,
    pub ro_compat: u32,
    /// Flush epoch at which this use of the log began: no transaction in it has a lower one.
    pub epoch: u64,
    /// UUID of the log in NVRAM; zeros where the log is here.
    pub nvram: [u8; 16],
    /// Blocks of the longest transaction that the log may hold, if `compat` has [`compat::LONGEST`]; else 0.
    pub longest: u32,
}

impl Signature {
    /// That of a log in blocks of this size.
    #[must_use]
    pub fn new(block_size: BlockSize, incompat: u32, epoch: u64) -> Self {
        let granularity = u16::try_from(block_size.bits()).expect("at most 16");
        Signature {
            version: VERSION,
            granularity,
            compat: 0,
            incompat,
            ro_compat: 0,
            epoch,
            nvram: [0; 16],
            longest: 0,
        }
    }

    /// The same, of a log whose transactions take so many blocks at most (Q10).
    #[must_use]
    pub fn with_longest(self, blocks: u32) -> Self {
        Signature { compat: self.compat | compat::LONGEST, longest: blocks, ..self }
    }

    /// Blocks that a transaction takes at most, if the log says so.
    #[must_use]
    pub fn longest(&self) -> Option<u32> {
        (self.compat & compat::LONGEST != 0).then_some(self.longest)
    }

    /// From the bytes at [`AT`].
    ///
    /// # Errors
    /// Corrupt: it is not there.
    pub fn decode(bytes: &[u8; LEN]) -> Result<Self, Corrupt> {
        if &bytes[..8] != MAGIC {
            return Err(Corrupt::new(Structure::JournalSuperblock, "Quire's feature without its signature"));
        }
        Ok(Signature {
            version: be16(bytes, 0x08),
            granularity: be16(bytes, 0x0A),
            compat: be32(bytes, 0x0C),
            incompat: be32(bytes, 0x10),
            ro_compat: be32(bytes, 0x14),
            epoch: be64(bytes, 0x18),
            nvram: bytes[0x20..0x30].try_into().expect("16 bytes"),
            longest: be32(bytes, 0x30),
        })
    }

    #[must_use]
    pub fn encode(&self) -> [u8; LEN] {
        let mut b = [0; LEN];
        b[..8].copy_from_slice(MAGIC);
        put_be16(&mut b, 0x08, self.version);
        put_be16(&mut b, 0x0A, self.granularity);
        put_be32(&mut b, 0x0C, self.compat);
        put_be32(&mut b, 0x10, self.incompat);
        put_be32(&mut b, 0x14, self.ro_compat);
        put_be64(&mut b, 0x18, self.epoch);
        b[0x20..0x30].copy_from_slice(&self.nvram);
        put_be32(&mut b, 0x30, self.longest);
        b
    }

    /// The UUID of the log in NVRAM, if it is there.
    #[must_use]
    pub fn in_nvram(&self) -> Option<[u8; 16]> {
        (self.incompat & incompat::NVRAM != 0).then_some(self.nvram)
    }

    /// This version can read the log.
    ///
    /// # Errors
    /// Unsupported, by name.
    pub fn check(&self, block_size: BlockSize) -> Result<(), Unsupported> {
        let refuse = |what: String| Err(Unsupported::new(what));
        if self.version != VERSION {
            return refuse(format!("version {} of Quire's log", self.version));
        }
        match (self.incompat & !incompat::KNOWN, self.ro_compat) {
            (0, 0) => {}
            (0, n) => return refuse(format!("ro_compat features {n:#x} of Quire's log")),
            (n, _) => return refuse(format!("incompat features {n:#x} of Quire's log")),
        }
        if u32::from(self.granularity) != block_size.bits() {
            return refuse(format!("a granularity of 2^{} bytes in Quire's log", self.granularity));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_the_unknown_is_refused_by_name() {
        let s = Signature::new(BlockSize::K4, incompat::RANGES, 77);
        assert_eq!(Signature::decode(&s.encode()), Ok(s));
        assert!(s.check(BlockSize::K4).is_ok());
        assert_eq!((s.longest(), s.with_longest(9).longest()), (None, Some(9)));
        assert_eq!(Signature::decode(&s.with_longest(9).encode()), Ok(s.with_longest(9)));
        assert!(s.check(BlockSize::K1).unwrap_err().what.contains("granularity"));
        assert!(Signature { version: 2, ..s }.check(BlockSize::K4).unwrap_err().what.contains("version 2"));
        assert!(Signature { incompat: 0x11, ..s }.check(BlockSize::K4).unwrap_err().what.contains("0x10"));
        assert!(Signature { ro_compat: 4, ..s }.check(BlockSize::K4).is_err());
        assert!(Signature { compat: 4, ..s }.check(BlockSize::K4).is_ok());
        assert!(Signature::decode(&[0; LEN]).is_err());
    }
}
