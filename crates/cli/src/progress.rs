//! The progress of a recovery.

use indicatif::{ProgressBar, ProgressStyle};
use quire_journal::recover::{Phase, Progress};
use std::io::IsTerminal;

/// Progress on a terminal; elsewhere nothing.
pub(crate) struct Bar(ProgressBar);

impl Bar {
    pub(crate) fn new() -> Self {
        let bar = if std::io::stderr().is_terminal() { ProgressBar::new(1) } else { ProgressBar::hidden() };
        bar.set_style(ProgressStyle::with_template("{msg} {bar:40} {percent}%").expect("a valid template"));
        Bar(bar)
    }

    pub(crate) fn show(&self, p: Progress) {
        self.0.set_message(match p.phase {
            Phase::Scan => "scanning the journal",
            Phase::Replay => "replaying the journal",
        });
        self.0.set_length(p.total);
        self.0.set_position(p.done);
    }

    pub(crate) fn clear(&self) {
        self.0.finish_and_clear();
    }
}
