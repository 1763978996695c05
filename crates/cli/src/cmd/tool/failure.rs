//! Why a command of the toolbox failed, and what it says and returns then.

use super::signals::{INTERRUPTED, is_stopped};
use crate::exit;
use crate::text::{printable, printable_name};
use quire::ErrorKind;
use std::path::Path;
use std::process::ExitCode;

/// The command did not do what was asked.
const FAILED: u8 = 1;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// In the image: the error's path is one of the image.
    Image(quire::Error),
    /// At the host.
    Host(quire::Error),
    Usage(String),
    /// Another reason, in whole words.
    Failed(String),
    /// A signal has ended it.
    Interrupted,
    /// What is printed cannot be written.
    Output(std::io::Error),
}

impl Failure {
    pub(crate) fn host(e: quire::Error) -> Self {
        Failure::Host(e)
    }

    /// An error of reading or writing a file of the image.
    pub(crate) fn image(path: impl AsRef<Path>, e: std::io::Error) -> Self {
        match e.downcast::<quire::Error>() {
            Ok(e) => Failure::Image(e.at(path)),
            Err(e) => Failure::Host(quire::Error::host(path, &e)),
        }
    }

    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::Usage(_) => exit::TOOL_USAGE,
            _ if self.is_interrupted() => INTERRUPTED,
            _ => FAILED,
        }
    }

    /// The message, with the image in front of paths that are inside of it. Names have no effect on a terminal.
    pub(crate) fn message(&self, image: &Path) -> String {
        match self {
            Failure::Interrupted => "interrupted".to_owned(),
            _ if self.is_interrupted() => "interrupted".to_owned(),
            Failure::Image(e) if e.path().is_some() => format!("{}:{}", printable_name(image), shown(e)),
            Failure::Image(e) => format!("{}: {}", printable_name(image), shown(e)),
            Failure::Host(e) => shown(e),
            // clap says some things in several lines.
            Failure::Usage(why) | Failure::Failed(why) => why.split('\n').map(printable).collect::<Vec<_>>().join("\n"),
            Failure::Output(e) => format!("standard output: {e}"),
        }
    }

    pub(super) fn is_interrupted(&self) -> bool {
        // A child of ours may have been ended by the same signal.
        is_stopped()
            || matches!(self, Failure::Interrupted)
            || matches!(self, Failure::Image(e) | Failure::Host(e) if e.kind() == ErrorKind::Cancelled)
    }

    pub(super) fn is_batch_too_large(&self) -> bool {
        matches!(self, Failure::Image(e) if e.kind() == ErrorKind::BatchTooLarge)
    }
}

/// What an error says, with its path as it is.
fn shown(e: &quire::Error) -> String {
    let text = e.to_string();
    let Some(path) = e.path() else { return printable(&text) };
    let what = text.strip_prefix(&format!("{}: ", path.display())).unwrap_or(&text);
    format!("{}: {}", printable_name(path), printable(what))
}

impl From<quire::Error> for Failure {
    fn from(e: quire::Error) -> Self {
        if e.is_of_host() { Failure::Host(e) } else { Failure::Image(e) }
    }
}

impl From<std::io::Error> for Failure {
    fn from(e: std::io::Error) -> Self {
        Failure::Output(e)
    }
}

/// The end of a command: its message and exit code.
pub(crate) fn finish(name: &str, image: &Path, done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The reader has enough.
        Err(Failure::Output(e)) if e.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(e) => exit::fail(name, e.code(), e.message(image)),
    }
}
