//! Stores that reach the memory, not only the cache, and the fence that waits for them.
//!
//! ```text
//! whole lines   streaming stores (movntdq): past the cache
//! the rest      8-byte stores, then the line is written back: clwb, else clflushopt, else clflush
//! fence         sfence: all of these are durable
//! ```
//! What the processor has is asked once (`cpuid`). On other architectures than x86-64 stores are plain: only simulated
//! memory is mapped there.

use super::{LINE, WORD};
use std::sync::atomic::{AtomicU64, Ordering};

/// How a line leaves the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WriteBack {
    Clwb,
    ClflushOpt,
    Clflush,
    /// Nothing is known to do it.
    Unknown,
}

impl WriteBack {
    /// The best that this processor has.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn detect() -> Self {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        let bit = |register: u32, n: u32| register >> n & 1 == 1;
        let extended = if __cpuid(0).eax >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
        if bit(extended, 24) {
            WriteBack::Clwb
        } else if bit(extended, 23) {
            WriteBack::ClflushOpt
        } else if bit(__cpuid(1).edx, 19) {
            WriteBack::Clflush
        } else {
            WriteBack::Unknown
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    pub(super) fn detect() -> Self {
        WriteBack::Unknown
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            WriteBack::Clwb => "movnt, clwb",
            WriteBack::ClflushOpt => "movnt, clflushopt",
            WriteBack::Clflush => "movnt, clflush",
            WriteBack::Unknown => "plain stores",
        }
    }

    /// Writes back the line that holds `at`.
    ///
    /// # Safety
    /// `at` points into mapped memory.
    #[cfg(target_arch = "x86_64")]
    unsafe fn line(self, at: *const u8) {
        // SAFETY: the caller's; these instructions change no byte that a program can see. Each is only used where the
        // processor has it.
        unsafe {
            match self {
                WriteBack::Clwb => std::arch::asm!("clwb [{}]", in(reg) at, options(nostack, preserves_flags)),
                WriteBack::ClflushOpt => {
                    std::arch::asm!("clflushopt [{}]", in(reg) at, options(nostack, preserves_flags));
                }
                WriteBack::Clflush => std::arch::x86_64::_mm_clflush(at),
                WriteBack::Unknown => {}
            }
        }
    }

    #[cfg(not(target_arch = "x86_64"))]
    unsafe fn line(self, _: *const u8) {}

    /// Stores words one by one, and writes their lines back.
    ///
    /// # Safety
    /// `to` is aligned to a word; `bytes.len()`, whole words, are mapped there for writing, and nobody holds a
    /// reference to them.
    unsafe fn words(self, to: *mut u8, bytes: &[u8]) {
        let step = usize::try_from(WORD).expect("8");
        for (n, word) in bytes.chunks_exact(step).enumerate() {
            let value = u64::from_ne_bytes(word.try_into().expect("a word"));
            // SAFETY: in range and aligned, by the caller's promise; atomic, so that a word is never half there.
            let place = unsafe { AtomicU64::from_ptr(to.add(n * step).cast()) };
            place.store(value, Ordering::Release);
        }
        let line = usize::try_from(LINE).expect("64");
        let (start, end) = (to.addr(), to.addr() + bytes.len());
        for at in (start - start % line..end).step_by(line) {
            // SAFETY: a line that a stored word lies in; mappings are of whole pages.
            unsafe { self.line(to.with_addr(at)) };
        }
    }

    /// Copies bytes past the cache where whole lines are stored.
    ///
    /// # Safety
    /// As [`WriteBack::words`].
    pub(super) unsafe fn copy(self, to: *mut u8, bytes: &[u8]) {
        let line = usize::try_from(LINE).expect("64");
        if self == WriteBack::Unknown || bytes.len() < 2 * line {
            // SAFETY: the caller's.
            return unsafe { self.words(to, bytes) };
        }
        let (first, rest) = bytes.split_at(to.align_offset(line));
        let (whole, last) = rest.split_at(rest.len() - rest.len() % line);
        // SAFETY: three parts of the caller's range; the middle one begins with a line and is whole lines.
        unsafe {
            self.words(to, first);
            stream(to.add(first.len()), whole);
            self.words(to.add(first.len() + whole.len()), last);
        }
    }
}

/// Streaming stores of whole lines.
///
/// # Safety
/// As [`WriteBack::words`]; `to` is aligned to a line.
#[cfg(target_arch = "x86_64")]
unsafe fn stream(to: *mut u8, bytes: &[u8]) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    for n in (0..bytes.len()).step_by(size_of::<__m128i>()) {
        // SAFETY: both ranges hold 16 more bytes at `n`; the target is aligned to 16.
        unsafe { _mm_stream_si128(to.add(n).cast(), _mm_loadu_si128(bytes.as_ptr().add(n).cast())) };
    }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn stream(to: *mut u8, bytes: &[u8]) {
    // SAFETY: the caller's.
    unsafe { WriteBack::Unknown.words(to, bytes) };
}

/// Waits until all stores before it are durable.
pub(super) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 processor has it.
    unsafe {
        std::arch::x86_64::_mm_sfence();
    }
    std::sync::atomic::fence(Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(64))]
    struct Lines([u8; 1024]);

    /// V1.
    #[test]
    fn every_way_stores_exactly_what_it_is_told() {
        let have = WriteBack::detect();
        let all = [WriteBack::Clwb, WriteBack::ClflushOpt, WriteBack::Clflush, WriteBack::Unknown];
        // A better one that the processor has implies the older ones.
        let ways: Vec<_> = all.into_iter().skip_while(|w| *w != have).collect();
        assert!(!ways.is_empty());
        let bytes: Vec<u8> = (1..=255u8).cycle().take(1024).collect();
        for way in ways {
            for (at, len) in [(0, 1024), (8, 8), (56, 16), (8, 1000), (64, 64), (120, 300 / 8 * 8), (16, 0)] {
                let mut memory = Lines([0; 1024]);
                // SAFETY: inside of `memory`, in whole words.
                unsafe { way.copy(memory.0.as_mut_ptr().add(at), &bytes[..len]) };
                fence();
                assert_eq!(memory.0[at..at + len], bytes[..len], "{way:?} {at} {len}");
                assert!(memory.0[..at].iter().chain(&memory.0[at + len..]).all(|b| *b == 0), "{way:?} {at} {len}");
            }
        }
    }
}
