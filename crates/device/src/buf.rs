//! Byte buffers aligned for direct I/O.
//!
//! Memory of the size of one block is kept from buffer to buffer, a little by each thread: aligned memory is slow to
//! get and give back, and an image of a block is made with every change of it.

use crate::policy::{KEPT_BUFFERS, KEPT_SECTORS};
use std::cell::RefCell;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

/// Alignment and granularity of a buffer, in bytes.
pub const SECTOR: usize = 512;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C, align(512))]
struct Sector([u8; SECTOR]);

/// A buffer of whole 512-byte sectors, aligned to 512 bytes. Dereferences to its bytes.
pub struct Buf(Box<[Sector]>);

thread_local! {
    static KEPT_HERE: RefCell<Vec<Box<[Sector]>>> = const { RefCell::new(Vec::new()) };
}

/// A piece of memory that this thread has kept, with whatever is in it.
fn kept(sectors: usize) -> Option<Box<[Sector]>> {
    if sectors != KEPT_SECTORS {
        return None;
    }
    KEPT_HERE.try_with(|kept| kept.borrow_mut().pop()).ok().flatten()
}

fn keep(here: &mut Vec<Box<[Sector]>>, memory: Box<[Sector]>) {
    if here.len() < KEPT_BUFFERS {
        here.push(memory);
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        if self.0.len() != KEPT_SECTORS {
            return;
        }
        let memory = std::mem::take(&mut self.0);
        // A thread that ends keeps nothing.
        let _ended = KEPT_HERE.try_with(|kept| keep(&mut kept.borrow_mut(), memory));
    }
}

impl Clone for Buf {
    fn clone(&self) -> Self {
        Buf::copy_of(self)
    }
}

impl Buf {
    /// `len` zero bytes, rounded up to whole sectors.
    ///
    /// # Panics
    /// If memory for it cannot be had.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        let sectors = len.div_ceil(SECTOR);
        match kept(sectors) {
            Some(mut memory) => {
                memory.zero();
                Buf(memory)
            }
            None => Buf(<[Sector]>::new_box_zeroed_with_elems(sectors).expect("out of memory")),
        }
    }

    /// A copy of `bytes`, padded with zeros to whole sectors.
    #[must_use]
    pub fn copy_of(bytes: &[u8]) -> Self {
        if let (whole, []) = bytes.as_chunks::<SECTOR>() {
            if let Some(mut memory) = kept(whole.len()) {
                memory.as_mut_bytes().copy_from_slice(bytes);
                return Buf(memory);
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_buffer_is_as_good_as_new() {
        for len in [4096, 512, 5000] {
            let mut b = Buf::zeroed(len);
            b.fill(7);
            let c = b.clone();
            assert_eq!(c, b);
            drop(b);
            assert!(Buf::zeroed(len).iter().all(|x| *x == 0), "{len}");
            assert_eq!(Buf::copy_of(&vec![9; len])[..len], vec![9; len]);
            assert!(c.iter().all(|x| *x == 7), "{len}");
            assert_eq!(c.as_ptr().align_offset(SECTOR), 0);
        }
        let many: Vec<Buf> = (0..100).map(|_| Buf::zeroed(4096)).collect();
        drop(many);
        assert!(KEPT_HERE.with(|s| s.borrow().len()) <= KEPT_BUFFERS);
    }
}
