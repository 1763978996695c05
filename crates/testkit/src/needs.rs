//! What tests need, and how a test that cannot run here ends. The runner ([`crate::harness`]) counts it as ignored and
//! prints the reason.
//!
//! Guarantees: [`skip`] never returns and prints nothing itself. Relies on being called on the thread of a test that
//! the runner runs: with the built-in runner, and on other threads, it is a panic like any other.

use std::fmt::Display;
use std::fs::File;
use std::process::Command;

/// The payload of the panic that ends a skipped test: the reason.
pub(crate) struct Skipped(pub(crate) String);

/// Ends the test as ignored. The reason is put on one line.
pub fn skip(reason: impl Display) -> ! {
    let reason = reason.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
    // Without the panic hook, which would print a message.
    std::panic::resume_unwind(Box::new(Skipped(reason)))
}

/// Skips the test unless root runs it.
pub fn needs_root() {
    if !is_root() {
        skip("needs root");
    }
}

/// Skips the test unless these programs are installed.
pub fn needs_tools(tools: &[&str]) {
    if let Some(missing) = tools.iter().find(|tool| !has(tool)) {
        skip(format_args!("no {missing}"));
    }
}

/// Skips the test where nothing can be mounted over FUSE.
pub fn needs_mounts() {
    if File::options().read(true).write(true).open("/dev/fuse").is_err() {
        skip("no /dev/fuse");
    }
    if !is_root() {
        needs_tools(&["fusermount3"]);
    }
    needs_tools(&["mke2fs"]);
}

/// Whether the test runs as root.
#[must_use]
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Whether a program is installed, also where users do not look.
#[must_use]
pub fn has(tool: &str) -> bool {
    Command::new("sh")
        .args(["-c", r#"PATH=$PATH:/sbin:/usr/sbin command -v "$0""#, tool])
        .output()
        .is_ok_and(|o| o.status.success())
}
