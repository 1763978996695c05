//! Types for numbers that have a unit or live in a space.
//!
//! The inner value is public for encoding; arithmetic that could leave the space is checked.

use std::fmt;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($int:ty), $fmt:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $int);

        impl $name {
            /// This plus `n`, or `None` past the end of the space.
            #[must_use]
            pub fn checked_add(self, n: $int) -> Option<Self> {
                self.0.checked_add(n).map(Self)
            }

            /// This plus `n`. The caller has bounded it; overflow is our own bug and panics.
            #[must_use]
            pub fn plus(self, n: $int) -> Self {
                Self(self.0.checked_add(n).expect(concat!(stringify!($name), " overflow")))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $fmt, self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

number!(
    /// A block of the file system, counted from the start of the image.
    BlockNo(u64), "block {}"
);
number!(
    /// A block of a journal, counted from the journal's own superblock.
    LogBlock(u32), "log block {}"
);
number!(
    /// A block of a file, counted from its first byte. ext4 addresses 2^32 - 1 of them.
    FileBlock(u32), "file block {}"
);
number!(
    /// An inode number; the first inode is 1, 0 means none.
    Ino(u32), "inode {}"
);
number!(
    /// A block group.
    GroupNo(u32), "group {}"
);

impl Ino {
    pub const BAD_BLOCKS: Ino = Ino(1);
    pub const ROOT: Ino = Ino(2);
    pub const RESIZE: Ino = Ino(7);
    pub const JOURNAL: Ino = Ino(8);
}

/// A transaction's number. Compared modulo 2^32, hence no `Ord`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Tid(pub u32);

impl Tid {
    /// The next transaction. Zero follows the last number, and counts: so do the kernel and e2fsck when they recover.
    #[must_use]
    pub fn next(self) -> Tid {
        Tid(self.0.wrapping_add(1))
    }

    /// True if `self` is later than `other` (jbd2's `tid_gt`).
    #[must_use]
    pub fn after(self, other: Tid) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() > 0
    }

    /// True if `self` is `other` or later (jbd2's `tid_geq`).
    #[must_use]
    pub fn at_or_after(self, other: Tid) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() >= 0
    }
}

impl fmt::Display for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transaction {}", self.0)
    }
}

impl fmt::Debug for Tid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Size of a file-system block: a power of two from 1 KiB to 64 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockSize(u32);

impl BlockSize {
    pub const K1: BlockSize = BlockSize(10);
    pub const K4: BlockSize = BlockSize(12);

    /// From the superblock's `s_log_block_size` (0 means 1 KiB). `None` above 64 KiB.
    #[must_use]
    pub fn from_log(log: u32) -> Option<Self> {
        (log <= 6).then(|| BlockSize(log + 10))
    }

    /// Bytes in a block.
    #[must_use]
    pub fn bytes(self) -> usize {
        1 << self.0
    }

    /// Bytes in a block, for arithmetic on offsets.
    #[must_use]
    pub fn bytes64(self) -> u64 {
        1 << self.0
    }

    /// Base-two logarithm of the size in bytes.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Byte offset of a block in the image.
    #[must_use]
    pub fn offset(self, b: BlockNo) -> u64 {
        b.0.checked_shl(self.0).filter(|o| o >> self.0 == b.0).expect("block offset overflow")
    }

    /// Blocks needed for `bytes`, rounding up.
    #[must_use]
    pub fn blocks_for(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.bytes64())
    }

    /// The file block that holds byte `offset`, or `None` past 2^32 - 1 blocks.
    #[must_use]
    pub fn file_block(self, offset: u64) -> Option<FileBlock> {
        u32::try_from(offset >> self.0).ok().filter(|b| *b != u32::MAX).map(FileBlock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tids_wrap_through_zero() {
        assert_eq!(Tid(u32::MAX).next(), Tid(0));
        assert!(Tid(1).after(Tid(u32::MAX)));
        assert!(!Tid(u32::MAX).after(Tid(1)));
        assert!(Tid(7).at_or_after(Tid(7)));
    }

    #[test]
    fn any_logarithm_is_looked_at_safely() {
        assert_eq!(BlockSize::from_log(6).map(BlockSize::bytes), Some(0x1_0000));
        assert_eq!([7, u32::MAX - 1, u32::MAX].map(BlockSize::from_log), [None; 3]);
    }

    #[test]
    fn file_blocks_end_before_the_sentinel() {
        assert_eq!(BlockSize::K4.file_block(4096 * (u64::from(u32::MAX) - 1)), Some(FileBlock(u32::MAX - 1)));
        assert_eq!(BlockSize::K4.file_block(4096 * u64::from(u32::MAX)), None);
    }
}
