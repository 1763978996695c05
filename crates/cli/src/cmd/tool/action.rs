//! A command as an action on an open file system, and how it is performed.

use super::failure::Failure;
use super::host_file::Unfinished;
use quire::FileSystem;
use std::ffi::OsString;
use std::io::Write;
use std::path::Path;

/// What a command prints goes here.
pub(crate) type Out<'o> = dyn Write + 'o;

/// A command on an open file system.
pub(crate) trait Action {
    /// The arguments that name something in the image.
    fn names(&mut self) -> Vec<&mut OsString> {
        Vec::new()
    }

    /// It changes the image.
    fn writes(&self) -> bool {
        false
    }

    /// It may change the image in several transactions, if one cannot hold all.
    fn may_take_steps(&self) -> bool {
        false
    }

    /// The file of the host that it reads; `-` is standard input.
    fn host_source(&self) -> Option<&Path> {
        None
    }

    fn run(&self, fs: &FileSystem, out: &mut Out<'_>) -> Result<(), Failure>;

    /// As [`Action::run`], but the files of the host that it makes get their names later.
    fn run_unfinished(&self, fs: &FileSystem, out: &mut Out<'_>, _: &mut Unfinished) -> Result<(), Failure> {
        self.run(fs, out)
    }
}

/// A change of each path that is given.
pub(crate) trait PathChange {
    /// It may change the image in several transactions, if one cannot hold all.
    fn may_take_steps(&self) -> bool {
        false
    }

    fn run(&self, fs: &FileSystem, paths: &[OsString]) -> Result<(), Failure>;
}

/// A change with its paths.
#[derive(clap::Args)]
pub(crate) struct Paths<C: clap::Args> {
    #[command(flatten)]
    change: C,
    #[arg(required = true, value_name = "IMG:PATH")]
    paths: Vec<OsString>,
}

impl<C: PathChange + clap::Args> Action for Paths<C> {
    fn names(&mut self) -> Vec<&mut OsString> {
        self.paths.iter_mut().collect()
    }

    fn writes(&self) -> bool {
        true
    }

    fn may_take_steps(&self) -> bool {
        self.change.may_take_steps()
    }

    fn run(&self, fs: &FileSystem, _: &mut Out<'_>) -> Result<(), Failure> {
        self.change.run(fs, &self.paths)
    }
}

/// Runs a command, all or nothing if the image has a journal.
pub(super) fn perform(fs: &FileSystem, action: &dyn Action, out: &mut Out<'_>) -> Result<(), Failure> {
    if !action.writes() || !fs.info().journal {
        return action.run(fs, out);
    }
    let batch = fs.batch()?;
    let done = action.run(&batch, out).and_then(|()| Ok(batch.commit()?));
    match done {
        Err(e) if e.is_batch_too_large() && action.may_take_steps() => action.run(fs, out),
        other => other,
    }
}
