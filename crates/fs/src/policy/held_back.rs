//! How much of what is written a cache above the volume may keep to itself, so that a full disk is noticed in time.

/// A file system counts as nearly full when less than this share of it is free, one part in so many: small enough that
/// most volumes never get there.
const NEARLY_FULL_PART: u64 = 32;
/// At most so many bytes free count as nearly full, whatever the size: as much as a writer puts out in some hundredths
/// of a second.
const NEARLY_FULL_BYTES: u64 = 16 << 20;
/// A cache keeps at least so many bytes: less would make each page a request of its own.
const MIN_HELD_BACK: u64 = 1 << 20;

/// True if a write should be told at once whether it fits, rather than kept in a cache.
#[must_use]
pub fn nearly_full(free: u64, total: u64) -> bool {
    free < (total / NEARLY_FULL_PART).min(NEARLY_FULL_BYTES)
}

/// Bytes that a cache may keep when so many are free: about half, so that what it keeps still fits when it is handed
/// over. A power of two, so that it seldom changes.
#[must_use]
pub fn may_hold_back(free: u64) -> u64 {
    let half = (free / 2).max(MIN_HELD_BACK);
    1 << half.ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_back_fits() {
        for free in [4 << 20, 5 << 20, 100 << 20, u64::MAX] {
            assert!(may_hold_back(free) <= free / 2 && may_hold_back(free) > free / 5, "{free}");
        }
        assert_eq!(may_hold_back(0), MIN_HELD_BACK);
    }

    #[test]
    fn a_volume_is_nearly_full_before_it_is_full_and_not_when_it_is_new() {
        for total in [8 << 20, 32 << 20, 1 << 40] {
            assert!(nearly_full(0, total) && !nearly_full(total / 2, total), "{total}");
        }
    }
}
