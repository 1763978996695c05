//! When the background thread works, and when it rests.

use std::time::Duration;

/// How long a batch of the background thread waits for a commit of others to begin a flush. A batch that is named in a
/// transaction before costs the next commit a flush more; ten milliseconds cover the pause between two commits of a
/// busy database.
pub(crate) const MAX_FLUSH_WAIT: Duration = Duration::from_millis(10);

/// The shortest pause of the thread after it found nothing to do. Work that is due may be held by a caller for a
/// moment; polling for it more often would cost more than it gains.
pub(crate) const MIN_IDLE_PAUSE: Duration = Duration::from_millis(1);

/// The longest pause of the thread: how late it notices work for which nothing wakes it, such as data that grew old.
pub(crate) const MAX_IDLE_PAUSE: Duration = Duration::from_millis(250);
