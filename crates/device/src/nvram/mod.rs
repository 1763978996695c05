//! Memory that keeps its bytes without power, addressed by the byte.
//!
//! Guarantees: V1: what was stored before a [`Nvram::fence`] of the same thread is durable when the fence returns. A
//! store that no fence has followed may be there or not, each aligned 8-byte word for itself; nothing else is promised
//! about order.
//!
//! [`NvramMap`] is a DAX file or device, mapped with `MAP_SYNC`; or, said to be simulated, any file.

mod loss;
mod map;
mod store;

pub use map::{NvramError, NvramMap, NvramOptions};

/// Bytes of a cache line: what reaches the memory together.
pub const LINE: u64 = 64;
/// Bytes that are stored whole or not at all, where they are aligned.
pub const WORD: u64 = 8;

/// What was done to a memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NvramStats {
    pub stores: u64,
    pub bytes: u64,
    /// Cache lines that the stores touched.
    pub lines: u64,
    pub fences: u64,
}

/// Byte-addressable memory that keeps its bytes.
///
/// Offsets and lengths of stores are multiples of [`WORD`].
pub trait Nvram: Send + Sync {
    /// Size in bytes.
    fn size(&self) -> u64;

    /// An identity for a log that is made here: 16 bytes that no other log has.
    fn fresh_uuid(&self) -> [u8; 16];

    /// Copies bytes out.
    ///
    /// # Panics
    /// Outside the memory.
    fn read(&self, at: u64, buf: &mut [u8]);

    /// Stores bytes; durable after the next fence.
    ///
    /// # Panics
    /// Outside the memory, or not in whole words.
    fn store(&self, at: u64, bytes: &[u8]);

    /// Everything that this thread has stored is durable.
    fn fence(&self);

    /// True if bytes of this memory were found gone: nothing that a fence has promised counts any more.
    fn is_lost(&self) -> bool {
        false
    }

    /// Sums since it was opened.
    fn stats(&self) -> NvramStats;
}

/// Cache lines that a range touches.
#[must_use]
pub fn lines(at: u64, len: usize) -> u64 {
    let len = len as u64;
    if len == 0 { 0 } else { (at + len - 1) / LINE - at / LINE + 1 }
}
