//! The toolbox: commands that work inside an image without mounting it. Each is an [`Action`] on an open file system,
//! named by `IMG:PATH` on the command line, and by `PATH` alone in a script or shell.
//!
//! *Guarantees*: an image that is only read is not written, unless it must be recovered first. What a command changes
//! happens together or not at all (B1); only `rm -r`, `chmod -R` and `chown -R` take several transactions if one cannot
//! hold all, and leave a consistent image between them.

mod change;
mod copy;
mod list;
mod script;
mod show;
mod target;
mod transfer;
pub(crate) mod values;
mod whole;

pub(crate) use script::{ScriptArgs, script};
pub(crate) use target::At;
pub(crate) use transfer::{CreateArgs, ExportArgs, ImportArgs, create, export, import_tree};
pub(crate) use whole::{CheckArgs, CloneArgs, DiffArgs, ResizeArgs, check, clone, diff, resize};

use quire::{ErrorKind, FileSystem};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// What a command prints goes here.
pub(crate) type Out<'o> = dyn Write + 'o;

/// The command did not do what was asked.
const FAILED: u8 = 1;
/// Wrong usage.
pub(crate) const USAGE: u8 = 2;

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// In the image: the error's path is one of the image.
    Image(quire::Error),
    /// At the host.
    Host(quire::Error),
    Usage(String),
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
        if matches!(self, Failure::Usage(_)) { USAGE } else { FAILED }
    }

    /// The message, with the image in front of paths that are inside of it.
    pub(crate) fn message(&self, image: &Path) -> String {
        match self {
            Failure::Image(e) if e.path().is_some() => format!("{}:{e}", image.display()),
            Failure::Image(e) => format!("{}: {e}", image.display()),
            Failure::Host(e) => e.to_string(),
            Failure::Usage(why) => why.clone(),
            Failure::Output(e) => format!("standard output: {e}"),
        }
    }

    fn is_batch_too_large(&self) -> bool {
        matches!(self, Failure::Image(e) if e.kind() == ErrorKind::BatchTooLarge)
    }
}

impl From<quire::Error> for Failure {
    fn from(e: quire::Error) -> Self {
        Failure::Image(e)
    }
}

impl From<std::io::Error> for Failure {
    fn from(e: std::io::Error) -> Self {
        Failure::Output(e)
    }
}

/// A command on an open file system.
pub(crate) trait Action {
    /// The arguments that name something in the image.
    fn targets(&mut self) -> Vec<&mut String>;

    /// It changes the image.
    fn writes(&self) -> bool {
        false
    }

    /// It may change the image in several transactions, if one cannot hold all.
    fn may_take_steps(&self) -> bool {
        false
    }

    fn run(&self, fs: &FileSystem, out: &mut Out<'_>) -> Result<(), Failure>;
}

/// A command with the place of the file system in the image.
#[derive(clap::Args)]
pub(crate) struct On<A: clap::Args> {
    #[command(flatten)]
    action: A,
    #[command(flatten)]
    at: At,
}

/// The commands, once for the command line, once for lines of a script.
macro_rules! commands {
    ($($(#[doc = $doc:literal])+ $name:ident($args:ty) $word:literal),+ $(,)?) => {
        #[derive(clap::Subcommand)]
        pub(crate) enum Tool {
            $($(#[doc = $doc])+ $name(On<$args>)),+
        }

        /// A line of a script.
        #[derive(clap::Parser)]
        #[command(multicall = true, disable_help_subcommand = true)]
        pub(crate) enum Line {
            $($(#[doc = $doc])+ $name($args)),+
        }

        /// The names of all commands.
        pub(crate) const NAMES: &[&str] = &[$($word),+];

        impl Tool {
            fn parts(self) -> (&'static str, At, Box<dyn Action>) {
                match self { $(Tool::$name(on) => ($word, on.at, Box::new(on.action))),+ }
            }
        }

        impl Line {
            pub(crate) fn action(self) -> Box<dyn Action> {
                match self { $(Line::$name(a) => Box::new(a)),+ }
            }
        }
    };
}

commands! {
    /// List names in an image
    Ls(list::Ls) "ls",
    /// Show a tree of an image
    Tree(list::Tree) "tree",
    /// Show what an inode says
    Stat(show::Stat) "stat",
    /// Print files of an image
    Cat(show::Cat) "cat",
    /// Copy a file out of an image
    Get(copy::Get) "get",
    /// Copy a file into an image
    Put(copy::Put) "put",
    /// Make directories
    Mkdir(change::Mkdir) "mkdir",
    /// Remove names
    Rm(change::Rm) "rm",
    /// Rename or move
    Mv(change::Mv) "mv",
    /// Make a hard or symbolic link
    Ln(change::Ln) "ln",
    /// Change permissions
    Chmod(change::Chmod) "chmod",
    /// Change owner and group
    Chown(change::Chown) "chown",
    /// Set or remove an extended attribute
    Setfattr(change::Setfattr) "setfattr",
    /// Show extended attributes
    Getfattr(show::Getfattr) "getfattr",
    /// Set times; make empty files and nodes
    Touch(change::Touch) "touch",
    /// Set the size of files
    Truncate(change::Truncate) "truncate",
    /// Show how much space trees take
    Du(show::Du) "du",
    /// Show how full an image is
    Df(show::Df) "df",
    /// Find objects by name, type, owner, permissions or size
    Find(list::Find) "find",
}

/// True for the name of a command of the toolbox.
pub(crate) fn is_command(name: &str) -> bool {
    let whole = ["script", "create", "import", "export", "clone", "check", "diff", "resize"];
    NAMES.contains(&name) || whole.contains(&name)
}

pub(crate) fn run(tool: Tool) -> ExitCode {
    let (name, at, mut action) = tool.parts();
    let image = match target::common_image(action.targets()) {
        Ok(image) => image,
        Err(e) => return finish(name, Path::new(""), Err(e)),
    };
    let done = || {
        let fs = at.open(&image, action.writes())?;
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        perform(&fs, &*action, &mut out)?;
        out.flush()?;
        Ok(fs.close()?)
    };
    finish(name, &image, done())
}

/// The end of a command: its message and exit code.
pub(crate) fn finish(name: &str, image: &Path, done: Result<(), Failure>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // Who reads has enough.
        Err(Failure::Output(e)) if e.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(e) => crate::exit::fail(name, e.code(), e.message(image)),
    }
}

/// Runs a command, all or nothing if the image has a journal.
fn perform(fs: &FileSystem, action: &dyn Action, out: &mut Out<'_>) -> Result<(), Failure> {
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
