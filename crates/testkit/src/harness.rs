//! The runner of integration binaries whose tests can be skipped at run time ([`crate::needs`]).
//!
//! It takes the arguments of the built-in runner and prints what that prints, but a skipped test is `ignored`, with its
//! reason, and is counted so. It does not capture output.
//!
//! A binary has `harness = false` in its Cargo.toml and begins with
//! ```text
//! #[macro_use(test)]
//! extern crate quire_testkit;
//!
//! fn main() -> std::process::ExitCode {
//!     quire_testkit::harness::main()
//! }
//! ```
//! From there on `#[test]` is [`quire_testkit_macros::test`] in all modules of the binary.
//!
//! Guarantees: each test has a thread of its own with the name of the test, so that panic messages name it and
//! thread-local variables are new. A failed test is listed with the message and the place of its panic. A test that
//! runs for longer than a minute is named while it runs.

use crate::needs::Skipped;
use libtest_mimic::{Arguments, Completion, Failed, Trial};
use std::any::Any;
use std::cell::Cell;
use std::panic;
use std::process::ExitCode;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

#[doc(hidden)]
pub use inventory;

/// After this time a test is reported as running.
const LONG: Duration = Duration::from_secs(60);

/// A test, as the attribute enters it.
pub struct Registered {
    pub module: &'static str,
    pub name: &'static str,
    pub test: fn(),
}

inventory::collect!(Registered);

thread_local! {
    /// What the panic hook has been told on this thread: place and message.
    static PANICKED: Cell<Option<String>> = const { Cell::new(None) };
}

/// Runs the registered tests that the command line names.
#[must_use]
pub fn main() -> ExitCode {
    let mut trials: Vec<Trial> =
        inventory::iter::<Registered>.into_iter().map(|r| trial(path_within_crate(r.module, r.name), r.test)).collect();
    trials.sort_by(|a, b| a.name().cmp(b.name()));
    remember_panics();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// The name of a test without that of its crate, as the built-in runner prints it.
fn path_within_crate(module: &str, name: &str) -> String {
    match module.split_once("::") {
        Some((_, path)) => format!("{path}::{name}"),
        None => name.to_owned(),
    }
}

fn trial(name: String, test: fn()) -> Trial {
    Trial::ignorable_test(name.clone(), move || run(&name, test))
}

/// Runs a test to its end on a new thread.
fn run(name: &str, test: fn()) -> Result<Completion, Failed> {
    let (running, ended) = mpsc::channel::<()>();
    let body = move || {
        // Dropped when the test ends, however it does.
        let _running = running;
        panic::catch_unwind(test).map_err(why_it_ended)
    };
    let thread = thread::Builder::new().name(name.to_owned()).spawn(body)?;
    if ended.recv_timeout(LONG) == Err(RecvTimeoutError::Timeout) {
        eprintln!("test {name} has been running for over {} seconds", LONG.as_secs());
    }
    match thread.join() {
        Ok(Ok(())) => Ok(Completion::Completed),
        Ok(Err(result)) => result,
        Err(_) => Err("a thread-local variable panicked when it was dropped".into()),
    }
}

/// The result of a test whose thread unwinds, on that thread.
fn why_it_ended(payload: Box<dyn Any + Send>) -> Result<Completion, Failed> {
    match payload.downcast::<Skipped>() {
        Ok(skipped) => Ok(Completion::ignored_with(skipped.0)),
        Err(_) => Err(PANICKED.take().unwrap_or_else(|| "panicked without a message".to_owned()).into()),
    }
}

/// Keeps the message of each panic for the list of failures. The hook that was there still prints it.
fn remember_panics() {
    let print = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        PANICKED.set(Some(info.to_string()));
        print(info);
    }));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::needs::skip;

    #[test]
    fn skipped_test_is_ignored_with_its_reason_and_panicking_one_fails_with_its_message() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let path = log.path().to_str().unwrap().to_owned();
        let trials = vec![
            trial("m::passes".to_owned(), || ()),
            trial("m::skips".to_owned(), || skip("no such device")),
            trial("m::fails".to_owned(), || assert_eq!(1 + 1, 3, "seed 7")),
        ];
        remember_panics();
        let arguments = Arguments { logfile: Some(path), test_threads: Some(2), ..Arguments::default() };
        let conclusion = libtest_mimic::run(&arguments, trials);
        let (passed, failed, ignored) = (conclusion.num_passed, conclusion.num_failed, conclusion.num_ignored);
        assert_eq!((passed, failed, ignored), (1, 1, 1));
        let printed = std::fs::read_to_string(log.path()).unwrap();
        assert!(printed.contains("test m::skips  ... ignored (no such device)\n"), "{printed}");
        let place = format!("---- m::fails ----\npanicked at {}:", file!());
        assert!(printed.contains(&place) && printed.contains("seed 7"), "{printed}");
        assert!(printed.contains("test result: FAILED. 1 passed; 1 failed; 1 ignored;"), "{printed}");
    }

    #[test]
    fn names_are_those_of_the_built_in_runner() {
        assert_eq!(path_within_crate("it::a::uring", "name"), "a::uring::name");
        assert_eq!(path_within_crate("report", "name"), "name");
    }
}
