//! Byte buffers aligned for direct I/O.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Alignment and granularity of a buffer, in bytes.
pub const SECTOR: usize = 512;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(512))]
struct Sector([u8; SECTOR]);

/// A buffer of whole 512-byte sectors, aligned to 512 bytes. Dereferences to its bytes.
#[derive(Clone)]
pub struct Buf(Box<[Sector]>);

impl Buf {
    /// `len` zero bytes, rounded up to whole sectors.
    ///
    /// # Panics
    /// If memory for it cannot be had.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Buf(<[Sector]>::new_box_zeroed_with_elems(len.div_ceil(SECTOR)).expect("out of memory"))
    }

    /// A copy of `bytes`, padded with zeros to whole sectors.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        if let (whole, []) = bytes.as_chunks::<SECTOR>() {
            return Buf(whole.iter().map(|sector| Sector(*sector)).collect());
        }
        let mut b = Self::zeroed(bytes.len());
        b[..bytes.len()].copy_from_slice(bytes);
        b
    }
}

impl std::ops::Deref for Buf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl std::ops::DerefMut for Buf {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.as_mut_bytes()
    }
}

impl std::fmt::Debug for Buf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buf({} bytes)", self.len())
    }
}

impl PartialEq for Buf {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for Buf {}
