//! Long work on files of the host: its progress on a terminal, and its end by a signal, which takes away what is half
//! done. Changes inside an image need none of that, because the journal undoes them.

use super::failure::Failure;
use super::signals::is_stopped;
use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};
use quire::archive::{ExportOptions, ImportOptions, Progress};
use std::fs::File;
use std::io::{self, IsTerminal, Read, Seek, Write};
use std::ops::ControlFlow;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// How often the line on a terminal changes.
const TICK: Duration = Duration::from_millis(100);
/// How often a program that was started is looked at.
const CHILD_CHECK: Duration = Duration::from_millis(10);

/// # Errors
/// Interrupted.
pub(super) fn check() -> Result<(), Failure> {
    if is_stopped() { Err(Failure::Interrupted) } else { Ok(()) }
}

/// Runs a program that works on a copy, and ends it after a signal.
///
/// # Errors
/// Interrupted. It is not installed, or cannot be started.
pub(super) fn output(name: &str, command: &mut Command) -> Result<Output, Failure> {
    let failed = |e: io::Error| Failure::Failed(format!("{name}: {e} (is e2fsprogs installed?)"));
    // Files, not pipes: nobody need read them meanwhile.
    let (mut stdout, mut stderr) = (tempfile::tempfile().map_err(failed)?, tempfile::tempfile().map_err(failed)?);
    command.stdin(Stdio::null()).stdout(stdout.try_clone().map_err(failed)?);
    let mut child = command.stderr(stderr.try_clone().map_err(failed)?).spawn().map_err(failed)?;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if is_stopped() {
            child.kill().ok();
            child.wait().ok();
        }
        check()?;
        std::thread::sleep(CHILD_CHECK);
    };
    check()?;
    let whole = |file: &mut File| {
        let mut bytes = Vec::new();
        file.rewind()?;
        file.read_to_end(&mut bytes).map(|_| bytes)
    };
    let (stdout, stderr) = (whole(&mut stdout).map_err(failed)?, whole(&mut stderr).map_err(failed)?);
    Ok(Output { status, stdout, stderr })
}

/// A line on a terminal that tells how far the work is; elsewhere nothing.
#[derive(Clone)]
pub(super) struct Line(ProgressBar);

impl Line {
    pub(super) fn new(what: &'static str) -> Self {
        if !std::io::stderr().is_terminal() {
            return Line(ProgressBar::hidden());
        }
        let bar = ProgressBar::new_spinner().with_message(what);
        bar.set_style(ProgressStyle::with_template("{spinner} {msg} {prefix}").expect("a valid template"));
        bar.enable_steady_tick(TICK);
        Line(bar)
    }

    /// An import that tells this line, and ends after a signal.
    pub(super) fn watch(&self, options: ImportOptions) -> ImportOptions {
        let line = self.clone();
        options.on_progress(move |p| line.tell(p))
    }

    /// An export that tells this line, and ends after a signal.
    pub(super) fn watch_export(&self) -> ExportOptions {
        let line = self.clone();
        ExportOptions::new().on_progress(move |p| line.tell(p))
    }

    fn tell(&self, p: Progress) -> ControlFlow<()> {
        self.show(p);
        if is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn show(&self, p: Progress) {
        if !self.0.is_hidden() {
            let what = if p.writing { "" } else { " measured" };
            self.0.set_prefix(format!("{} objects{what}, {}", HumanCount(p.objects), HumanBytes(p.bytes)));
        }
    }

    /// Prints something on standard error, above the line.
    pub(super) fn print_above(&self, text: &str) {
        self.0.suspend(|| writeln!(io::stderr(), "{text}").ok());
    }

    pub(super) fn bytes(&self, n: u64) {
        if !self.0.is_hidden() {
            self.0.set_prefix(HumanBytes(n).to_string());
        }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// Output that tells a line how much of it there is, and ends after a signal.
pub(super) struct Counted<'l, W> {
    pub(super) out: W,
    pub(super) line: &'l Line,
    pub(super) bytes: u64,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
        if is_stopped() {
            // `Interrupted` would be tried again.
            return Err(std::io::Error::other(quire::Error::new(quire::ErrorKind::Cancelled, "interrupted")));
        }
        let n = self.out.write(buf)?;
        self.bytes += n as u64;
        self.line.bytes(self.bytes);
        Ok(n)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}
