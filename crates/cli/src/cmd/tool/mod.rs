//! The toolbox: commands that work inside an image without mounting it. Each is an `Action` on an open file system,
//! named by `IMG:PATH` on the command line, and by `PATH` alone in a script or shell.
//!
//! *Guarantees*: an image that is only read is not written, unless it must be recovered first. If the image has a
//! journal, what a command changes happens together or not at all (B1); only `rm -r`, `chmod -R` and `chown -R` take
//! several transactions if one cannot hold all, and leave a consistent image between them.

mod action;
mod archive_output;
mod change;
mod commands;
mod complete;
mod copy;
mod diff;
mod failure;
mod host_file;
mod list;
mod place;
mod resize;
mod script;
mod shell;
mod show;
mod signals;
mod target;
mod transfer;
pub(crate) mod values;
mod whole;
mod work;

pub(crate) use commands::{Tool, is_command, run};
pub(crate) use diff::{DiffArgs, diff};
pub(crate) use resize::{ResizeArgs, resize};
pub(crate) use script::{ScriptArgs, script};
pub(crate) use shell::{ShellArgs, shell};
pub(crate) use transfer::{CreateArgs, ExportArgs, ImportArgs, create, export, import_tree};
pub(crate) use whole::{CheckArgs, CloneArgs, check, clone};
