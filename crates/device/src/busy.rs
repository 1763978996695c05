//! Asking again for what is in use: an image that its last user lets go of soon.

use rustix::io::Errno;
use std::time::{Duration, Instant};

/// How long an image in use is asked for again before it is refused: a process that was killed lets go of its files
/// some tens of milliseconds later, and the daemon of a mount that umount(8) has just detached still writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);

/// Repeats a call that says that something is in use, for [`BUSY_TIMEOUT`].
pub(crate) fn retry_while_busy<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let start = Instant::now();
    loop {
        match call() {
            Err(Errno::WOULDBLOCK | Errno::BUSY) if start.elapsed() < BUSY_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(10));
            }
            outcome => return outcome,
        }
    }
}
