//! Memory that a device fills for a caller that does not wait.

use crate::buf::Buf;
use crate::huge::HugeBuf;
use std::ops::{Deref, DerefMut, Range};

/// Memory to be filled by a read: a buffer, or a part of larger memory, whose rest keeps what is in it. Dereferences to
/// the bytes to be filled.
#[derive(Debug)]
pub enum ReadBuf {
    /// All of it.
    Whole(Buf),
    /// These bytes of it.
    Part(HugeBuf, Range<usize>),
}

impl ReadBuf {
    /// The larger memory whose part this is.
    #[must_use]
    pub fn into_huge(self) -> Option<HugeBuf> {
        match self {
            ReadBuf::Whole(_) => None,
            ReadBuf::Part(memory, _) => Some(memory),
        }
    }
}

impl From<Buf> for ReadBuf {
    fn from(buf: Buf) -> Self {
        ReadBuf::Whole(buf)
    }
}

impl Deref for ReadBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            ReadBuf::Whole(buf) => buf,
            ReadBuf::Part(memory, range) => &memory[range.clone()],
        }
    }
}

impl DerefMut for ReadBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            ReadBuf::Whole(buf) => buf,
            ReadBuf::Part(memory, range) => &mut memory[range.clone()],
        }
    }
}
