//! The commands that are an [`Action`], on the command line and as lines of a script.

use super::action::{Action, Paths, perform};
use super::failure::finish;
use super::target::{common_image, open};
use super::{change, copy, list, show};
use crate::cmd::at::At;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

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
    Mkdir(Paths<change::Mkdir>) "mkdir",
    /// Remove names
    Rm(Paths<change::Rm>) "rm",
    /// Rename or move
    Mv(change::Mv) "mv",
    /// Make a hard or symbolic link
    Ln(change::Ln) "ln",
    /// Change permissions
    Chmod(Paths<change::Chmod>) "chmod",
    /// Change owner and group
    Chown(Paths<change::Chown>) "chown",
    /// Set or remove an extended attribute
    Setfattr(Paths<change::Setfattr>) "setfattr",
    /// Show extended attributes
    Getfattr(show::Getfattr) "getfattr",
    /// Set times; make empty files and nodes
    Touch(Paths<change::Touch>) "touch",
    /// Set the size of files
    Truncate(Paths<change::Truncate>) "truncate",
    /// Show how much space trees take
    Du(show::Du) "du",
    /// Show how full an image is
    Df(show::Df) "df",
    /// Find objects by name, type, owner, permissions or size
    Find(list::Find) "find",
}

/// True for the name of a command of the toolbox.
pub(crate) fn is_command(name: &str) -> bool {
    let whole = ["script", "shell", "create", "import", "export", "clone", "check", "diff", "resize"];
    NAMES.contains(&name) || whole.contains(&name)
}

pub(crate) fn run(tool: Tool) -> ExitCode {
    let (name, at, mut action) = tool.parts();
    let image = match common_image(&mut *action) {
        Ok(image) => image,
        Err(e) => return finish(name, Path::new(""), Err(e)),
    };
    let done = || {
        let fs = open(at, &image, action.writes())?;
        let mut out = std::io::BufWriter::new(std::io::stdout().lock());
        perform(&fs, &*action, &mut out)?;
        out.flush()?;
        Ok(fs.close()?)
    };
    finish(name, &image, done())
}
