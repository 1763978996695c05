//! For tests: allocations that find no space although there is some, chosen by their number.
//!
//! What counts is each request of blocks or of an inode that may be refused, reservations among them; what was reserved
//! is not refused (A5).

/// Counts a request. True if it is one of those that find no space.
#[cfg(not(any(test, feature = "shortage")))]
#[inline(always)]
pub(super) const fn strikes() -> bool {
    false
}

#[cfg(any(test, feature = "shortage"))]
pub(super) use counted::strikes;

#[cfg(any(test, feature = "shortage"))]
pub mod counted {
    use std::cell::Cell;
    use std::ops::Range;

    std::thread_local! {
        static COUNT: Cell<u64> = const { Cell::new(0) };
        static REFUSED: Cell<(u64, u64)> = const { Cell::new((0, 0)) };
    }

    /// From now on requests of this thread are counted from 0, and these find no space.
    pub fn begin(refused: Range<u64>) {
        COUNT.set(0);
        REFUSED.set((refused.start, refused.end));
    }

    /// There is space again. How many requests there were since it began.
    pub fn end() -> u64 {
        REFUSED.set((0, 0));
        COUNT.get()
    }

    pub(in super::super) fn strikes() -> bool {
        let n = COUNT.get();
        COUNT.set(n + 1);
        let (start, end) = REFUSED.get();
        (start..end).contains(&n)
    }
}
