//! Signals that end long work: SIGINT, SIGTERM and SIGHUP are noted, and the work ends at its next look. Where nothing
//! half done would be left, they end the process at once.

use std::sync::atomic::{AtomicBool, Ordering};

/// What a shell returns for a program that SIGINT has ended.
pub(super) const INTERRUPTED: u8 = 130;

/// A signal has come, and the work is to end.
static STOP: AtomicBool = AtomicBool::new(false);
/// The work looks for signals, and takes away what is half done.
static IS_WATCHED: AtomicBool = AtomicBool::new(false);

/// Lets the signals end the work at the next look. A second one ends the process at once.
pub(super) fn catch_signals() {
    IS_WATCHED.store(true, Ordering::SeqCst);
    handle_signals();
}

/// Lets the signals end the process at once, until the next [`catch_signals`]. One that has come meanwhile may still
/// have to be looked for.
pub(super) fn end_at_once() {
    IS_WATCHED.store(false, Ordering::SeqCst);
    handle_signals();
}

fn handle_signals() {
    // Fails but for the first time, and where a signal is ignored, as nohup(1) has it. Without a handler the process
    // ends as before, and leaves its temporary file.
    let _ = ctrlc::try_set_handler(|| {
        if STOP.swap(true, Ordering::SeqCst) || !IS_WATCHED.load(Ordering::SeqCst) {
            std::process::exit(INTERRUPTED.into());
        }
    });
}

/// The next command of a user's shell begins, which the signal of an earlier one does not end.
pub(super) fn forget_signals() {
    STOP.store(false, Ordering::SeqCst);
}

/// True after a signal.
pub(super) fn is_stopped() -> bool {
    STOP.load(Ordering::SeqCst)
}
