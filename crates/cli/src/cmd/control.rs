//! `quire sync`, `quire freeze`, `quire thaw`, and the growth of a mount: what is asked of a mount that serves.

use crate::exit;
use quire_mount::{Control, ControlError};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Make everything written to a mount durable.
///
/// sync(2) reaches a FUSE mount only if it is a block device mounted by root; this works for all of them.
#[derive(clap::Args)]
#[command(after_help = "Example:
  quire sync /mnt")]
pub(crate) struct SyncArgs {
    /// A directory of the mount
    dir: PathBuf,
}

/// Bring the image into a clean, consistent state and hold it there.
///
/// The image can then be copied, and needs no recovery. Programs that write to the mount wait until `quire thaw`.
#[derive(clap::Args)]
#[command(after_help = "Example:
  quire freeze /mnt; cp --reflink disk.img snapshot.img; quire thaw /mnt")]
pub(crate) struct FreezeArgs {
    /// A directory of the mount
    dir: PathBuf,
}

/// End a freeze.
#[derive(clap::Args)]
#[command(after_help = "Example:
  quire thaw /mnt")]
pub(crate) struct ThawArgs {
    /// A directory of the mount
    dir: PathBuf,
}

pub(crate) fn sync(args: &SyncArgs) -> ExitCode {
    ask("sync", &args.dir, Control::sync)
}

pub(crate) fn freeze(args: &FreezeArgs) -> ExitCode {
    ask("freeze", &args.dir, Control::freeze)
}

pub(crate) fn thaw(args: &ThawArgs) -> ExitCode {
    ask("thaw", &args.dir, Control::thaw)
}

/// `quire resize` of a mount.
pub(crate) fn resize(dir: &Path, bytes: u64) -> ExitCode {
    ask("resize", dir, |control| control.resize(bytes))
}

fn ask(name: &str, dir: &Path, what: impl Fn(&Control) -> Result<(), ControlError>) -> ExitCode {
    let done = Control::open(dir).and_then(|(control, _)| what(&control));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(e @ ControlError::Refused { .. }) => {
            exit::fail(name, exit::FAILURE, format_args!("{}: {e}", dir.display()))
        }
        Err(e) => exit::fail(name, exit::FAILURE, e),
    }
}
