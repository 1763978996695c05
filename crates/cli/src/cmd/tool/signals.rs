//! Signals that end long work: SIGINT, SIGTERM and SIGHUP are noted, and the work ends at its next look.

use std::sync::atomic::{AtomicBool, Ordering};

/// What a shell returns for a program that SIGINT has ended.
pub(super) const INTERRUPTED: u8 = 130;

static STOP: AtomicBool = AtomicBool::new(false);

/// Lets the signals end the work at the next look. A second one ends the process at once.
pub(super) fn catch_signals() {
    // Without it the process ends as before, and leaves its temporary file.
    let _ = ctrlc::set_handler(|| {
        if STOP.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
    });
}

/// The next command of a shell begins.
pub(super) fn forget_signals() {
    STOP.store(false, Ordering::Relaxed);
}

/// True after a signal.
pub(super) fn is_stopped() -> bool {
    STOP.load(Ordering::Relaxed)
}
