//! Exit codes and messages: those of mount(8), and of fsck(8) for `recover`.

use std::fmt::Display;
use std::io::{ErrorKind, Write};
use std::process::ExitCode;

/// mount(8): wrong usage or not permitted.
pub(crate) const USAGE: u8 = 1;
/// Wrong usage of the toolbox, as of most programs.
pub(crate) const TOOL_USAGE: u8 = 2;
/// mount(8): the system failed us (no process, no FUSE, ...).
pub(crate) const SYSTEM: u8 = 2;
/// mount(8): the mount, or what was asked of it, failed.
pub(crate) const FAILURE: u8 = 32;

/// fsck(8).
pub(crate) mod fsck {
    pub(crate) const CORRECTED: u8 = 1;
    pub(crate) const UNCORRECTED: u8 = 4;
    pub(crate) const OPERATIONAL: u8 = 8;
    pub(crate) const USAGE: u8 = 16;
}

/// Says what went wrong, as `quire: COMMAND: what`.
pub(crate) fn fail(command: &str, code: u8, what: impl Display) -> ExitCode {
    tell(command, what);
    code.into()
}

/// Says something on standard error, as `quire: COMMAND: what`. One that is gone or full is no reason to fail, or to
/// fail otherwise than said.
pub(crate) fn tell(command: &str, what: impl Display) {
    writeln!(std::io::stderr(), "quire: {command}: {what}").ok();
}

/// Prints what a command found, and ends with `code`. If standard output cannot take it, it says so and ends with
/// `failure`. A reader that has gone has read what it wanted.
pub(crate) fn print(command: &str, text: &str, code: u8, failure: u8) -> ExitCode {
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => fail(command, failure, format_args!("standard output: {e}")),
        _ => code.into(),
    }
}

/// Help and version go to standard output and are no failure; anything else is wrong usage, and ends with `code`.
pub(crate) fn usage(e: &clap::Error, code: u8) -> ExitCode {
    e.print().ok();
    if e.use_stderr() { code.into() } else { ExitCode::SUCCESS }
}
