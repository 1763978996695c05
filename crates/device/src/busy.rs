//! Asking again for what is in use: an image that its last user lets go of soon.

use crate::policy::{BUSY_PAUSE, BUSY_TIMEOUT};
use rustix::io::Errno;
use std::time::Instant;

/// Repeats a call that says that something is in use, for [`BUSY_TIMEOUT`].
pub(crate) fn retry_while_busy<T>(mut call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    let start = Instant::now();
    loop {
        match call() {
            Err(Errno::WOULDBLOCK | Errno::BUSY) if start.elapsed() < BUSY_TIMEOUT => {
                std::thread::sleep(BUSY_PAUSE);
            }
            outcome => return outcome,
        }
    }
}
