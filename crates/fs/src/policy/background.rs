//! When the background thread works, and when it rests.

use std::time::Duration;

/// A checkpoint begins when the oldest transaction in the log is so old, unless the mount says otherwise
/// (`checkpoint_age=`). After 30 s the kernel writes dirty buffers home (`dirty_expire_centisecs`), those that jbd2 has
/// committed, too. So recovery replays what was committed in the last 30 seconds, however large the log is.
pub(crate) const CHECKPOINT_AGE: Duration = Duration::from_secs(30);

/// Such a checkpoint passes what is at least this share of the age old, one part in so many: half. Passing only what is
/// due would cost a flush and a write of the log's superblock for each transaction. Passing all would write home what
/// is about to be overwritten in the log.
const AGE_PASSED: u32 = 2;

/// By when a transaction was closed that goes home now. `oldest`: when the oldest in the log was; `age` zero: none goes
/// home for its age.
pub(crate) fn closed_long_ago(oldest: Option<Duration>, age: Duration, now: Duration) -> Option<Duration> {
    let due = oldest.is_some_and(|oldest| !age.is_zero() && now.saturating_sub(oldest) >= age);
    due.then(|| now.saturating_sub(age / AGE_PASSED))
}

/// The shortest pause of the thread after it found nothing to do. Work that is due may be held by a caller for a
/// moment; polling for it more often would cost more than it gains.
pub(crate) const MIN_IDLE_PAUSE: Duration = Duration::from_millis(1);

/// The longest pause of the thread: how late it notices work for which nothing wakes it, such as data that grew old.
pub(crate) const MAX_IDLE_PAUSE: Duration = Duration::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_half_as_old_goes_home_with_what_is_due() {
        let at = Duration::from_secs;
        assert_eq!(closed_long_ago(Some(at(10)), at(30), at(39)), None);
        assert_eq!(closed_long_ago(Some(at(10)), at(30), at(40)), Some(at(25)));
        assert_eq!(closed_long_ago(Some(at(10)), Duration::ZERO, at(4000)), None);
        assert_eq!(closed_long_ago(None, at(30), at(4000)), None);
    }
}
