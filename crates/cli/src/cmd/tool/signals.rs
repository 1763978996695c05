//! Signals that end long work: SIGINT, SIGTERM and SIGHUP are noted, and the work ends at its next look. Where nothing
//! half done would be left, they end the process at once.

use std::sync::atomic::{AtomicU8, Ordering};

/// What a shell returns for a program that SIGINT has ended.
pub(super) const INTERRUPTED: u8 = 130;

/// [`STOP`] and [`WATCHED`] in one word: a signal that the work has seen must not take the process for one that nobody
/// watches for.
static STATE: AtomicU8 = AtomicU8::new(0);
/// A signal has come, and the work is to end.
const STOP: u8 = 1;
/// The work looks for signals, and takes away what is half done.
const WATCHED: u8 = 2;

/// Lets the signals end the work at the next look. A second one ends the process at once.
pub(super) fn catch_signals() {
    STATE.fetch_or(WATCHED, Ordering::SeqCst);
    handle_signals();
}

/// Lets the signals end the process at once, until the next [`catch_signals`]. One that has come meanwhile may still
/// have to be looked for.
pub(super) fn end_at_once() {
    STATE.fetch_and(!WATCHED, Ordering::SeqCst);
    handle_signals();
}

fn handle_signals() {
    // Fails but for the first time, and where a signal is ignored, as nohup(1) has it. Without a handler the process
    // ends as before, and leaves its temporary file.
    let _ = ctrlc::try_set_handler(|| {
        if ends_process(&STATE) {
            std::process::exit(INTERRUPTED.into());
        }
    });
}

/// Notes a signal. True if it ends the process.
fn ends_process(state: &AtomicU8) -> bool {
    state.fetch_or(STOP, Ordering::SeqCst) != WATCHED
}

/// The next command of a user's shell begins, which the signal of an earlier one does not end.
pub(super) fn forget_signals() {
    STATE.fetch_and(!STOP, Ordering::SeqCst);
}

/// True after a signal.
pub(super) fn is_stopped() -> bool {
    STATE.load(Ordering::SeqCst) & STOP != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_ends_what_is_watched_and_the_process_otherwise() {
        for (before, ends) in [(WATCHED, false), (WATCHED | STOP, true), (0, true), (STOP, true)] {
            let state = AtomicU8::new(before);
            assert_eq!((ends_process(&state), state.into_inner()), (ends, before | STOP), "{before}");
        }
    }

    /// The work ends as soon as it sees the signal, while the handler still runs.
    #[test]
    fn a_signal_that_the_work_has_seen_does_not_end_the_process() {
        let states: Vec<_> = (0..200_000).map(|_| AtomicU8::new(WATCHED)).collect();
        let ends = std::thread::scope(|s| {
            let handler = s.spawn(|| states.iter().filter(|state| ends_process(state)).count());
            for state in &states {
                while state.load(Ordering::SeqCst) & STOP == 0 {
                    std::thread::yield_now();
                }
                state.fetch_and(!WATCHED, Ordering::SeqCst);
            }
            handler.join().unwrap()
        });
        assert_eq!(ends, 0, "of {} signals", states.len());
    }
}
